"""Finds a key: every file that a restore point, a plan or an adoptable compaction names is searched once."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.records.states import OpenPlan, SealedPlan
from tidemark.coordinator.records.timelines import is_outdated, is_stillborn
from tidemark.coordinator.retention.root_set import Survey, collect_roots
from tidemark.errors import CorruptObjectError, StoreError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.segments import LiveFile, Segment, StateHandle
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.model.core.names import operator_of
from tidemark.model.core.offsets import OffsetCoverage, OffsetRange, TopicPartition
from tidemark.model.retention.erasure import ErasedKey, keyed_by
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.ports import KeyFiles, StateTables

Entry = Checkpoint | Genesis
_SINKS = ("sinks", "outbox")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFile:
    """A file that holds the key, and the number of its rows that do."""

    file: LiveFile
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyOccurrences:
    """The result of one search.

    Attributes:
        survey: references of the pipeline.
        uids: uids of the operator, under all names that it has had.
        schema: its stored schema; None if no checkpoint names it. That of a FlatMap has the columns that hold the key.
        entries: restore points: kept checkpoints, and timelines without a checkpoint of their own; newest first.
        files: the files that hold the key, by table and path.
        by_entry: per name of a restore point, the tables and paths of its files that hold the key.
        plans: open and sealed plans made without the block list of an erasure, by name of their timeline.
        unseen: whether a plan, or a compaction that may be adopted, names the key.
        heads: ids of the newest checkpoints of timelines that are not closed.
    """

    survey: Survey
    uids: frozenset[str]
    schema: OperatorSchema | None
    entries: tuple[Entry, ...]
    files: Mapping[str, Mapping[str, HeldFile]]
    by_entry: Mapping[str, tuple[tuple[str, str], ...]]
    unseen: bool
    heads: frozenset[int]

    @property
    def is_clean(self) -> bool:
        """Whether no file holds the key."""
        return not self.files and not self.unseen

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Per partition, the furthest offset that was read or is planned to be read."""
        found: dict[TopicPartition, int] = {}
        for plan in self._read:
            for tp, end in plan.ranges.ends.items():
                found[tp] = max(end, found.get(tp, end))
        return found

    @property
    def reached(self) -> OffsetCoverage:
        """All offsets up to `ends`, by topic id: a topic may have been recreated, and forks may read the old one."""
        found: dict[TopicPartition, int] = {}
        for plan in self._read:
            for tp, end in plan.ranges.ends.items():
                by_id = TopicPartition(plan.topic_ids[tp.topic], tp.partition)
                found[by_id] = max(end, found.get(by_id, end))
        return OffsetCoverage({tp: (OffsetRange(0, end),) for tp, end in sorted(found.items()) if end})

    @property
    def _read(self) -> list[CheckpointPlan]:
        return [e.plan for e in self.entries if isinstance(e, Checkpoint)] + list(self.survey.plans.values())


@dataclass(kw_only=True)
class Searcher:
    """Searches for one key; each file is read once, however often it is searched.

    Attributes:
        coordinator: of the pipeline.
        tables: tables of the pipeline.
        files: files of the tables.
        uid: uid of the operator.
        key: values of its key columns.
        columns: of a FlatMap, name and SQL type of the columns of its rows that hold the key.
    """

    coordinator: CheckpointCoordinator
    tables: StateTables
    files: KeyFiles
    uid: str
    key: tuple[object, ...]
    columns: tuple[tuple[str, str], ...] = ()
    _held: dict[tuple[str, str], int] = field(default_factory=dict)
    _operators: dict[str, str] = field(default_factory=dict)
    _numbers: set[int] = field(default_factory=set)
    _segments: dict[Segment, tuple[LiveFile, ...]] = field(default_factory=dict)

    def search_keys(self) -> KeyOccurrences:
        """Searches everywhere; writes nothing.

        Raises:
            CorruptObjectError, StoreError: as in `collect_roots`, or a file cannot be read.
        """
        survey = collect_roots(self.coordinator, None)
        for bad in survey.damage.manifests:
            raise CorruptObjectError(
                f"{bad.name} may hold the key, and {bad.why}",
                safe="nothing was written.",
                next=f"restore it from a backup, or tidemark checkpoint give-up {self.coordinator.name} {bad.name}",
            )
        entries = tuple(_entries(self.coordinator, survey))
        for at in (*(e.plan if isinstance(e, Checkpoint) else e for e in entries), *survey.plans.values()):
            self._operators |= {output: operator_of(output, at.schemas) for output in at.sinks}
        uids = _family(self.uid, survey)
        for at in (*(e.plan if isinstance(e, Checkpoint) else e for e in entries), *survey.plans.values()):
            self._numbers |= {at.schemas[uid].key_groups for uid in uids if uid in at.schemas}
        stored = _schema_of(uids, entries)
        schema = None if stored is None else keyed_by(stored, self.columns)
        files: dict[str, dict[str, HeldFile]] = {}
        by_entry: dict[str, tuple[tuple[str, str], ...]] = {}
        for entry in entries:
            held = self._held_by(entry, schema, uids)
            by_entry[name_of(entry)] = tuple(sorted((table, path) for table, path in held))
            for (table, path), found in held.items():
                files.setdefault(table, {})[path] = found
        others = list(_unpublished(survey, uids))
        return KeyOccurrences(
            survey=survey,
            uids=uids,
            schema=schema,
            entries=entries,
            files=files,
            by_entry={name: held for name, held in by_entry.items() if held},
            unseen=bool(self._in(schema, uids, others)),
            heads=frozenset(
                own[-1].id for n, own in survey.lines.checkpoints.items() if own and n not in survey.lines.closings
            ),
        )

    def files_of(self, segment: Segment) -> tuple[LiveFile, ...]:
        """The files of a segment; listed once."""
        if segment not in self._segments:
            self._segments[segment] = tuple(self.tables.files_of(segment))
        return self._segments[segment]

    def erased_key(self, schema: OperatorSchema, uids: frozenset[str]) -> ErasedKey:
        """The key as rows hold it; `uids` are the names of the operator. Rows of its sinks name its outputs."""
        outputs = (output for output, uid in self._operators.items() if uid in uids)
        return ErasedKey.of(schema, self.key, uids.union(outputs), self._numbers)

    def _held_by(
        self, entry: Entry, schema: OperatorSchema | None, uids: frozenset[str]
    ) -> dict[tuple[str, str], HeldFile]:
        try:
            return self._in(schema, uids, reached_handles(entry, uids))
        except StoreError:
            if isinstance(entry, Genesis) and is_stillborn(self.coordinator.objects, entry):
                return {}  # the timeline was begun too late, its files are gone
            raise

    def _in(
        self, schema: OperatorSchema | None, uids: frozenset[str], handles: Iterable[StateHandle]
    ) -> dict[tuple[str, str], HeldFile]:
        """The files of handles that hold the key, by table and path."""
        found: dict[tuple[str, str], HeldFile] = {}
        for segment in dict.fromkeys(s for handle in handles for s in handle):
            for f in self.files_of(segment):
                at = (segment.path, f.path)
                if at not in self._held and schema is not None:
                    self._held[at] = self.files.rows_of(segment.path, f, self.erased_key(schema, uids))
                if self._held.get(at):
                    found[at] = HeldFile(file=f, rows=self._held[at])
        return found


def name_of(entry: Entry) -> str:
    """`chk-3`; for a timeline without a checkpoint of its own `timeline t2`."""
    return entry.plan.name if isinstance(entry, Checkpoint) else f"timeline {entry.timeline}"


def handles_of(entry: Entry | CheckpointPlan) -> Iterator[tuple[str, StateHandle]]:
    """The state that a restore point or a plan names, by uid, including state that it has left behind."""
    if isinstance(entry, Checkpoint):
        yield from ((a.uid, a.handle) for a in entry.sealed.acks)
        yield from entry.plan.left_behind.items()
    else:
        yield from entry.handles.items()
        yield from entry.left_behind.items()


def all_handles_of(entry: Entry) -> Iterator[StateHandle]:
    """Everything that a restore point holds: state, dead letters and sinks.

    Outboxes of sinks that are no longer declared are not: their rows belong to the checkpoints that wrote them.
    """
    yield from (handle for _, handle in handles_of(entry))
    yield from (handle for _, handle in _letters_of(entry))
    yield from _sinks_of(entry)


def reached_handles(entry: Entry | CheckpointPlan, uids: Collection[str]) -> Iterator[StateHandle]:
    """Everything that may hold a key of an operator: its state, its dead letters, and every sink.

    A sink may have belonged to another operator; each of its rows names its own.
    """
    yield from (handle for uid, handle in (*handles_of(entry), *_letters_of(entry)) if uid in uids)
    yield from _sinks_of(entry)


def _letters_of(entry: Entry | CheckpointPlan) -> Iterator[tuple[str, StateHandle]]:
    if isinstance(entry, Checkpoint):
        return ((a.uid, a.dead_letters) for a in entry.sealed.acks)
    return iter(entry.dead_letters.items())


def _sinks_of(entry: Entry | CheckpointPlan) -> Iterator[StateHandle]:
    if isinstance(entry, Checkpoint):
        yield from (sink for ack in entry.sealed.acks for sink in ack.sinks)
    else:
        yield from (table.handle for table in entry.sinks.values())


def list_waiting_plans(
    coordinator: CheckpointCoordinator, survey: Survey, erasure: int
) -> Iterator[OpenPlan | SealedPlan]:
    """Open or sealed plans made without the block list of an erasure, or from a state that it has revised since."""
    for plan in survey.plans.values():
        if plan.erasures >= erasure and not is_outdated(coordinator.objects, plan):
            continue
        found = coordinator.state(plan)
        if isinstance(found, OpenPlan | SealedPlan):
            yield found


def _entries(coordinator: CheckpointCoordinator, survey: Survey) -> Iterator[Entry]:
    for line in reversed(survey.lines.all()):
        found = coordinator.objects.slot(line.timeline, line.sequence)
        assert isinstance(found, Checkpoint)  # noqa: S101  (for the type checker; the entry of a slot never changes)
        yield found
    yield from (g for name in sorted(survey.lines.geneses) if (g := survey.newborn(name)) is not None)


def _unpublished(survey: Survey, uids: Collection[str]) -> Iterator[StateHandle]:
    """What plans and adoptable compactions name, and may hold a key of an operator."""
    for plan in survey.plans.values():
        yield from reached_handles(plan, uids)
    for record in survey.jobs.adoptable:
        name, _, kind = record.uid.partition("~")
        if kind in _SINKS or name in uids:
            yield record.output


def _family(uid: str, survey: Survey) -> frozenset[str]:
    """All uids that an operator has had: restores and forks may rename it."""
    found = {uid}
    while True:
        pairs = [pair for g in survey.lines.geneses.values() for pair in g.renamed.items()]
        more = {name for pair in pairs if found & set(pair) for name in pair} - found
        if not more:
            return frozenset(found)
        found |= more


def _schema_of(uids: frozenset[str], entries: Iterable[Entry]) -> OperatorSchema | None:
    for entry in entries:
        schemas = entry.plan.schemas if isinstance(entry, Checkpoint) else entry.schemas
        for uid in sorted(uids):
            if uid in schemas:
                return schemas[uid]
    return None
