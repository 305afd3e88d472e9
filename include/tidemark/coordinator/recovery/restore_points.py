"""The restore points of a pipeline, each with everything that it needs, even if its own records are damaged."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from tidemark.coordinator.records.objects import Objects
from tidemark.coordinator.records.released_checkpoints import usable
from tidemark.coordinator.records.schema_book import StoredSchemas
from tidemark.coordinator.records.timelines import Timelines, is_stillborn
from tidemark.coordinator.records.tombstones import of_checkpoints, read_release
from tidemark.errors import CorruptObjectError, NotFoundError, TidemarkError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.commits import Commit
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.segments import is_base, owner_of
from tidemark.model.checkpoint.store_objects import CompactionRecord, Genesis, IdRecord
from tidemark.model.retention.findings import CheckedRestorePoint, Flaws
from tidemark.model.retention.savepoint import SavepointRecord, checked_savepoint

T = TypeVar("T")
Commits = dict[str, dict[int, Commit]]
"""The commits that manifests and compactions have recorded, by table and version."""


@dataclass(frozen=True, kw_only=True)
class RestorePoints:
    """Reads restore points; one damaged object hides no other.

    Attributes:
        pipeline: its name, which is the folder of its objects.
        objects: of the pipeline.
    """

    pipeline: str
    objects: Objects
    _schemas: dict[tuple[str, int], Flaws] = field(default_factory=dict, init=False)

    def all(self) -> list[CheckedRestorePoint]:
        """Checkpoints sorted by id, then savepoints by name, then the last entries of timelines by name."""
        gone = {name for name, record in of_checkpoints(self.objects).items() if record.confirmed}
        slots: dict[str, list[CheckedRestorePoint | None]] = {}
        for timeline, sequence in self._places():
            slots.setdefault(timeline, []).append(self._at(timeline, sequence))
        known = {p.name: p for points in slots.values() for p in points if p is not None and p.name not in gone}
        numbered = sorted((int(n.removeprefix("chk-")), p) for n, p in known.items() if n.startswith("chk-"))
        records = self._savepoints().items()
        pinned = [point for name, key in records if (point := self._pinned(name, key, known.get)) is not None]
        ends = [end for timeline, points in sorted(slots.items()) if (end := self._end(timeline, points, gone))]
        return [*(p for _, p in numbered), *pinned, *ends]

    def _end(
        self, timeline: str, points: list[CheckedRestorePoint | None], gone: set[str]
    ) -> CheckedRestorePoint | None:
        """The last entry of a timeline; None if it was released, or if the timeline was closed or refused at birth."""
        name = f"timeline {timeline}"
        last = next((p for p in reversed(points) if p is not None), None)
        if last is None or last.name in gone:
            return None
        if last.name == name and not last.flaws:
            genesis = self.objects.slot(timeline, 1)
            if points[-1] is None or (isinstance(genesis, Genesis) and self._began_too_late(genesis, gone)):
                return None
        return last.with_name(name)

    def _began_too_late(self, genesis: Genesis, gone: set[str]) -> bool:
        return f"chk-{genesis.parent}" in gone or bool(_read(partial(is_stillborn, self.objects, genesis)))

    def checkpoint(self, checkpoint_id: int) -> CheckedRestorePoint:
        """Returns the restore point of a checkpoint.

        Raises:
            NotFoundError: the checkpoint was never completed.
            ReleasedError: retention has released it.
            CorruptObjectError: the record of its id is damaged.
        """
        timelines = Timelines(self.objects)
        known = _read(partial(timelines.find, checkpoint_id))
        if known is not None:
            usable(timelines, known)
        record = self.objects.read(IdRecord, keys.id_key(checkpoint_id))
        found = None if record is None else self._at(record.slot.timeline, record.slot.sequence)
        if found is None or found.name != f"chk-{checkpoint_id}":
            raise NotFoundError(
                f"no completed checkpoint chk-{checkpoint_id}",
                next=f"tidemark checkpoint list {self.pipeline}    (lists them).",
            )
        return found

    def savepoint(self, name: str) -> CheckedRestorePoint:
        """Returns the restore point of a savepoint.

        Raises:
            NotFoundError: there is no savepoint of this name, or it is disposed.
        """
        key = self._savepoints().get(checked_savepoint(name))
        found = None if key is None else self._pinned(name, key, self._find)
        if found is None:
            raise NotFoundError(
                f"no savepoint {name!r}", next=f"tidemark verify {self.pipeline}    (checks all restore points)."
            )
        return found

    def of(self, checkpoint: Checkpoint) -> CheckedRestorePoint:
        """The restore point of a checkpoint, with everything that it needs."""
        handles = [handle for a in checkpoint.sealed.acks for handle in (a.handle, a.dead_letters, *a.sinks)]
        flaws = self._object_flaws(checkpoint)
        return CheckedRestorePoint(name=checkpoint.plan.name, handles=tuple(handles), flaws=flaws)

    def commits(self) -> Commits:
        """All recorded commits."""
        made: Commits = {}
        for timeline, sequence in self._places():
            _keep(made, self._acked(timeline, sequence))
        for key in self.objects.list("compactions/"):
            _keep(made, self._compacted(key))
        return made

    def commits_of(self, point: CheckedRestorePoint) -> Commits:
        """The commits that the restore point's segments name, found without reading every manifest."""
        made: Commits = {}
        timelines = Timelines(self.objects)
        for segment in (s for handle in point.handles for s in handle):
            if segment.version in made.get(segment.path, {}):
                continue
            if is_base(segment.path):
                for key in self._compactions(owner_of(segment.path), segment.through):
                    _keep(made, self._compacted(key))
                    if segment.version in made.get(segment.path, {}):
                        break
            else:
                _keep(made, _commits(_read(partial(timelines.find, segment.through))))
        return made

    def schema_flaws(self, registry: str, id: int) -> Flaws:
        """The damage of a stored schema, by location. Checkpoints share schemas, so each is read once."""
        if (registry, id) not in self._schemas:
            flaws = StoredSchemas(self.objects).flaws(registry, id)
            self._schemas[registry, id] = {self.where(key): why for key, why in flaws.items()}
        return self._schemas[registry, id]

    def where(self, key: str) -> str:
        """The path of an object, relative to the warehouse."""
        return f"{self.pipeline}/{key}"

    def _places(self) -> Iterator[tuple[str, int]]:
        return iter(keys.places(self.objects.list("timelines/")))

    def _at(self, timeline: str, sequence: int) -> CheckedRestorePoint | None:
        """The restore point in a slot of a timeline; None for a closing and for a free slot."""
        try:
            entry = self.objects.slot(timeline, sequence)
        except CorruptObjectError as error:
            key = keys.slot_key(timeline, sequence)
            return CheckedRestorePoint(name=self._name_at(timeline, sequence), flaws={self.where(key): error.what})
        if isinstance(entry, Genesis):
            sinks = (table.handle for table in entry.sinks.values())
            handles = (*entry.handles.values(), *entry.dead_letters.values(), *sinks)
            return CheckedRestorePoint(name=f"timeline {timeline}", handles=handles)
        return self.of(entry) if isinstance(entry, Checkpoint) else None

    def _name_at(self, timeline: str, sequence: int) -> str:
        """The name of a checkpoint that cannot be read: it comes from the last plan of the slot, which completed."""
        found = []
        for key in self.objects.list("ids/"):
            record = _read(partial(self.objects.read, IdRecord, key))
            if record is not None and (record.slot.timeline, record.slot.sequence) == (timeline, sequence):
                found.append((record.slot.k, record.id))
        return f"chk-{max(found)[1]}" if found else f"timeline {timeline}"

    def _savepoints(self) -> dict[str, str]:
        """Key of the newest revision of every savepoint, sorted by name."""
        return {key.split("/")[1]: key for key in self.objects.list("savepoints/")}

    def _pinned(
        self, savepoint: str, key: str, find: Callable[[str], CheckedRestorePoint | None]
    ) -> CheckedRestorePoint | None:
        """The checkpoint that a savepoint pins by its newest record, or its damage; None if it is disposed."""
        name = f"savepoint {savepoint}"
        try:
            record = self.objects.read(SavepointRecord, key)
        except CorruptObjectError as error:
            return CheckedRestorePoint(name=name, flaws={self.where(key): error.what})
        if record is None or record.disposed or read_release(self.objects, record.checkpoint_name) is not None:
            return None
        pinned = find(record.checkpoint_name)
        gone = {self.where(keys.id_key(record.checkpoint)): f"there is no completed {record.checkpoint_name}"}
        return CheckedRestorePoint(name=name, flaws=gone) if pinned is None else pinned.with_name(name)

    def _find(self, name: str) -> CheckedRestorePoint | None:
        try:
            return self.checkpoint(int(name.removeprefix("chk-")))
        except NotFoundError:
            return None

    def _object_flaws(self, checkpoint: Checkpoint) -> Flaws:
        """Flaws in objects that a manifest needs: the record that finds it, its queries, the schemas of its records."""
        found = {keys.id_key(checkpoint.id): self._why_no_id(checkpoint.id)}
        for name in {name for of_uid in checkpoint.plan.queries.values() for name in of_uid.values()}:
            found[keys.query_key(name)] = _why(partial(self.objects.text, keys.query_key, name))
        flaws = {self.where(key): why for key, why in found.items() if why is not None}
        for registry, ids in checkpoint.sealed.facts.schemas.items():
            for id in ids:
                flaws |= self.schema_flaws(registry, id)
        return flaws

    def _why_no_id(self, checkpoint_id: int) -> str | None:
        return _why(lambda: self.objects.read(IdRecord, keys.id_key(checkpoint_id)))

    def _compactions(self, uid: str, through: int) -> list[str]:
        """Keys of the compactions that may have written up to a checkpoint, oldest first."""
        found = [(key.split("."), key) for key in self.objects.list(f"compactions/{uid}/")]
        numbered = sorted((int(parts[-3]), key) for parts, key in found if len(parts) > 3 and parts[-3].isdecimal())
        return [key for number, key in numbered if number >= through]

    def _acked(self, timeline: str, sequence: int) -> list[Commit]:
        try:
            entry = self.objects.slot(timeline, sequence)
        except CorruptObjectError:
            return []
        return _commits(entry) if isinstance(entry, Checkpoint) else []

    def _compacted(self, key: str) -> tuple[Commit, ...]:
        record = _read(lambda: self.objects.read(CompactionRecord, key))
        return () if record is None else record.commits


def _read(read: Callable[[], T | None]) -> T | None:
    try:
        return read()
    except CorruptObjectError:
        return None


def _why(read: Callable[[], object]) -> str | None:
    try:
        return "it is gone" if read() is None else None
    except TidemarkError as error:
        return error.what


def _commits(checkpoint: Checkpoint | None) -> list[Commit]:
    if checkpoint is None:
        return []
    erased = () if checkpoint.revised is None else checkpoint.revised.commits
    return [*(commit for a in checkpoint.sealed.acks for commit in a.commits), *erased]


def _keep(made: Commits, commits: Iterable[Commit]) -> None:
    for commit in commits:
        made.setdefault(commit.path, {})[commit.version] = commit
