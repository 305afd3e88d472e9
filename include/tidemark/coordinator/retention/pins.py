"""Pins keep a checkpoint whatever the rule says: savepoints, timelines, plans, jobs, and rows that are not sent yet."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.loop import list_undelivered
from tidemark.coordinator.plans.sink_inputs import SentRecords
from tidemark.coordinator.records.hold_records import Holds
from tidemark.coordinator.records.objects import Objects
from tidemark.coordinator.records.publication_steps import PublicationSteps
from tidemark.coordinator.recovery.savepoint_references import needed_by
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.coordinator.retention.damage import UNHARMED, DamagedManifests
from tidemark.coordinator.retention.open_jobs import OpenJobs
from tidemark.coordinator.retention.stored_rule import Lines
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.sink_traits import traits_of
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.model.retention.savepoint import SavepointRecord

Pin = tuple[int, str]
"""Id of a checkpoint, and the reason that pins it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The savepoints of a pipeline.

    Attributes:
        pins: ids that they pin, each with the savepoint in words.
        expired: savepoints that have expired and that nothing needs: a sweep disposes of them.
        void: savepoints that name a released checkpoint: their maker came too late and died before it could notice.
    """

    pins: tuple[Pin, ...]
    expired: tuple[SavepointRecord, ...]
    void: tuple[SavepointRecord, ...]


def names(
    coordinator: CheckpointCoordinator, released: frozenset[int], now_ms: int, damage: DamagedManifests = UNHARMED
) -> Names:
    """Reads savepoints and holds."""
    held = Holds(coordinator.objects).all()
    pins, expired, void = list[Pin](), list[SavepointRecord](), list[SavepointRecord]()
    for record in Savepoints(coordinator).list():
        pin = f"savepoint {record.name}"
        if record.checkpoint in released:
            void.append(record)
        elif record.name in held:
            pins.append((record.checkpoint, f"{pin}, under a legal hold"))
        elif not record.is_expired(now_ms):
            pins.append((record.checkpoint, pin))
        elif damage.manifests:
            pins.append((record.checkpoint, f"{pin}, which has expired; whether something needs it cannot be read"))
        elif needed_by(coordinator, record):
            pins.append((record.checkpoint, f"{pin}, which has expired but is needed"))
        else:
            expired.append(record)
    return Names(pins=tuple(pins), expired=tuple(expired), void=tuple(void))


def pins_of_timelines(lines: Lines, plans: Mapping[str, CheckpointPlan]) -> Iterator[Pin]:
    """The checkpoints that timelines and plans need.

    A timeline needs the checkpoint it began at until it has a checkpoint of its own (Flink's rule for NO_CLAIM). A fork
    that repeats recorded checkpoints is compared with them and needs its own beginning until it is live. A restore that
    continues the live sinks also needs the checkpoint of these sinks; if that one was released first, the restore was
    refused and needs nothing.
    """
    known = {c.id for c in lines.all()}
    for name in lines.names:
        genesis, own = lines.geneses.get(name), lines.checkpoints.get(name, ())
        if genesis is not None and is_newborn(lines, name) and genesis.sinks_of in {0, *known}:
            yield genesis.parent, f"timeline {name}, which began there and has no checkpoint of its own"
            if genesis.sinks_of:
                yield genesis.sinks_of, f"timeline {name}, whose sinks continue from there"
        if genesis is not None and own and name in lines.forks and own[-1].repeats is not None:
            yield genesis.parent, f"backfill {name}, which began there"
            yield own[-1].repeats, f"backfill {name}, which is compared with it"
    for plan in plans.values():
        if plan.parent is not None:
            yield plan.parent, f"{plan.name}, which is in progress"


def pins_of_drains(heads: Mapping[str, Checkpoint | Genesis]) -> Iterator[Pin]:
    """The parents of heads that have drained their timelines: to continue is a restore to them."""
    for name, head in heads.items():
        if isinstance(head, Checkpoint) and head.plan.drains and head.plan.parent is not None:
            yield head.plan.parent, f"timeline {name}, which {head.plan.name} has drained"


def is_newborn(lines: Lines, timeline: str) -> bool:
    """Whether a timeline is open and has no checkpoint of its own, not even a released one."""
    return timeline not in lines.closings and timeline in lines.geneses and not lines.checkpoints.get(timeline)


def pins_of_jobs(jobs: OpenJobs) -> Iterator[Pin]:
    """The checkpoints that open jobs read."""
    overdue = {job.job for job in jobs.overdue}
    for name in sorted(jobs.open - overdue):
        job = jobs.known[name]
        if job.kind == "erasure":
            continue  # it reads all of them, and searches again if one was released
        yield job.checkpoint, f"{job.kind} {name}, which is open"


def pins_of_publications(objects: Objects) -> Iterator[Pin]:
    """The checkpoints that targets of publications have, or are being brought to."""
    steps = PublicationSteps(objects)
    for name, begun in steps.standing().items():
        yield begun.checkpoint, f"publication {name}, which continues from there"
        if begun.before and steps.done(begun) is None:
            yield begun.before, f"publication {name}, which is bringing its target from there to another one"


def pins_of_deliveries(
    coordinator: CheckpointCoordinator, lines: Lines, damage: DamagedManifests = UNHARMED
) -> Iterator[Pin]:
    """Checkpoints whose rows must still be sent to Kafka; for forks, also those whose rows a promote may send.

    Rows after a damaged manifest of the live timeline cannot be sent anyway.
    """
    newest = [found[-1] for found in lines.checkpoints.values() if found]
    if all(traits_of(kind).is_transactional for c in newest for kind in c.sinks):
        return
    for due in () if lines.once_live[-1] in damage.timelines else list_undelivered(coordinator):
        yield due.checkpoint.id, f"sink {due.table.name}, which has yet to send its rows"
    for name in lines.forks:
        for found in lines.checkpoints.get(name, ()):
            if found.sends:
                yield found.id, _may_send(name)
        yield from _pins_below(coordinator, lines.geneses.get(name))


def _pins_below(coordinator: CheckpointCoordinator, genesis: Genesis | None) -> Iterator[Pin]:
    """Undelivered checkpoints among the ancestors of a fork, whose timelines may be closed."""
    if genesis is not None:
        timelines = coordinator.timelines
        line = timelines.ancestry(timelines.checkpoint(genesis.parent))
        for due in SentRecords(timelines).list_undelivered(genesis, line, dict):
            if not due.is_gone:
                yield due.checkpoint.id, _may_send(genesis.timeline)


def _may_send(fork: str) -> str:
    return f"fork {fork}, which may be promoted and send its rows"


def collect_reasons(pins: Sequence[Pin]) -> dict[int, tuple[str, ...]]:
    """All reasons of each checkpoint, without duplicates."""
    found: dict[int, dict[str, None]] = defaultdict(dict)
    for number, why in pins:
        found[number][why] = None
    return {number: tuple(whys) for number, whys in found.items()}


def genesis_names(genesis: Genesis) -> str:
    """The name of a timeline without checkpoints, as a holder."""
    return f"timeline {genesis.timeline}"
