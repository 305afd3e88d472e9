"""State tables in dicts: versions, compare-and-set on the last version, and removal of orphans in the same commit."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tidemark.errors import ConflictError, StoreError
from tidemark.model.checkpoint.commits import Commit, CommitRequest, Committed
from tidemark.model.checkpoint.manifest import WrittenRun
from tidemark.model.checkpoint.redrive import Redrive, expand_rows, letter_place, missing_letters
from tidemark.model.checkpoint.row_tables import ROW_CHECKPOINT
from tidemark.model.checkpoint.segments import LiveFile, Segment, StateHandle, WrittenFile
from tidemark.model.core.canonical import checksum
from tidemark.model.core.offsets import Path
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
        return [row for *_, row in self.placed_rows(handle)]

    def placed_rows(self, handle: StateHandle) -> Iterator[tuple[int, Row]]:
        """Yields the rows of a handle with the checkpoint that wrote them.

        Raises:
            StoreError: a file or a version is missing.
        """
        for segment in handle:
            for found in self.files_of(segment):
                path = f"{segment.path}/{found.path}"
                if path not in self.files:
                    raise _gone(path)
                for row in self.files[path]:
                    at = int(str(row.get(ROW_CHECKPOINT, found.checkpoint)))
                    if not handle.expired or at > handle.expired:
                        yield at, row

    def find_letters(
        self, handle: StateHandle, positions: Collection[tuple[str, int, int]]
    ) -> list[tuple[int, str, int, int, Path]]:
        """Finds dead letters; see `coordinator.plans.redrives.FindLetters`."""
        places = ((at, letter_place(row)) for at, row in self.placed_rows(handle))
        return [(at, *place) for at, place in places if place[:3] in positions]

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


class PlacedRows(Protocol):
    """Tables whose rows can be read with their places: `MemoryTables`, or a twin that writes files."""

    def placed_rows(self, handle: StateHandle) -> Iterable[tuple[int, Row]]:
        """See `MemoryTables.placed_rows`."""


def stored_letters(tables: PlacedRows, handle: StateHandle, redrive: Redrive) -> list[Row]:
    """Returns the rows of the dead letters that an operator gets again.

    Raises:
        StoreError: the handle lacks one of them.
    """
    wanted = {(r.checkpoint, *r.place) for r in expand_rows(redrive.rows)}
    found = [row for at, row in tables.placed_rows(handle) if (at, *letter_place(row)) in wanted]
    if len(found) != len(wanted):
        raise missing_letters(redrive, len(found))
    return found


def _gone(what: str) -> StoreError:
    return StoreError(f"cannot read {what} any more", next="restore an older restore point.")
