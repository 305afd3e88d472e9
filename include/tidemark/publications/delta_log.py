"""The log of a published table: its newest version with deletion vectors, and the changes that others have made.

deltalake opens tables with deletion vectors, but returns no places of vectors, which an entry has to name to replace
them. So this module replays the log: the newest Delta log checkpoint, and the commits behind it.
"""

import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import Schema

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
        path: relative to the table, percent-encoded as in the log.
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
    """A version of a table; version -1 = there is no table.

    Attributes:
        version: its number.
        files: live files by path.
        publications: the newest number of each publication, by application id.
        metadata: the `metaData` action.
        protocol: the `protocol` action.
        known: the oldest version from which on all commits are there.
    """

    version: int = -1
    files: dict[str, MirrorFile] = field(default_factory=dict)
    publications: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    known: int = 0

    @property
    def schema(self) -> Schema:
        """The schema."""
        return Schema.from_json(self.metadata["schemaString"])

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
                self.files[value["path"]] = _file_of(value)
            elif kind == "remove" and value:
                found = self.files.get(value["path"])
                # A file with another vector is another logical file: its addition may precede this action.
                if found is not None and _id_of(found.vector) == _id_of(VectorPlace.of(value.get("deletionVector"))):
                    del self.files[value["path"]]
            elif kind == "txn" and value:
                self.publications[value["appId"]] = int(value["version"])
            elif kind == "metaData" and value:
                self.metadata = dict(value)
            elif kind == "protocol" and value:
                self.protocol = dict(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPublication:
    """The entry of a publication.

    Attributes:
        version: of the table.
        rows: live rows of that version.
    """

    version: int
    rows: int


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
        commits, checkpoints = self._list()
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
            for action in self.actions(number):
                state.apply(action)
            state.version = number
        while state.known - 1 in commits:
            state.known -= 1
        return state

    def oldest(self) -> TableState | None:
        """Returns the oldest version that a Delta log checkpoint holds and later commits lead on from.

        Its `known` is 0, and it has no files, if all commits are there; None if there is no table.

        Raises:
            StoreError: a file of the log cannot be read.
        """
        commits, checkpoints = self._list()
        newest = max([*commits, *checkpoints], default=-1)
        if newest < 0:
            return None
        if commits >= set(range(newest + 1)):
            return TableState(version=-1, known=0)
        base = next(v for v in sorted(checkpoints) if commits >= set(range(v + 1, newest + 1)))
        state = TableState(version=base, known=base + 1)
        for path in checkpoints[base]:
            for action in _checkpointed(self.folder.read(path)):
                state.apply(action)
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

    def find_publication(self, state: TableState, application: str) -> "FoundPublication | None":
        """Returns the entry of the newest publication with an application id; None if it is no longer in the log."""
        number = state.publications.get(application, 0)
        for version in range(state.version, state.known - 1, -1):
            actions = {kind: value for action in self.actions(version) for kind, value in action.items()}
            found = actions.get("txn")
            if found and (found["appId"], int(found["version"])) == (application, number):
                return FoundPublication(version=version, rows=int(actions["commitInfo"]["tidemark"]["rows"]))
        return None

    def change_of_others(self, state: TableState, since: "FoundPublication") -> str | None:
        """Describes the first foreign change behind a publication; None if rows were only moved.

        `dataChange: false` is only a claim, so the number of live rows is compared as well.

        Args:
            state: the newest version.
            since: the publication.
        """
        for version in range(since.version + 1, state.version + 1):
            why = _change(self.actions(version))
            if why is not None:
                return f"version {version} {why}"
        if state.live_rows != since.rows:
            return f"it has {state.live_rows} rows, and its newest publication left {since.rows}"
        return misfit(state)

    def _list(self) -> tuple[set[int], dict[int, list[str]]]:
        """Returns the versions with a commit, and the files of each complete Delta log checkpoint by version."""
        commits, parts = set[int](), dict[tuple[int, int], list[str]]()
        for path in self.folder.list(LOG):
            if (found := _COMMIT.fullmatch(path)) is not None:
                commits.add(int(found[1]))
            elif (found := _CHECKPOINT.fullmatch(path)) is not None:
                parts.setdefault((int(found[1]), int(found[3] or 1)), []).append(path)
        return commits, {version: paths for (version, count), paths in parts.items() if len(paths) == count}


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


def _id_of(vector: VectorPlace | None) -> str | None:
    return None if vector is None else vector.id


def _file_of(added: Mapping[str, Any]) -> MirrorFile:
    stats = added.get("stats")
    rows = json.loads(stats).get("numRecords") if stats else None
    return MirrorFile(
        path=added["path"],
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
