"""The log of a published table: its newest version with deletion vectors, and what others have done to it.

deltalake opens tables with deletion vectors, but returns no places of vectors, which an entry has to name to replace
them. So this module replays the log: the newest Delta log checkpoint, and the commits behind it.
"""

import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.errors import StoreError
from tidemark.publications.deletion_vectors import VectorPlace
from tidemark.publications.target_folder import TargetFolder

LOG = "_delta_log/"
_COMMIT = re.compile(r"_delta_log/(\d{20})\.json")
_CHECKPOINT = re.compile(r"_delta_log/(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_ACTIONS = ("add", "txn", "metaData", "protocol")
_FEATURES = frozenset({"deletionVectors"})
_OLD_WRITER = 2
"""Tables of this writer version have no feature that a writer of plain files could break."""
_REFUSED_SETTINGS = (
    "delta.appendOnly",
    "delta.columnMapping.mode",
    "delta.enableChangeDataFeed",
    # It lets a snapshot forget which publication was the newest.
    "delta.setTransactionRetentionDuration",
)
LINEAGE = "tidemark.lineage"
"""Setting of a table: the id of the rebuild that its rows come from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorFile:
    """A live data file.

    Attributes:
        path: relative to the table.
        size: bytes.
        rows: all rows of the file, deleted ones included; None if the log does not say.
        vector: the place of its deletion vector; None = no row is deleted.
        stats: the statistics as JSON text.
    """

    path: str
    size: int
    rows: int | None
    vector: VectorPlace | None
    stats: str | None

    @property
    def deleted(self) -> int:
        """The number of deleted rows."""
        return 0 if self.vector is None else self.vector.cardinality


@dataclass(slots=True, kw_only=True)
class TableState:
    """The newest version of a table; version -1 = there is no table.

    Attributes:
        version: its number.
        files: live files by path.
        publications: the newest number of each publication, by application id.
        metadata: the `metaData` action.
        protocol: the `protocol` action.
        known: the oldest commit from which on all are there.
    """

    version: int = -1
    files: dict[str, MirrorFile] = field(default_factory=dict)
    publications: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    known: int = 0

    @property
    def schema(self) -> Any:
        """The schema, as parsed JSON."""
        return json.loads(self.metadata["schemaString"])

    @property
    def live_rows(self) -> int:
        """The number of rows that are not deleted, by the statistics of the files."""
        return sum((file.rows or 0) - file.deleted for file in self.files.values())

    @property
    def lineage(self) -> str:
        """The id of the rebuild that its rows come from; empty if there was none."""
        return str((self.metadata.get("configuration") or {}).get(LINEAGE, ""))

    @property
    def has_vectors(self) -> bool:
        """Whether its protocol allows deletion vectors."""
        return "deletionVectors" in (self.protocol.get("writerFeatures") or ())

    def apply(self, action: Mapping[str, Any]) -> None:
        """Applies one action of a commit or a Delta log checkpoint."""
        for kind, value in action.items():
            if kind == "add" and value:
                self.files[unquote(value["path"])] = _file_of(value)
            elif kind == "remove" and value:
                path, gone = unquote(value["path"]), VectorPlace.of(value.get("deletionVector"))
                found = self.files.get(path)
                # The same file with another vector is another logical file: its addition may precede this action.
                if found is not None and _id(found.vector) == _id(gone):
                    del self.files[path]
            elif kind == "txn" and value:
                self.publications[value["appId"]] = int(value["version"])
            elif kind == "metaData" and value:
                self.metadata = dict(value)
            elif kind == "protocol" and value:
                self.protocol = dict(value)


@dataclass(frozen=True, slots=True)
class DeltaLog:
    """The log of one table.

    Attributes:
        folder: the table.
    """

    folder: TargetFolder

    def newest(self) -> TableState:
        """Replays the log up to the newest version.

        Raises:
            StoreError: the log has a gap, or a file of it cannot be read.
        """
        return self.at(None)

    def at(self, version: int | None) -> TableState:
        """Replays the log up to a version; None = the newest one.

        Raises:
            StoreError: the log has a gap, or a file of it cannot be read.
        """
        commits, checkpoints = self._list()
        if version is not None:
            commits = {v for v in commits if v <= version}
            checkpoints = {v: paths for v, paths in checkpoints.items() if v <= version}
        base = max(checkpoints, default=-1)
        if not commits and base < 0:
            return TableState()
        state = TableState(version=base, known=base + 1)
        for path in checkpoints.get(base, ()):
            for action in _checkpointed(self.folder.read(path)):
                state.apply(action)
        for number in range(base + 1, max(commits, default=base) + 1):
            if number not in commits:
                raise unreadable(self.folder, f"commit {number} is missing")
            actions = self.actions(number)
            # An entry removes and adds the same file to give it another vector.
            for action in sorted(actions, key=lambda a: "add" in a):
                state.apply(action)
            state.version = number
        while state.known - 1 in commits:
            state.known -= 1
        return state

    def actions(self, version: int) -> list[dict[str, Any]]:
        """Returns the actions of a commit.

        Raises:
            StoreError: it does not exist or is damaged.
        """
        try:
            lines = self.folder.read(path_of(version)).splitlines()
            return [json.loads(line) for line in lines if line.strip()]
        except ValueError as error:
            raise unreadable(self.folder, f"commit {version} is damaged ({error})") from error

    def change_of_others(self, state: TableState, after: int) -> str | None:
        """Describes the first foreign change behind the newest publication; None if rows were only moved.

        `dataChange: false` is only a claim, so the number of live rows is compared as well.

        Args:
            state: the newest version.
            after: the version that the newest publication made.
        """
        if state.known > after + 1:
            return f"commits {after + 1} to {state.known - 1} are gone, so their changes are unknown"
        for version in range(after + 1, state.version + 1):
            why = _change(self.actions(version))
            if why is not None:
                return f"version {version} {why}"
        return misfit(state)

    def _list(self) -> tuple[set[int], dict[int, list[str]]]:
        commits, parts = set[int](), dict[int, list[tuple[str, int]]]()
        for path in self.folder.list(LOG):
            if (found := _COMMIT.fullmatch(path)) is not None:
                commits.add(int(found[1]))
            elif (found := _CHECKPOINT.fullmatch(path)) is not None:
                parts.setdefault(int(found[1]), []).append((path, int(found[3] or 1)))
        whole = {at: sorted(p for p, _ in found) for at, found in parts.items() if len(found) >= found[0][1]}
        return commits, {at: paths for at, paths in whole.items() if len(paths) == parts[at][0][1]}


def path_of(version: int) -> str:
    """Returns the path of a commit."""
    return f"{LOG}{version:020d}.json"


def misfit(state: TableState) -> str | None:
    """Describes a feature that this writer does not know; None if it may write to the table."""
    readers, writers = (state.protocol.get(name) or () for name in ("readerFeatures", "writerFeatures"))
    unknown = sorted({*readers, *writers} - _FEATURES)
    if unknown or (not writers and int(state.protocol.get("minWriterVersion", 1)) > _OLD_WRITER):
        return f"has the table features {', '.join(unknown) or 'of an old writer version'}"
    settings = state.metadata.get("configuration") or {}
    found = [name for name in _REFUSED_SETTINGS if str(settings.get(name, "")).lower() not in ("", "false", "none")]
    return f"has the setting {found[0]}" if found else None


def unreadable(folder: TargetFolder, why: str) -> StoreError:
    """Returns the error about a log that cannot be replayed."""
    return StoreError(
        f"the table {folder} is not readable: {why}",
        safe="every checkpoint is intact; the table was left alone.",
        next="restore its log from a backup, or remove the table and publish again.",
    )


def _change(actions: list[dict[str, Any]]) -> str | None:
    for action in actions:
        for kind, value in action.items():
            if kind == "cdc" or (kind in ("add", "remove") and value.get("dataChange", True)):
                return "changed rows"
            if kind == "metaData" and value.get("partitionColumns"):
                return "changed the partitions"
    return None


def _id(vector: VectorPlace | None) -> str | None:
    return None if vector is None else vector.id


def _file_of(added: Mapping[str, Any]) -> MirrorFile:
    stats = added.get("stats")
    rows = json.loads(stats).get("numRecords") if stats else None
    return MirrorFile(
        path=unquote(added["path"]),
        size=int(added["size"]),
        rows=rows,
        vector=VectorPlace.of(added.get("deletionVector")),
        stats=stats,
    )


def _checkpointed(raw: bytes) -> Iterator[dict[str, Any]]:
    """Yields the actions in one file of a Delta log checkpoint."""
    file = pq.ParquetFile(io.BytesIO(raw))
    there = set(file.schema_arrow.names)
    for batch in file.iter_batches(columns=[name for name in _ACTIONS if name in there]):
        for row in pa.Table.from_batches([batch]).to_pylist(maps_as_pydicts="strict"):
            yield {kind: value for kind, value in row.items() if value is not None}
