"""Timelines: which one is live, where its head is, and which checkpoints it holds.

No pointer is stored anywhere: the live timeline is found by following closings from the first one, and a head by the
highest slot that is taken. A listing only says where to look; the slots after it are probed, so a stale listing costs
reads, never correctness.
"""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass

from tidemark.coordinator.records.objects import Objects, Series, SlotEntry
from tidemark.coordinator.records.tombstones import given_up, read_release
from tidemark.errors import ConflictError, CorruptObjectError, NotFoundError, ReleasedError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan, Slot
from tidemark.model.checkpoint.segments import owner_of
from tidemark.model.checkpoint.store_objects import Closing, CompactionRecord, Genesis, IdRecord, JobRecord, StopRecord
from tidemark.model.retention.erasure import BlockedKey, ErasureEnd, ErasureRecord, keyed_by
from tidemark.model.schema.key_groups import typed_key
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.ports import PutOutcome, StepListener, WriteIds
from tidemark.sql.resolve import names_of, stored_texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The highest taken slot of a timeline; sequence 0 and no entry if nothing was published yet.

    If the checkpoint in that slot was given up, the entry is the newest one that was not.
    """

    timeline: str
    sequence: int
    entry: SlotEntry | None

    @property
    def next_slot(self) -> Slot:
        """The slot that the next checkpoint takes."""
        return Slot(timeline=self.timeline, sequence=self.sequence + 1)

    @property
    def covered_until_ms(self) -> int | None:
        """End of the newest interval that the timeline covers."""
        return None if self.entry is None or isinstance(self.entry, Closing) else self.entry.covered_until_ms


class Timelines:
    """Reads timelines; writes nothing."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    @property
    def objects(self) -> Objects:
        """Typed access to the store."""
        return self._objects

    def live(self) -> str:
        """The live timeline: the first one, or the last successor in its chain of closings."""
        return self.live_head().timeline

    def live_head(self) -> Head:
        """The head of the live timeline."""
        heads = list(self._once_live())
        return heads[-1]

    def closings(self) -> Iterator[Closing]:
        """The closings that lead from the first timeline to the live one, in order."""
        yield from (head.entry for head in self._once_live() if isinstance(head.entry, Closing))

    def _once_live(self) -> Iterator[Head]:
        """Heads of all timelines that are or were live, the live one last."""
        seen: list[str] = []
        name = keys.FIRST_TIMELINE
        while name not in seen:
            seen.append(name)
            head = self.head(name)
            yield head
            if not isinstance(head.entry, Closing):
                return
            name = head.entry.successor
        raise CorruptObjectError(
            f"timelines close in a circle: {' → '.join([*seen, name])}",
            safe="nothing was written.",
            next="restore an older restore point into a new timeline.",
        )

    def head(self, timeline: str) -> Head:
        """Returns the head of a timeline.

        Raises:
            NotFoundError: the timeline is not the first one and has no genesis.
        """
        folder, seen = f"timelines/{timeline}/", self._objects.seen_head(timeline)
        with self._objects.ahead(_around(timeline, seen) if seen else (), [folder] if seen else ()):
            sequence = self._objects.greatest(folder)
            # The listing may be newer than the slots read with it, and its highest slot seem free there.
            is_fresh = seen and sequence == seen
            with nullcontext() if is_fresh else self._objects.ahead(_around(timeline, sequence)):
                entry = self.entry_at(timeline, sequence)
                while (later := self._objects.slot(timeline, sequence + 1)) is not None:
                    sequence, entry = sequence + 1, later
        self._objects.see_head(timeline, sequence)
        if entry is None and timeline != keys.FIRST_TIMELINE:
            raise NotFoundError(
                f"no timeline {timeline!r}", next=f"tidemark timeline list {self._objects.pipeline}    (lists them)."
            )
        taken = entry is not None or given_up(self._objects, keys.slot_key(timeline, sequence)) is not None
        return Head(timeline=timeline, sequence=sequence if taken else 0, entry=entry)

    def entry(self, timeline: str, sequence: int) -> SlotEntry | None:
        """The entry of a slot; None if the slot is free, its number is 0, or its checkpoint was given up."""
        try:
            return self._objects.slot(timeline, sequence) if sequence else None
        except CorruptObjectError:
            if given_up(self._objects, keys.slot_key(timeline, sequence)) is None:
                raise
            return None

    def entry_at(self, timeline: str, sequence: int) -> SlotEntry | None:
        """The entry that a timeline had reached at a slot: its entry, or the one before if it was given up."""
        for place in range(sequence, 0, -1):
            entry = self.entry(timeline, place)
            if entry is not None or given_up(self._objects, keys.slot_key(timeline, place)) is None:
                return entry
        return None

    def chain(self, timeline: str) -> Iterator[Checkpoint]:
        """The completed checkpoints of a timeline, newest first, then those of its ancestors."""
        newest = self._newest(self.head(timeline))
        if newest is not None:
            yield from self.ancestry(newest)

    def holds(self, timeline: str, checkpoint: Checkpoint) -> bool:
        """Whether a checkpoint is part of `chain`, decided by where timelines begin."""
        name, last = timeline, checkpoint.id
        while name != checkpoint.plan.slot.timeline or checkpoint.id > last:
            genesis = self.entry(name, 1)
            if not isinstance(genesis, Genesis):
                return False
            name, last = genesis.parent_timeline, genesis.parent
        return True

    def as_of(self, timeline: str, when_ms: int) -> Checkpoint | None:
        """The newest checkpoint of a timeline whose logical time is not after `when_ms`; None if there is none."""
        return next((found for found in self.chain(timeline) if found.plan.logical_time_ms <= when_ms), None)

    def newest_until(self, timeline: str, sequence: int, when_ms: int, known: int = 0) -> int:
        """The id of the newest checkpoint whose logical time is not after `when_ms`, without reading the whole chain.

        Logical time never decreases on a timeline.

        Args:
            timeline: the timeline.
            sequence: the last slot to look at.
            when_ms: the time.
            known: id of a checkpoint of the chain that is not later; 0 if none is known.

        Returns:
            0 if there is none.
        """
        first = None if not known else self.find(known)
        is_here = first is not None and first.plan.slot.timeline == timeline
        low = min(first.plan.slot.sequence, sequence) if first is not None and is_here else 0
        step = 1
        while low < sequence:
            place = min(low + step, sequence)
            if _logical_time(self.entry_at(timeline, place)) <= when_ms:
                low, step = place, 2 * step
            elif place == low + 1:
                break
            else:
                sequence, step = place - 1, 1
        entry = self.entry_at(timeline, low)
        if isinstance(entry, Checkpoint):
            return entry.id
        genesis = self.entry_at(timeline, 1)
        if not isinstance(genesis, Genesis):
            return 0
        parent = self._nearest(genesis.parent)
        return 0 if parent is None else self.newest_until(*_place(parent), when_ms, known)

    def ancestry(self, checkpoint: Checkpoint) -> Iterator[Checkpoint]:
        """A completed checkpoint and its ancestors, newest first."""
        found: Checkpoint | None = checkpoint
        while found is not None:
            yield found
            found = self._nearest(found.plan.parent)

    def shared_ancestor(self, one: Checkpoint, other: Checkpoint) -> int:
        """Id of the newest checkpoint that both descend from, or are; 0 if none is left."""
        while one.id != other.id:
            older, newer = sorted((one, other), key=lambda c: c.id)
            found = None if newer.plan.parent is None else self.find(newer.plan.parent)
            if found is None:
                return 0
            one, other = older, found
        return one.id

    def checkpoint(self, checkpoint_id: int) -> Checkpoint:
        """Returns the completed checkpoint with an id, on any timeline, released or not.

        Raises:
            NotFoundError: there is no such checkpoint, or it was never completed.
        """
        found = self.find(checkpoint_id)
        if found is None:
            raise NotFoundError(
                f"no completed checkpoint chk-{checkpoint_id}",
                next=self._list,
            )
        return found

    def find(self, checkpoint_id: int) -> Checkpoint | None:
        """Like `checkpoint`, but returns None if there is none.

        Raises:
            ReleasedError: the checkpoint's manifest is damaged, and it was given up.
        """
        record = self._objects.read(IdRecord, keys.id_key(checkpoint_id))
        if record is None:
            return None
        try:
            entry = self._objects.slot(record.slot.timeline, record.slot.sequence)
        except CorruptObjectError as error:
            gone = given_up(self._objects, keys.slot_key(record.slot.timeline, record.slot.sequence))
            if gone is None or gone.name != f"chk-{checkpoint_id}":
                raise
            raise ReleasedError(
                f"{gone.name} was given up: {gone.why}",
                safe="every checkpoint that is kept is intact; nothing was written.",
                next=f"{self._list.removesuffix('    (lists them).')}    (lists those that are kept).",
            ) from error
        return entry if isinstance(entry, Checkpoint) and entry.id == checkpoint_id else None

    def plan(self, checkpoint_id: int) -> CheckpointPlan:
        """Returns the plan with an id, completed or not.

        Raises:
            NotFoundError: the id was never planned.
        """
        record = self._objects.read(IdRecord, keys.id_key(checkpoint_id))
        found = None if record is None else self._objects.plan(record.slot)
        if found is None or found.id != checkpoint_id:
            raise NotFoundError(
                f"no plan chk-{checkpoint_id}",
                next=self._list,
            )
        return found

    def names(self) -> list[str]:
        """All timelines that hold an entry, sorted by name."""
        return [*self._objects.folders("timelines/")]

    def all(self) -> list[Checkpoint]:
        """Every completed checkpoint of every timeline, sorted by id."""
        found = [self.entry(*place) for place in keys.places(self._objects.list("timelines/"))]
        return sorted((c for c in found if isinstance(c, Checkpoint)), key=lambda c: c.id)

    def covered_by(self, timeline: str, end_ms: int) -> Checkpoint | None:
        """The first checkpoint of a timeline that covers an interval's end; None while none does."""
        covering: Checkpoint | None = None
        for found in self.chain(timeline):
            if found.covered_until_ms is None or found.covered_until_ms < end_ms:
                break
            covering = found
        return covering

    @property
    def _list(self) -> str:
        return f"tidemark checkpoint list {self._objects.pipeline}    (lists them)."

    def _newest(self, head: Head) -> Checkpoint | None:
        entry = head.entry
        if isinstance(entry, Closing):
            entry = self.entry_at(head.timeline, entry.sequence - 1)
        if isinstance(entry, Genesis):
            return self._nearest(entry.parent)
        return entry if isinstance(entry, Checkpoint) else None

    def _nearest(self, checkpoint_id: int | None) -> Checkpoint | None:
        """A checkpoint; if it was given up, the nearest ancestor that was not, found by the parents in the plans."""
        while checkpoint_id is not None:
            try:
                return self.find(checkpoint_id)
            except ReleasedError:
                checkpoint_id = self.plan(checkpoint_id).parent
        return None


def _around(timeline: str, sequence: int) -> list[str]:
    """The keys that show what a slot holds, and whether the next one is free."""
    newest = [keys.slot_key(timeline, sequence), keys.revision_key(timeline, sequence, 1)] if sequence else []
    return [*newest, keys.slot_key(timeline, sequence + 1)]


def _logical_time(entry: SlotEntry | None) -> int:
    """The logical time at an entry; 0 where no entry is left."""
    if isinstance(entry, Checkpoint):
        return entry.plan.logical_time_ms
    return entry.logical_time_ms if isinstance(entry, Genesis) else 0


def _place(checkpoint: Checkpoint) -> tuple[str, int]:
    return checkpoint.plan.slot.timeline, checkpoint.plan.slot.sequence


# Stop records: while the newest one says stopped, no plan is made.
@dataclass(frozen=True, slots=True)
class Stops:
    """Reads stop records; `coordinator.recovery.stop_and_resume` writes them."""

    objects: Objects

    @property
    def series(self) -> Series[StopRecord]:
        """All stop records, numbered."""
        return Series(self.objects, StopRecord, "stops/", keys.stop_key)

    def current(self) -> StopRecord | None:
        """The stop that is in effect; None if plans may be made."""
        _, found = self.series.newest()
        return found if found is not None and found.stopped else None


# What a plan reads in most cases, so that it can be read at the same time where a round trip is long (adr/0068).
#
# A wrong guess costs a request, or a round trip: whatever is not named here is read when it is needed.
Upcoming = tuple[list[str], list[str]]
"""Keys, and folders to list."""


def read_before_id(uids: Iterable[str], head: Head) -> Upcoming:
    """Returns the reads between a head and the put of the next plan's id.

    Args:
        uids: the operators.
        head: the head that the plan builds on.
    """
    compacted = [f"compactions/{uid}/" for uid in uids]
    if isinstance(head.entry, Checkpoint):
        rows = [*(ack.dead_letters for ack in head.entry.sealed.acks), *(t.handle for t in head.entry.sinks.values())]
        compacted += [f"compactions/{owner_of(segment.path)}/" for handle in rows for segment in handle]
    return [keys.plan_key(head.next_slot), keys.stop_key(1)], ["stops/", *compacted, "ids/"]


def read_behind_head(schemas: Iterable[OperatorSchema], requests_seen: int) -> Upcoming:
    """Returns the reads between a head and the put of the plan, during which the plan's id is put.

    Args:
        schemas: of the plan's operators, which name the texts of SQL.
        requests_seen: number of the newest request for a redrive that the plan's parent has seen.
    """
    texts = [keys.query_key(name) for schema in schemas for name in names_of(stored_texts(schema)).values()]
    return [keys.redrive_key(requests_seen + 1), keys.erasure_key(1), *texts], ["erasures/"]


# Writes a plan: allocates its id, puts the texts of SQL that it names, then puts the plan itself.
@dataclass(frozen=True, slots=True, kw_only=True)
class Freezer:
    """Puts plans and the objects that they need.

    Attributes:
        objects: the store.
        write_ids: ids that distinguish this process's put from an equal one of another process.
        listener: called at steps `ids`, `queries` and `plan`.
    """

    objects: Objects
    write_ids: WriteIds
    listener: StepListener

    def take_id(self, slot: Slot, least: int) -> int:
        """Allocates a checkpoint id of at least `least` for the plan of a slot. An unused id is never used again."""
        number = max(least, keys.greatest(self.objects.list("ids/")) + 1)
        self.listener("ids", "before")
        while True:
            record = IdRecord(id=number, slot=slot, write_id=self.write_ids())
            if self.objects.put(keys.id_key(number), record) is PutOutcome.WON:
                self.listener("ids", "after")
                return number
            number += 1

    def freeze(self, draft: CheckpointPlan) -> PutOutcome:
        """Puts a plan into its slot, unless the slot has one.

        The texts that the plan names are put first, so that every reader of the plan or its manifest finds them.
        """
        self.listener("queries", "before")
        for schema in draft.schemas.values():
            for text in stored_texts(schema).values():
                self.objects.put_text(keys.query_key, text)
        self.listener("queries", "after")
        self.listener("plan", "before")
        outcome = self.objects.put(keys.plan_key(draft.slot), draft)
        self.listener("plan", "after")
        return outcome


# Records of erasures: which keys are blocked, and which plans and results are outdated by a revision (ADR 0015).
@dataclass(frozen=True, slots=True)
class Erasures:
    """Reads the records of erasures; `coordinator.retention.key_erasure` writes them."""

    objects: Objects

    @property
    def series(self) -> Series[ErasureRecord]:
        """All erasures, numbered."""
        return Series(self.objects, ErasureRecord, "erasures/", keys.erasure_key)

    def newest(self) -> int:
        """Number of the newest erasure; 0 if there is none."""
        return self.series.newest()[0]

    def get(self, number: int) -> ErasureRecord | None:
        """One erasure by its number."""
        return self.objects.read(ErasureRecord, keys.erasure_key(number))

    def has_ended(self, number: int) -> bool:
        """Whether the erasure has ended, because its key was found nowhere any more."""
        return self.objects.read(ErasureEnd, keys.erasure_end_key(number)) is not None

    def open(self) -> list[ErasureRecord]:
        """Erasures that have not ended, oldest first."""
        return [record for record in self.until(self.newest()) if not self.has_ended(record.number)]

    def until(self, number: int) -> list[ErasureRecord]:
        """Erasures up to a number, oldest first, without those that were removed by hand."""
        found = (self.get(n) for n in range(1, number + 1))
        return [record for record in found if record is not None]

    def blocked_keys(self, plan: CheckpointPlan) -> tuple[BlockedKey, ...]:
        """The blocked keys that the records of a plan are compared with."""
        return tuple(
            BlockedKey(
                uid=uid,
                key=typed_key(keyed_by(plan.schemas[uid], record.columns), record.key),
                ends=record.ends_of(plan.topic_ids),
                columns=tuple(name for name, _ in record.columns),
            )
            for record in self.until(plan.erasures)
            for uid in record.uids
            if uid in plan.schemas
        )


def is_outdated(objects: Objects, plan: CheckpointPlan) -> bool:
    """Whether a plan is based on a state that was revised since, so that it must be made again."""
    return is_behind(plan, Timelines(objects).entry_at(plan.slot.timeline, plan.slot.sequence - 1))


def is_behind(plan: CheckpointPlan, before: SlotEntry | None) -> bool:
    """Whether the entry before a plan's slot was revised since the plan was made; see `is_outdated`."""
    revision = 0 if before is None or isinstance(before, Closing) else before.revision
    return revision != plan.parent_revision


def revision_of(objects: Objects, checkpoint: int) -> int:
    """How often the manifest of a checkpoint was revised; 0 if it has no manifest."""
    found = Timelines(objects).find(checkpoint)
    return 0 if found is None else found.revision


def is_stillborn(objects: Objects, genesis: Genesis) -> bool:
    """Whether a timeline began with a manifest that had been revised, unnoticed by the process that began it."""
    # An erasure revises a genesis before its parent.
    sinks = revision_of(objects, genesis.sinks_of) if genesis.sinks_of else 0
    return genesis.is_behind(revision_of(objects, genesis.parent), sinks)


def refuse_stillborn(objects: Objects, genesis: Genesis) -> None:
    """Refuses a timeline that began with an outdated manifest. Called after its genesis is written, and by plans.

    Raises:
        ConflictError: a key was erased from the parent while the timeline began.
    """
    if is_stillborn(objects, genesis):
        raise ConflictError(
            f"a key was erased from chk-{genesis.parent} while timeline {genesis.timeline or '(new)'} began there",
            safe="the timeline takes no checkpoint; every restore point is intact, without the key.",
            next="run the command again, with another name for the timeline.",
        )


def is_void(objects: Objects, made: CompactionRecord | JobRecord) -> bool:
    """Whether a compaction read a manifest that was revised since, so that its result must not be adopted.

    A released manifest is not revised, so it is unknown whether a key was erased from it. If any key was erased at all,
    a result made from it is not adopted either.
    """
    found = Timelines(objects).find(made.checkpoint)
    if found is None or found.revision != made.revision:
        return True
    return Erasures(objects).newest() > 0 and read_release(objects, found.plan.name) is not None
