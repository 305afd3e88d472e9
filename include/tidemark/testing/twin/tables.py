"""State tables in dicts: versions, compare-and-set on the last version, and removal of orphans in the same commit."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidemark.errors import ConflictError, StoreError
from tidemark.model.checkpoint.manifest import Commit, CommitRequest, Committed, LiveFile, WrittenFile, WrittenRun
from tidemark.model.checkpoint.segments import Segment, StateHandle
from tidemark.model.core.canonical import checksum
from tidemark.ports import Fence, UncertainPut

Row = Mapping[str, object]
"""A stored row: column → value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTableVersion:
    """The result of one commit."""

    live: Mapping[str, LiveFile]
    commit: Commit
    metadata: Mapping[str, str]


@dataclass
class MemoryTables:
    """The twin of the Delta tables; `files` is the disk: rows by path relative to the warehouse.

    `oldest` is the first version that each table's log still has; `log_checkpoints` has the Delta log checkpoints.
    """

    files: dict[str, Sequence[Row]] = field(default_factory=dict)
    tables: dict[str, list[MemoryTableVersion]] = field(default_factory=dict)
    oldest: dict[str, int] = field(default_factory=dict)
    log_checkpoints: dict[str, set[int]] = field(default_factory=dict)

    def write(self, folder: str, rows: Sequence[Row]) -> WrittenRun:
        """Writes rows as one file in the attempt's folder; no version names it yet."""
        if not rows:
            return WrittenRun(rows=0, files=())
        name = "part-00000.parquet"
        self.files[f"{folder}/{name}"] = tuple(rows)
        own = folder.rpartition("/")[2]
        file = WrittenFile(path=f"{own}/{name}", size=64 * len(rows), rows=len(rows), stats="{}")
        return WrittenRun(rows=len(rows), files=(file,))

    def commit(self, request: CommitRequest, fence: Fence) -> Committed:
        """See `ports.StateTables`."""
        self._refuse_unequal(request)
        for _ in range(2):
            version = self._latest(request.table)
            fence.check()
            made = self._version(request, version + 1)
            if self._settled(request, version, made):
                return Committed(commit=made.commit, segment=_segment(request, made))
        raise ConflictError(
            f"another writer committed to {request.table} twice at the same moment",
            safe="nothing of this commit is in the table.",
            next="find the foreign writer; only Tidemark may write state tables.",
        )

    def live_files(self, segment: Segment) -> Sequence[WrittenFile]:
        """See `ports.StateTables`."""
        return [f.file for f in self.files_of(segment)]

    def files_exist(self, handle: StateHandle) -> bool:
        """Returns whether every file of a handle is on the disk."""
        if any(not self.oldest.get(s.path, 0) <= s.version < len(self.tables.get(s.path, ())) for s in handle):
            return False
        return all(f"{s.path}/{f.path}" in self.files for s in handle for f in self.live_files(s))

    def make_durable(self, commits: Iterable[Commit], folders: Iterable[str]) -> None:
        """See `ports.StateTables`."""
        for commit in commits:
            history = self.tables.get(commit.path, [])
            if commit.version >= len(history) or history[commit.version].commit != commit:
                raise StoreError(
                    f"commit {commit.version} of {commit.path} differs from the one that was written",
                    next="find the foreign writer; only Tidemark may write state tables.",
                )

    def rows(self, handle: StateHandle) -> list[Row]:
        """Returns all stored rows of a handle: the union of its segments, each limited to its range.

        Raises:
            StoreError: a file or a version is missing.
        """
        found: list[Row] = []
        for segment in handle:
            for file in self.live_files(segment):
                path = f"{segment.path}/{file.path}"
                if path not in self.files:
                    raise _gone(path)
                found.extend(self.files[path])
        return found

    def _latest(self, table: str) -> int:
        return len(self.tables.get(table, ())) - 1

    def _settled(self, request: CommitRequest, version: int, made: MemoryTableVersion) -> bool:
        try:
            return self._compare_and_set(request.table, version, made)
        except UncertainPut:
            history = self.tables.get(request.table, [])
            return len(history) > version + 1 and history[version + 1].commit.write_id == request.write_id

    def _compare_and_set(self, table: str, version: int, made: MemoryTableVersion) -> bool:
        history = self.tables.setdefault(table, [])
        if len(history) != version + 1:
            return False
        history.append(made)
        return True

    def _version(self, request: CommitRequest, version: int) -> MemoryTableVersion:
        live = self._live_after(request)
        body = {"table": request.table, "version": version, "live": sorted(live), "write_id": request.write_id}
        return MemoryTableVersion(
            live=live,
            commit=Commit(path=request.table, version=version, write_id=request.write_id, sha256=checksum(body)),
            metadata=dict(request.metadata),
        )

    def _live_after(self, request: CommitRequest) -> dict[str, LiveFile]:
        """Returns the parent segment's files and the new ones: drops orphans, and adds removed files again."""
        kept = [] if request.parent is None else self.files_of(request.parent)
        live = {f.file.path: f for f in kept if f.file.path not in request.drop}
        for file in request.files:
            live[file.path] = LiveFile(file=file, level=request.level, checkpoint=request.checkpoint)
        return live | {f.path: f for f in request.replacing}

    def files_of(self, segment: Segment) -> list[LiveFile]:
        """See `ports.StateTables`."""
        history = self.tables.get(segment.path, [])
        if not self.oldest.get(segment.path, 0) <= segment.version < len(history):
            raise _gone(f"version {segment.version} of {segment.path}")
        live = history[segment.version].live
        found = [f for _, f in sorted(live.items()) if segment.after < f.checkpoint <= segment.through]
        why = segment.difference((f.file.size, f.file.rows) for f in found)
        if why is not None:
            raise _gone(f"version {segment.version} of {segment.path} differs from its commit: {why}")
        return found

    def _refuse_unequal(self, request: CommitRequest) -> None:
        written = sum(len(self.files.get(f"{request.table}/{f.path}", ())) for f in request.files)
        if written != request.rows:
            raise StoreError(
                f"{request.table}: the write reported {request.rows} rows, its files hold {written}",
                next="run the pipeline again: the next attempt writes its own files.",
            )


def _segment(request: CommitRequest, made: MemoryTableVersion) -> Segment:
    held = [f.file for f in made.live.values() if request.after < f.checkpoint <= request.checkpoint]
    return Segment(
        after=request.after,
        through=request.checkpoint,
        path=request.table,
        version=made.commit.version,
        rows=sum(f.rows for f in held),
        bytes=sum(f.size for f in held),
        files=len(held),
    )


def _gone(what: str) -> StoreError:
    return StoreError(f"cannot read {what} any more", next="restore an older restore point.")
