"""What retention keeps for nobody under `keep_last(1)`, found without its survey: checkpoints, and files."""

from collections.abc import Collection, Iterator

from tests.support.retention import MemoryRetentionPipeline
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.loop import list_undelivered
from tidemark.coordinator.plans.inputs import adopt
from tidemark.coordinator.records.states import OpenPlan, SealedPlan
from tidemark.coordinator.records.timeline_tree import Branch, branches
from tidemark.coordinator.records.tombstones import of_checkpoints
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.checkpoint.store_objects import CompactionRecord, Genesis, JobRecord


def orphans(c: CheckpointCoordinator, promised: Collection[str]) -> list[str]:
    """Timelines that are neither live nor closed, and that nobody was promised."""
    return [b.timeline for b in _open(c) if not b.is_live and b.timeline not in promised and b.genesis is not None]


def leaks(retained: MemoryRetentionPipeline) -> list[str]:
    """Checkpoints that nothing needs and that were not released, and files that nothing names or may come to name."""
    c = retained.coordinator
    kept = _kept(c)
    wanted = {number for branch in _open(c) for number in _of_branch(c, branch)} | set(_pinned(c)) | _newest(c, kept)
    found = [f"kept for nobody: chk-{x.id}" for x in kept if x.id not in wanted]
    needed = {path for x in kept for path in retained.named(x)} | set(_results(retained))
    folders = tuple(_folders(c)) or ("-",)
    left = sorted(p for p in retained.data() - needed if not p.split("/")[-2].startswith(folders))
    return [*found, *(f"needed by nobody, and there: {path}" for path in left)]


def _kept(c: CheckpointCoordinator) -> list[Checkpoint]:
    gone = {name for name, tombstone in of_checkpoints(c.objects).items() if tombstone.confirmed}
    return [x for x in c.timelines.all() if x.plan.name not in gone]


def _open(c: CheckpointCoordinator) -> list[Branch]:
    return [b for b in branches(c.timelines) if b.closing is None]


def _of_branch(c: CheckpointCoordinator, branch: Branch) -> Iterator[int]:
    """What an open timeline needs: its newest checkpoint, or what it began with, and what it is working on."""
    if branch.newest is not None:
        yield branch.newest.id
    elif branch.genesis is not None:
        yield branch.genesis.parent
        yield branch.genesis.sinks_of
    found = c.open_plan(branch.timeline)
    if isinstance(found, OpenPlan | SealedPlan) and found.plan.parent is not None:
        yield found.plan.parent
    if not branch.is_live:
        yield from _may_send(c, branch)


def _may_send(c: CheckpointCoordinator, fork: Branch) -> Iterator[int]:
    """What a promote of a fork may ask for: what it emitted, and what waits of the checkpoints below it."""
    everything, delivered = {x.id: x for x in c.timelines.all()}, set(c.objects.list("deliveries/"))
    yield from (x.id for x in everything.values() if x.plan.slot.timeline == fork.timeline and _emitted(x))
    below = fork.genesis.parent if fork.genesis is not None else None
    while below is not None:
        if {keys.delivery_key(name, below) for name in _emitted(everything[below])} - delivered:
            yield below
        below = everything[below].plan.parent


def unsent(c: CheckpointCoordinator) -> list[Checkpoint]:
    """What the live timeline has emitted itself, and has yet to send."""
    delivered, live = set(c.objects.list("deliveries/")), c.timelines.live()
    mine = [x for x in c.timelines.all() if x.plan.slot.timeline == live]
    return [x for x in mine if {keys.delivery_key(name, x.id) for name in _emitted(x)} - delivered]


def _emitted(x: Checkpoint) -> list[str]:
    """The Kafka sinks that a checkpoint emitted to."""
    acks = {ack.uid: ack for ack in x.sealed.acks}
    return [t.name for uid, t in x.sinks.items() if t.kind == "kafka" and acks[uid].emitted]


def _pinned(c: CheckpointCoordinator) -> Iterator[int]:
    yield from (record.checkpoint for record in Savepoints(c).list() if not record.disposed)
    yield from (due.checkpoint.id for due in list_undelivered(c))
    yield from (job.checkpoint for job in _jobs(c))


def _newest(c: CheckpointCoordinator, kept: list[Checkpoint]) -> set[int]:
    """The newest of all that were ever live, by logical time."""
    once = {"t1", *(closing.successor for closing in c.timelines.closings())}
    of_live = [(x.plan.logical_time_ms, x.id) for x in kept if x.plan.slot.timeline in once]
    return {max(of_live)[1]} if of_live else set()


def _jobs(c: CheckpointCoordinator) -> Iterator[JobRecord]:
    """Jobs that never said that they are over, and may still come to something."""
    listed = set(c.objects.list("jobs/"))
    done = {key.rpartition("/")[2].removesuffix(".json") for key in c.objects.list("compactions/")}
    kept = {x.id: x for x in _kept(c)}
    for key in sorted(listed):
        job = None if key.endswith(".end.json") else c.objects.read(JobRecord, key)
        if job is None or job.job in done or keys.job_end_key(job.job) in listed:
            continue
        if job.kind != "compaction" or job.checkpoint in kept and _is_prefix(c, kept[job.checkpoint], job.uid):
            yield job


def _is_prefix(c: CheckpointCoordinator, read: Checkpoint, uid: str) -> bool:
    """Whether the timeline of a checkpoint still goes on from what a compaction has read."""
    head = c.head(read.plan.slot.timeline).entry
    if not isinstance(head, Checkpoint | Genesis):
        return False
    there, read_handle = _handle(head, uid), _handle(read, uid)
    return there is not None and read_handle is not None and there.has_prefix(read_handle)


def _results(retained: MemoryRetentionPipeline) -> Iterator[str]:
    """Files of compactions that the next plan of an open timeline may adopt."""
    c = retained.coordinator
    for key in c.objects.list("compactions/"):
        record = c.objects.read(CompactionRecord, key)
        assert record is not None
        head = c.head(record.timeline).entry
        handle = _handle(head, record.uid) if isinstance(head, Checkpoint | Genesis) else None
        if handle is not None and adopt(handle, record) not in (None, handle):
            yield from _files(retained, record.output)


def _handle(entry: Checkpoint | Genesis, owner: str) -> StateHandle | None:
    """What compactions of an owner read: state of a uid, `<uid>~dead_letters`, `<sink>~sinks` or `<sink>~outbox`."""
    name, _, kind = owner.partition("~")
    if not kind:
        return entry.handles.get(name)
    if kind == "dead_letters":
        of_acks = {a.uid: a.dead_letters for a in entry.sealed.acks} if isinstance(entry, Checkpoint) else {}
        return {**of_acks, **(entry.dead_letters if isinstance(entry, Genesis) else {})}.get(name)
    return next((t.handle for t in entry.sinks.values() if t.name == name and f"/{kind}/" in t.path), None)


def _files(retained: MemoryRetentionPipeline, handle: StateHandle) -> Iterator[str]:
    for segment in handle:
        yield from retained.of_version(segment)


def _folders(c: CheckpointCoordinator) -> Iterator[str]:
    """What may still be written or committed: the folders of open plans and of open jobs."""
    for branch in _open(c):
        found = c.open_plan(branch.timeline)
        if isinstance(found, OpenPlan | SealedPlan):
            yield f"{found.plan.id}."
    yield from (job.job for job in _jobs(c))
