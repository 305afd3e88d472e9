"""Collects everything that keeps files, in an order in which nothing is missed between two reads.

The reference to a file moves in one direction: open job, record of a compaction, open plan, manifest. So jobs are read
before heads and plans, these before records, and manifests last: a reference that moves in the meantime is met again
further down. A deletion lists the files on the disk before all of this: files written later were not listed.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.records.objects import Objects
from tidemark.coordinator.records.states import OpenPlan, SealedPlan
from tidemark.coordinator.records.timelines import Erasures, Head, Stops
from tidemark.coordinator.retention.damage import DamagedManifests, damage_of
from tidemark.coordinator.retention.open_jobs import OpenJobs, listed_jobs, open_jobs
from tidemark.coordinator.retention.pins import (
    Names,
    collect_reasons,
    genesis_names,
    is_newborn,
    names,
    pins_of_deliveries,
    pins_of_drains,
    pins_of_jobs,
    pins_of_publications,
    pins_of_timelines,
)
from tidemark.coordinator.retention.stored_rule import Lines, kept_by
from tidemark.declare.retention import Retention
from tidemark.errors import CorruptObjectError, NotFoundError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.checkpoint.store_objects import Closing, CompactionRecord, Genesis
from tidemark.model.retention.manifest_lines import ManifestLine
from tidemark.model.retention.savepoint import TombstoneRecord
from tidemark.model.retention.shared_state import Holder

Standing = tuple[
    dict[str, Checkpoint | Genesis],
    dict[str, CheckpointPlan],
    dict[str, tuple[StateHandle, ...]],
    dict[str, CorruptObjectError],
]
LATER = "not released yet"
"""Why a checkpoint that no rule keeps and nothing pins still holds its files: it must have a tombstone first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The references collected by one pass.

    Attributes:
        rule: the rule that was applied.
        lines: timelines with their checkpoints, without released ones.
        reasons: per checkpoint, why it stays; empty = no rule keeps it and nothing pins it.
        plans: plans that are open or sealed, by name of their timeline.
        sealed: the candidates that attempts of these plans have sealed, by name of the timeline.
        jobs: open jobs, and results of compactions.
        names: savepoints.
        tombstones: tombstones of checkpoints, confirmed or not, by name.
        stillborn: timelines that began with a manifest from which a key was erased in the meantime; they hold nothing.
        damage: manifests that cannot be read, and the timelines whose files they may name.
        now_ms: time of the pass.
    """

    rule: Retention | None
    lines: Lines
    reasons: Mapping[int, tuple[str, ...]]
    plans: Mapping[str, CheckpointPlan]
    sealed: Mapping[str, tuple[StateHandle, ...]]
    jobs: OpenJobs
    names: Names
    tombstones: Mapping[str, TombstoneRecord]
    stillborn: frozenset[str]
    damage: DamagedManifests
    now_ms: int

    @property
    def subsumed(self) -> list[ManifestLine]:
        """Checkpoints that nothing keeps, sorted by id."""
        return [c for c in self.lines.all() if not self.reasons.get(c.id)]

    def pin_reasons(self, tombstone: TombstoneRecord) -> tuple[str, ...]:
        """Why the checkpoint of a tombstone stays."""
        if any(keys.slot_key(*keys.place_of(found.key)) == tombstone.place for found in self.damage.manifests):
            return ("its manifest is damaged",)
        return self.reasons.get(int(tombstone.name.removeprefix("chk-")), ())

    def is_released(self, number: int) -> bool:
        """Whether a checkpoint was released for good."""
        return is_final(self.tombstones.get(f"chk-{number}"))

    def newborn(self, timeline: str) -> Genesis | None:
        """The genesis of an open timeline without a checkpoint of its own; None for a stillborn timeline."""
        genesis = self.lines.geneses.get(timeline)
        if genesis is None or timeline in self.stillborn or not is_newborn(self.lines, timeline):
            return None
        return None if self.is_released(genesis.parent) or self.is_released(genesis.sinks_of) else genesis

    def holders(self, *, after_release: bool = False) -> list[Holder]:
        """Lists the holders of files.

        Args:
            after_release: treat checkpoints that nothing keeps as released already.
        """
        found = [
            Holder(name=c.name, why=self.reasons.get(c.id) or (LATER,), handles=tuple(c.named))
            for c in self.lines.all()
            if self.reasons.get(c.id) or not after_release
        ]
        for name, genesis in self.lines.geneses.items():
            if self.newborn(name) is not None:
                why = (f"timeline {name}, which has no checkpoint of its own",)
                found.append(Holder(name=genesis_names(genesis), why=why, handles=_of_genesis(genesis)))
        for timeline, plan in self.plans.items():
            handles = (*_of_plan(plan), *self.sealed.get(timeline, ()))
            found.append(Holder(name=f"plan {plan.name}", why=(f"{plan.name}, which is in progress",), handles=handles))
        found += [_of_record(record) for record in self.jobs.adoptable]
        return found


def collect_roots(coordinator: CheckpointCoordinator, rule: Retention | None) -> Survey:
    """Collects all references; writes nothing.

    Raises:
        CorruptObjectError: an object is damaged, so it is unknown which files it needs and nothing may be deleted. A
            damaged manifest does not raise: it is listed in `damage`, and only blocks its own line.
        StoreError: the store could not be read.
    """
    objects, index, now = coordinator.objects, coordinator.index, coordinator.clock.now_ms()
    tombstones, settled = index.tombstones(objects), _settled(objects)
    listed = listed_jobs(objects, index)
    heads, plans, sealed, unread = _read_open_timelines(coordinator)
    lines, bad = _lines(coordinator, tombstones)
    damage = damage_of(objects, lines, bad)
    for name, error in unread.items():
        if name not in damage.timelines:  # it was restored in between, so its timeline was not read
            raise error
    read = {c.id: c for c in lines.all()}
    jobs = open_jobs(objects, listed, heads, read, now)
    released = frozenset(int(name.removeprefix("chk-")) for name, t in tombstones.items() if t.confirmed)
    named = names(coordinator, released, now, damage)
    pins = [
        *named.pins,
        *pins_of_timelines(lines, plans),
        *pins_of_drains(heads),
        *pins_of_jobs(jobs),
        *pins_of_publications(coordinator.objects),
        *pins_of_deliveries(coordinator, lines, damage),
        *damage.pins(read.values()),
    ]
    stopped = Stops(objects).current() is not None
    index.save()
    by_rule, pinned = kept_by(rule and rule.in_force(stopped=stopped), lines), collect_reasons(pins)
    return Survey(
        rule=rule,
        lines=lines,
        reasons={n: (*by_rule.get(n, ()), *pinned.get(n, ())) for n in {*read, *damage.ids}},
        plans=plans,
        sealed=sealed,
        jobs=jobs,
        names=named,
        tombstones=tombstones,
        stillborn=_stillborn(objects, lines, settled),
        damage=damage,
        now_ms=now,
    )


def is_final(tombstone: TombstoneRecord | None) -> bool:
    """Whether a tombstone was confirmed."""
    return tombstone is not None and tombstone.confirmed


def _read_open_timelines(
    coordinator: CheckpointCoordinator,
) -> Standing:
    """Newest entries of timelines that are not closed, their open plans, and the candidates sealed for these plans.

    Also the errors of timelines whose newest entry is damaged.
    """
    unread: dict[str, CorruptObjectError] = {}
    heads: dict[str, Checkpoint | Genesis] = {}
    plans: dict[str, CheckpointPlan] = {}
    sealed: dict[str, tuple[StateHandle, ...]] = {}
    for name in _names(coordinator):
        try:
            head = coordinator.head(name)
        except NotFoundError:  # an import has planned its first checkpoint, but not completed it
            head = Head(timeline=name, sequence=0, entry=None)
        except CorruptObjectError as error:
            unread[name] = error
            continue
        if isinstance(head.entry, Closing):
            continue
        if head.entry is not None:
            heads[name] = head.entry
        found = coordinator.next_plan(head)
        if isinstance(found, OpenPlan | SealedPlan):
            plans[name] = found.plan
        if isinstance(found, SealedPlan):
            sealed[name] = tuple(h for a in found.sealed.acks for h in (a.handle, a.dead_letters, *a.sinks))
    return heads, plans, sealed, unread


def _settled(objects: Objects) -> int | None:
    """Number of the newest erasure if none is open; None while an erasure may be revising manifests."""
    erasures = Erasures(objects)
    return None if erasures.open() else erasures.newest()


def _stillborn(objects: Objects, lines: Lines, settled: int | None) -> frozenset[str]:
    """Timelines whose parent was revised before their genesis was put; empty while an erasure may be revising."""
    revisions = {c.id: c.revision for c in lines.all()}
    found = [
        n for n, g in lines.geneses.items() if g.is_behind(revisions.get(g.parent, 0), revisions.get(g.sinks_of, 0))
    ]
    return frozenset(found) if found and settled is not None and settled == Erasures(objects).newest() else frozenset()


def _names(coordinator: CheckpointCoordinator) -> list[str]:
    """Every timeline, including those that have only a plan."""
    # A store that is far away lists the folders alone. Not by `isinstance`, as in `stamps_of`.
    folders: Callable[[str], Iterable[str]] | None = getattr(coordinator.objects.store, "folders", None)
    listed = (key.split("/")[1] for key in coordinator.objects.list("plans/")) if folders is None else folders("plans/")
    planned = set(listed)
    return sorted({keys.FIRST_TIMELINE, *planned, *coordinator.timelines.names()})


def _lines(
    coordinator: CheckpointCoordinator, tombstones: Mapping[str, TombstoneRecord]
) -> tuple[Lines, dict[str, CorruptObjectError]]:
    """The entries that can be read, and the errors of damaged ones, by key."""
    gone = {record.place for record in tombstones.values() if record.confirmed}
    names_gone = {name for name, record in tombstones.items() if record.confirmed}
    checkpoints: dict[str, list[ManifestLine]] = {}
    geneses: dict[str, Genesis] = {}
    closings: dict[str, Closing] = {}
    bad: dict[str, CorruptObjectError] = {}
    for entry in coordinator.index.entries(coordinator.objects, gone, bad.__setitem__):
        if isinstance(entry, Genesis):
            geneses[entry.timeline] = entry
        elif isinstance(entry, Closing):
            closings[entry.timeline] = entry
        elif entry.name not in names_gone:
            checkpoints.setdefault(entry.timeline, []).append(entry)
    return Lines(checkpoints=checkpoints, geneses=geneses, closings=closings), bad


def _of_genesis(genesis: Genesis) -> tuple[StateHandle, ...]:
    sinks = (table.handle for table in genesis.sinks.values())
    return (*genesis.handles.values(), *genesis.dead_letters.values(), *sinks, *genesis.left_behind.values())


def _of_plan(plan: CheckpointPlan) -> tuple[StateHandle, ...]:
    sinks = (table.handle for table in plan.sinks.values())
    return (*plan.handles.values(), *plan.dead_letters.values(), *sinks, *plan.left_behind.values())


def _of_record(record: CompactionRecord) -> Holder:
    why = (f"compaction {record.job}, which the next checkpoint of timeline {record.timeline} may adopt",)
    return Holder(name=f"compaction {record.job}", why=why, handles=(record.output,))
