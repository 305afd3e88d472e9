"""Where a key is: every file that a restore point, a plan or an adoptable compaction names, looked into once (Q9)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.records.erasure_records import is_outdated, is_stillborn
from tidemark.coordinator.records.states import OpenPlan, SealedPlan
from tidemark.coordinator.retention.collect_roots import Survey, look
from tidemark.errors import CorruptObjectError, StoreError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.offset_coverage import OffsetCoverage
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.segments import Segment, StateHandle
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.model.checkpoint.table_writes import LiveFile
from tidemark.model.core.offsets import OffsetRange, TopicPartition
from tidemark.model.retention.erasure import ErasedKey
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.ports import KeyFiles, StateTables

Entry = Checkpoint | Genesis


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFile:
    """A file that holds the key: how many rows of it."""

    file: LiveFile
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one look has found.

    Attributes:
        survey: of the pipeline.
        uids: the operator, under all names that it has had.
        schema: its stored schema; None where no checkpoint names it.
        entries: restore points: what is kept, and timelines without a checkpoint of their own; newest first.
        files: by table and path those that hold the key.
        by_entry: per name of a restore point the tables and paths of its files that do.
        plans: open and sealed ones that were not held against an erasure, by name of their timeline.
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
        """Whether the key is nowhere."""
        return not self.files and not self.unseen

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Per partition the furthest offset that anything was read, or is planned to be read, to."""
        found: dict[TopicPartition, int] = {}
        for plan in self._read:
            for tp, end in plan.ranges.ends.items():
                found[tp] = max(end, found.get(tp, end))
        return found

    @property
    def reached(self) -> OffsetCoverage:
        """All offsets up to there, by topic id: a topic may have been recreated, and forks may read the old one."""
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
    """Looks for one key; a file is read once, however often it is looked for.

    Attributes:
        coordinator: of the pipeline.
        tables: its tables.
        files: their files.
        uid: the operator.
        key: values of its key columns.
    """

    coordinator: CheckpointCoordinator
    tables: StateTables
    files: KeyFiles
    uid: str
    key: tuple[object, ...]
    _held: dict[tuple[str, str], int] = field(default_factory=dict)
    _segments: dict[Segment, tuple[LiveFile, ...]] = field(default_factory=dict)

    def look(self) -> Found:
        """Looks everywhere; writes nothing.

        Raises:
            CorruptObjectError, StoreError: as `survey.look`, or a file cannot be read.
        """
        survey = look(self.coordinator, None)
        for bad in survey.damage.manifests:
            raise CorruptObjectError(
                f"{bad.name} may hold the key, and {bad.why}",
                safe="nothing was written.",
                next=f"put it back from a backup, or tidemark checkpoint give-up {self.coordinator.name} {bad.name}",
            )
        entries = tuple(_entries(self.coordinator, survey))
        uids = _family(self.uid, survey)
        schema = _schema_of(uids, entries)
        files: dict[str, dict[str, HeldFile]] = {}
        by_entry: dict[str, tuple[tuple[str, str], ...]] = {}
        for entry in entries:
            held = self._held_by(entry, schema, uids)
            by_entry[name_of(entry)] = tuple(sorted((table, path) for table, path in held))
            for (table, path), found in held.items():
                files.setdefault(table, {})[path] = found
        others = [h for uid, h in _unpublished(survey) if uid in uids]
        return Found(
            survey=survey,
            uids=uids,
            schema=schema,
            entries=entries,
            files=files,
            by_entry={name: held for name, held in by_entry.items() if held},
            unseen=bool(self._in(schema, others)),
            heads=frozenset(
                own[-1].id for n, own in survey.lines.checkpoints.items() if own and n not in survey.lines.closings
            ),
        )

    def files_of(self, segment: Segment) -> tuple[LiveFile, ...]:
        """The files of a segment, asked for once."""
        if segment not in self._segments:
            self._segments[segment] = tuple(self.tables.files_of(segment))
        return self._segments[segment]

    def erased(self, schema: OperatorSchema) -> ErasedKey:
        """The key, as rows hold it."""
        return ErasedKey.of(schema, self.key)

    def _held_by(
        self, entry: Entry, schema: OperatorSchema | None, uids: frozenset[str]
    ) -> dict[tuple[str, str], HeldFile]:
        try:
            return self._in(schema, (h for uid, h in handles_of(entry) if uid in uids))
        except StoreError:
            if isinstance(entry, Genesis) and is_stillborn(self.coordinator.objects, entry):
                return {}  # it was begun too late, and its files are gone: it stands for nothing
            raise

    def _in(self, schema: OperatorSchema | None, handles: Iterable[StateHandle]) -> dict[tuple[str, str], HeldFile]:
        """Files of handles that hold the key, by table and path."""
        found: dict[tuple[str, str], HeldFile] = {}
        for segment in dict.fromkeys(s for handle in handles for s in handle):
            for f in self.files_of(segment):
                at = (segment.path, f.path)
                if at not in self._held and schema is not None:
                    self._held[at] = self.files.rows_of(segment.path, f, self.erased(schema))
                if self._held.get(at):
                    found[at] = HeldFile(file=f, rows=self._held[at])
        return found


def name_of(entry: Entry) -> str:
    """`chk-3`; of a timeline without a checkpoint of its own `timeline t2`."""
    return entry.plan.name if isinstance(entry, Checkpoint) else f"timeline {entry.timeline}"


def handles_of(entry: Entry) -> Iterator[tuple[str, StateHandle]]:
    """The state that a restore point names, by uid; what it has left behind too (G11)."""
    if isinstance(entry, Checkpoint):
        yield from ((a.uid, a.handle) for a in entry.sealed.acks)
        yield from entry.plan.left_behind.items()
    else:
        yield from entry.handles.items()
        yield from entry.left_behind.items()


def waiting(coordinator: CheckpointCoordinator, survey: Survey, erasure: int) -> Iterator[OpenPlan | SealedPlan]:
    """Plans, open or sealed, that were made without the block-list of an erasure, or of what it has revised since."""
    for plan in survey.plans.values():
        if plan.erasures >= erasure and not is_outdated(coordinator.objects, plan):
            continue
        found = coordinator.state(plan)
        if isinstance(found, OpenPlan | SealedPlan):
            yield found


def _entries(coordinator: CheckpointCoordinator, survey: Survey) -> Iterator[Entry]:
    for line in reversed(survey.lines.all()):
        found = coordinator.objects.slot(line.timeline, line.sequence)
        assert isinstance(found, Checkpoint)  # noqa: S101  (for the type checker; a place never changes hands)
        yield found
    yield from (g for name in sorted(survey.lines.geneses) if (g := survey.newborn(name)) is not None)


def _unpublished(survey: Survey) -> Iterator[tuple[str, StateHandle]]:
    for plan in survey.plans.values():
        yield from _of_plan(plan)
    for record in survey.jobs.adoptable:
        yield record.uid, record.output


def _of_plan(plan: CheckpointPlan) -> Iterator[tuple[str, StateHandle]]:
    yield from plan.handles.items()
    yield from plan.left_behind.items()


def _family(uid: str, survey: Survey) -> frozenset[str]:
    """All names that an operator has had: restores and forks may rename it (C8)."""
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
