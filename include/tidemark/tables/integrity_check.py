"""Checks segments of tables against their logs and the disk, without a JVM; it trusts and changes nothing.

The manifest records rows, bytes and files of a segment at its commit, and the sha256 of the commit. The commit names
every file with its size. Content is compared with the sha256 in the commit, or for commits from before hashes were
recorded, with the footers and any checksums of Parquet's pages.

In a bucket each table is listed once, and each commit read once. A segment whose files follow from them is whole; what
is wrong with any other one, deltalake has to say.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.errors import StoreError
from tidemark.model.checkpoint.commits import Commit
from tidemark.model.checkpoint.segments import Segment
from tidemark.model.retention.findings import Flaws, Inspected
from tidemark.ports import LiveFile
from tidemark.storage.local_store import (
    Root,
    WarehousePath,
    arrow_place,
    from_commit,
    hash_of,
    join_path,
    relative,
    size_of,
)
from tidemark.tables.delta_reader import FoundCommit, commit_at, commit_file, files_in, open_table, parse_commit
from tidemark.tables.listed_table import ListedTable


@dataclass
class TableChecks:
    """Checks one segment after the other; shared commits and data files are read once.

    Attributes:
        warehouse: root of all tables.
        content: read and compare every byte of every file, not only its size.
    """

    warehouse: Root
    content: bool = False
    _segments: dict[Segment, Flaws] = field(default_factory=dict)
    _files: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    _commits: dict[tuple[WarehousePath, int], FoundCommit | StoreError | None] = field(default_factory=dict)
    _hashes: dict[WarehousePath, tuple[int, dict[str, str]]] = field(default_factory=dict)
    _listed: dict[str, ListedTable] = field(default_factory=dict)

    def __call__(self, segment: Segment, commits: Mapping[int, Commit]) -> Flaws:
        """Returns the damage of a segment, by file relative to the warehouse.

        Args:
            segment: a segment in a manifest.
            commits: commits of its table, by version, as far as manifests record them.
        """
        if segment not in self._segments:
            self._segments[segment] = self._log(segment, commits) or self._opened(segment)
        return self._segments[segment]

    @property
    def inspected(self) -> Inspected:
        """How much was checked so far."""
        sizes = [size for size, _ in self._files.values()]
        return Inspected(segments=len(self._segments), files=len(sizes), bytes=sum(sizes))

    def _log(self, segment: Segment, commits: Mapping[int, Commit]) -> dict[str, str]:
        table = join_path(self.warehouse, segment.path)
        flaws = {}
        listed = self._table(segment)
        needed = _needed(table, segment.version) if listed is None else listed.needed(segment.version)
        for version in sorted({*needed, segment.version}):
            found, known = self._commit(table, version, listed), commits.get(version)
            if isinstance(found, StoreError):
                flaws[self._name(commit_file(table, version))] = found.what
            elif found is not None and known is not None and found.sha256 != known.sha256:
                flaws[self._name(commit_file(table, version))] = "its content differs from the commit"
        return flaws

    def _table(self, segment: Segment) -> ListedTable | None:
        """The table of a segment in a bucket; None on a disk."""
        if isinstance(self.warehouse, str):
            return None
        return self._listed.setdefault(segment.path, ListedTable(self.warehouse, segment.path))

    def _commit(
        self, table: WarehousePath, version: int, listed: ListedTable | None
    ) -> FoundCommit | StoreError | None:
        at = (table, version)
        if at not in self._commits:
            try:
                self._commits[at] = commit_at(table, version) if listed is None else _parsed(listed.commit(version))
            except StoreError as error:
                self._commits[at] = error
        return self._commits[at]

    def _opened(self, segment: Segment) -> dict[str, str]:
        """Returns the damage of the version in the log, and of its files."""
        table = join_path(self.warehouse, segment.path)
        if (whole := self._replayed(segment)) is not None:
            return self._files_of(segment, whole)
        try:
            files = files_in(open_table(table, segment.version), segment.after, segment.through)
        except StoreError as error:
            gone = [v for v in _needed(table, segment.version) if not commit_file(table, v).is_file()]
            where = commit_file(table, gone[0]) if gone else table / "_delta_log"
            return {self._name(where): "it is gone" if gone else error.what}
        found = (sum(f.file.rows for f in files), sum(f.file.size for f in files), len(files))
        if found != (segment.rows, segment.bytes, segment.files):
            return {
                self._name(table / "_delta_log"): f"version {segment.version} names {found[2]} files of {found[0]} rows"
                f" and {found[1]} bytes; the manifest {segment.files}, {segment.rows} and {segment.bytes}"
            }
        return self._files_of(segment, files)

    def _replayed(self, segment: Segment) -> list[LiveFile] | None:
        """The files of a segment in a bucket, if they follow from the commits and are those that were committed."""
        listed = self._table(segment)
        found = None if listed is None else listed.files(segment.version)
        files = [f for f in found or () if segment.after < f.checkpoint <= segment.through]
        if found is None or segment.difference((f.file.size, f.file.rows) for f in files) is not None:
            return None
        return files

    def _files_of(self, segment: Segment, files: Sequence[LiveFile]) -> dict[str, str]:
        """Returns the damage of files."""
        table = join_path(self.warehouse, segment.path)
        whys = {self._name(table / f.path): self._file(segment, f) for f in files}
        return {where: why for where, why in whys.items() if why is not None}

    def _file(self, segment: Segment, f: LiveFile) -> str | None:
        path = join_path(self.warehouse, segment.path, f.path)
        name = self._name(path)
        if name not in self._files:
            self._files[name] = (f.file.size, self._flaw(path, segment, f))
        return self._files[name][1]

    def _flaw(self, path: WarehousePath, segment: Segment, f: LiveFile) -> str | None:
        try:
            size = self._size(path, segment, f)
            if size != f.file.size:
                return f"it has {size} bytes, {f.file.size} were committed"
            if not self.content:
                return None
            recorded = self._recorded(segment).get(f.path)
            if recorded is None:
                return _unreadable(path, f.file.rows)
            return None if hash_of(path) == recorded else "its content differs from the commit"
        except FileNotFoundError:
            return "it is gone"
        except OSError as error:
            return f"it cannot be read ({error.strerror or error})"

    def _size(self, path: WarehousePath, segment: Segment, f: LiveFile) -> int:
        listed = self._table(segment)
        if listed is None:
            return size_of(path)
        if f.path not in listed.sizes:
            raise FileNotFoundError(str(path))
        return listed.sizes[f.path]

    def _recorded(self, segment: Segment) -> dict[str, str]:
        """Returns hashes of the files of a table from all commits, at least up to a version; no path is used twice."""
        table = join_path(self.warehouse, segment.path)
        following, made = self._hashes.get(table, (0, {}))
        listed = self._table(segment)
        for version in range(following, segment.version + 1):
            made |= from_commit(_raw_commit(table, version) if listed is None else listed.commit(version) or b"")
        self._hashes[table] = (max(following, segment.version + 1), made)
        return made

    def _name(self, path: WarehousePath) -> str:
        return relative(self.warehouse, path)


def _parsed(raw: bytes | None) -> FoundCommit | None:
    return None if raw is None else parse_commit(raw)


def _raw_commit(table: WarehousePath, version: int) -> bytes:
    log = commit_file(table, version)
    return log.read_bytes() if log.is_file() else b""


def _needed(table: WarehousePath, version: int) -> range:
    """Returns the versions whose commit files a reader replays: those after the newest Delta log checkpoint."""
    for base in range(version, -1, -1):
        if (table / f"_delta_log/{base:020d}.checkpoint.parquet").is_file():
            return range(base + 1, version + 1)
    return range(version + 1)


def _unreadable(path: WarehousePath, rows: int) -> str | None:
    """Returns why a file without a known hash cannot be the committed one."""
    place, system = arrow_place(path)
    try:
        with pq.ParquetFile(place, page_checksum_verification=True, filesystem=system) as opened:
            for group in range(opened.num_row_groups):
                opened.read_row_group(group)
            held = opened.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        return f"it is not a complete Parquet file ({str(error).splitlines()[0]})"
    return None if held == rows else f"it has {held} rows, {rows} were committed"
