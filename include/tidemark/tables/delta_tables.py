"""Commits to Delta tables with deltalake: a compare-and-set on the version that was just read; types of their columns.

`max_commit_retries=0` makes it one: by default deltalake rebases and commits a stale append, so a run that lands twice
would count twice. In a bucket, a commit is a conditional put (`bucket_log`). Spark never commits to these tables.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from tidemark.errors import ConflictError, StoreError
from tidemark.model.checkpoint.commits import Commit
from tidemark.model.checkpoint.segments import Segment
from tidemark.model.core.types import FieldType
from tidemark.ports import Clock, CommitRequest, Committed, Fence, LiveFile, WrittenFile
from tidemark.storage.bucket_path import BucketPath
from tidemark.storage.local_store import Root, WarehousePath, join_path, storage_options, to_metadata
from tidemark.tables.bucket_log import LOG_CHECKPOINT_INTERVAL, OwnCommits, Snapshot, entry_of, is_newest, put_entry
from tidemark.tables.delta_reader import PARENT, commit_at, files_in, newest, refuse_away, segment_files, unusable_table
from tidemark.tables.log_repair import mend_commits, mend_copies, sync_commit, sync_folder, translate_disk_errors

# SQL types as Delta's schema JSON, for exactly the grammar of `FieldType.sql`.
PARTITION_COLUMNS: tuple[tuple[str, str], ...] = (("_level", "INT"), ("_checkpoint", "BIGINT"))
"""Partition columns of every Tidemark table, after its own columns."""

_DELTA_PRIMITIVES = {
    "BOOLEAN": "boolean",
    "INT": "integer",
    "BIGINT": "long",
    "DOUBLE": "double",
    "STRING": "string",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
}
_TOKEN = re.compile(r"DECIMAL\(\d+,\d+\)|[A-Z]+|`[A-Za-z0-9_]+`|[<>:,]")


def delta_schema(columns: Sequence[tuple[str, str]]) -> Schema:
    """Returns the Delta schema of (column, SQL type) pairs and the partition columns; see `plain_schema`."""
    return plain_schema((*columns, *PARTITION_COLUMNS))


def plain_schema(columns: Sequence[tuple[str, str]]) -> Schema:
    """Returns the Delta schema of (column, SQL type) pairs; every field is nullable."""
    fields = [_field(name, parse_type(sql)) for name, sql in columns]
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))


def shape(schema: Schema) -> list[tuple[str, Any]]:
    """Returns (name, type) of each field in order, without nullability and metadata, for comparison."""
    return [(f["name"], _bare(f["type"])) for f in json.loads(schema.to_json())["fields"]]


def parse_type(sql: str) -> Any:
    """Returns Delta's JSON form of one SQL type.

    Raises:
        ValueError: the type is outside the grammar of `FieldType.sql`.
    """
    if re.sub(r"\s", "", "".join(_TOKEN.findall(sql))) != re.sub(r"\s", "", sql):
        raise ValueError(f"unknown type: {sql!r}")
    tokens = iter(_TOKEN.findall(sql))
    return _type(next(tokens), tokens)


def _type(token: str, rest: Iterator[str]) -> Any:
    if token in _DELTA_PRIMITIVES:
        return _DELTA_PRIMITIVES[token]
    if token.startswith("DECIMAL("):
        return token.lower()
    if token == "ARRAY" and next(rest) == "<":  # noqa: S105  (a token of SQL)
        element = _type(next(rest), rest)
        _expect(next(rest), ">")
        return {"type": "array", "elementType": element, "containsNull": True}
    if token == "MAP" and next(rest) == "<":  # noqa: S105
        key = _type(next(rest), rest)
        _expect(next(rest), ",")
        value = _type(next(rest), rest)
        _expect(next(rest), ">")
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if token == "STRUCT" and next(rest) == "<":  # noqa: S105
        return {"type": "struct", "fields": list(_fields(rest))}
    raise ValueError(f"unknown type: {token!r}")


def _fields(rest: Iterator[str]) -> Iterator[dict[str, Any]]:
    separator = ","
    while separator == ",":
        name = next(rest).strip("`")
        _expect(next(rest), ":")
        yield _field(name, _type(next(rest), rest))
        separator = next(rest)
    _expect(separator, ">")


def _expect(found: str, wanted: str) -> None:
    if found != wanted:
        raise ValueError(f"unknown type: expected {wanted!r}, found {found!r}")


def _field(name: str, of: Any) -> dict[str, Any]:
    return {"name": name, "type": of, "nullable": True, "metadata": {}}


def _bare(of: Any) -> Any:
    if isinstance(of, dict) and of["type"] == "struct":
        return [(f["name"], _bare(f["type"])) for f in of["fields"]]
    if isinstance(of, dict) and of["type"] == "array":
        return ["array", _bare(of["elementType"])]
    if isinstance(of, dict) and of["type"] == "map":
        return ["map", _bare(of["keyType"]), _bare(of["valueType"])]
    return of


# Tidemark's SQL types as Arrow types, so that results of DuckDB have exactly the declared types.
_PRIMITIVES = {
    "boolean": pa.bool_(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def arrow_schema(columns: Sequence[tuple[str, str]]) -> pa.Schema:
    """Returns the Arrow schema of (column, SQL type) pairs."""
    return pa.schema([(name, _arrow(parse_type(sql))) for name, sql in columns])


def _arrow(of: Any) -> pa.DataType:
    if isinstance(of, dict) and of["type"] == "array":
        return pa.list_(_arrow(of["elementType"]))
    if isinstance(of, dict) and of["type"] == "map":
        return pa.map_(_arrow(of["keyType"]), _arrow(of["valueType"]))
    if isinstance(of, dict):
        return pa.struct([(f["name"], _arrow(f["type"])) for f in of["fields"]])
    if of.startswith("decimal("):
        digits, scale = of.removeprefix("decimal(").rstrip(")").split(",")
        return pa.decimal128(int(digits), int(scale))
    return _PRIMITIVES[of]


def fits(there: pa.DataType, of: FieldType) -> bool:
    """Whether a column holds values of the declared kind; the cast checks whether each of them fits."""
    if of.kind == "struct":
        held = {there.field(n).name: there.field(n).type for n in range(there.num_fields)} if _is_struct(there) else {}
        return all(name in held and fits(held[name], inner) for name, inner in of.fields)
    if of.key is not None and of.element is not None:
        is_map = bool(pa.types.is_map(there))
        return is_map and fits(there.key_type, of.key) and fits(there.item_type, of.element)
    if of.element is not None:
        return _is_list(there) and fits(there.value_type, of.element)
    return any(test(there) for test in _TESTS[of.kind])


def _is_struct(there: pa.DataType) -> bool:
    return bool(pa.types.is_struct(there))


def _is_list(there: pa.DataType) -> bool:
    return bool(pa.types.is_list(there) or pa.types.is_large_list(there))


_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
_TESTS = {
    "bool": (pa.types.is_boolean,),
    "int": (pa.types.is_integer,),
    "float": (pa.types.is_floating,),
    "decimal": (pa.types.is_decimal, pa.types.is_integer),
    "str": _TEXT,
    "bytes": _BYTES,
    "date": (pa.types.is_date,),
    "timestamp": (pa.types.is_timestamp,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """One transaction; afterwards the table has exactly the files in `live`."""

    add: tuple[LiveFile, ...]
    remove: tuple[LiveFile, ...]
    live: tuple[LiveFile, ...]


def actions(request: CommitRequest, live: Sequence[LiveFile], parent: Sequence[LiveFile]) -> Actions:
    """Adds the new files, removes foreign ones, and adds back those that a foreign writer removed.

    It removes orphans of abandoned attempts, rows before the parent's range (already compacted), files that the request
    drops, and all files that a foreign writer added.

    Args:
        request: the commit.
        live: files of the table's newest version.
        parent: files of the parent segment, at its version and in its range.

    Raises:
        StoreError: rows do not add up, or a file to drop is not in the parent segment.
    """
    held = sum(f.rows for f in request.files)
    if held != request.rows:
        raise _refused(request, f"its files hold {held} rows, the write reported {request.rows}")
    unknown = set(request.drop) - {f.path for f in parent}
    if unknown:
        raise _refused(request, f"the files to replace are not in the parent segment: {', '.join(sorted(unknown))}")
    ours = [LiveFile(file=f, level=request.level, checkpoint=request.checkpoint) for f in request.files]
    ours += request.replacing
    kept = [f for f in parent if f.path not in request.drop]
    wanted = {f.path for f in (*kept, *ours)}
    present = {f.path for f in live}
    return Actions(
        add=tuple(f for f in (*ours, *kept) if f.path not in present),
        remove=tuple(f for f in live if f.path not in wanted),
        live=(*kept, *ours),
    )


def _refused(request: CommitRequest, why: str) -> StoreError:
    return StoreError(
        f"commit refused: {request.table}: {why}",
        safe="every completed checkpoint is intact; nothing was committed.",
        next="run the pipeline again: another attempt writes the files again.",
    )


CONFIGURATION: dict[str, str | None] = {
    "delta.enableExpiredLogCleanup": "false",
    "delta.checkpointInterval": str(LOG_CHECKPOINT_INTERVAL),
    "delta.deletedFileRetentionDuration": "interval 1 days",
    "delta.logRetentionDuration": "interval 30 days",
}
"""Set by the first commit. Old versions remain readable, because only Tidemark's retention deletes log or data."""
_PARTITION_BY = [name for name, _ in PARTITION_COLUMNS]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaTables:
    """Implements `ports.StateTables` on a local or shared file system, or in a bucket with conditional puts.

    Attributes:
        warehouse: root of all tables.
        clock: stamps actions; no decision depends on it.
        own: the newest commits of this process, for a bucket.
    """

    warehouse: Root
    clock: Clock
    own: OwnCommits = field(default_factory=OwnCommits)

    def commit(self, request: CommitRequest, fence: Fence) -> Committed:
        """Commits, or raises; see `ports.StateTables`."""
        since: int | None = None
        request = self._hashed(request)
        for again in (False, True):
            # The order is the fence: read the version, then the attempt's outcome, then commit on that version. A later
            # attempt that revoked this one commits on a later version, so this commit conflicts.
            known = None if again else self._known(request)
            before = known[0] if known else self._newest_version(request)
            planned = self._confirmed(request, *known, fence) if known else self._checked(request, before, fence)
            if planned is None:
                continue
            version = before.version if before else -1
            since = version if since is None else since
            done = self._transact(request, before, planned)
            failure = None if isinstance(done, Commit) else done
            found = done if isinstance(done, Commit) else self._read_back(request, since)
            if found is not None:
                self._keep(request, found, planned, before)
                return Committed(commit=found, segment=_segment(request, found.version, planned))
            # A store may refuse both of two racing puts (S3's 409), so neither has committed.
            if failure is None or (again and not commit_at(self._path(request), version + 1)):
                if failure is not None:
                    refuse_away(self._path(request), failure)
                raise _lost(request, failure)
        raise ConflictError(
            f"conflict: another writer commits to {request.table} at the same time",
            safe="every completed checkpoint is intact; this attempt published nothing.",
            next="find the other writer (another run of this pipeline?), then run the pipeline again.",
        )

    def live_files(self, segment: Segment) -> Sequence[WrittenFile]:
        """Returns the files of a segment; see `ports.StateTables`."""
        return [f.file for f in self.files_of(segment)]

    def files_of(self, segment: Segment) -> list[LiveFile]:
        """Returns the files of a segment with their levels and checkpoints, oldest first.

        Raises:
            StoreError: the table has no such version, or has other files in it than were committed.
        """
        return segment_files(join_path(self.warehouse, segment.path), segment)

    def make_durable(self, commits: Iterable[Commit], folders: Iterable[str]) -> None:
        """Fsyncs the files of an attempt and reads every commit back; see `ports.StateTables`."""
        if isinstance(self.warehouse, str):
            for folder in folders:
                sync_folder(self.warehouse, folder)
            for commit in commits:
                sync_commit(self.warehouse, commit)
            return
        found = list(commits)
        with ThreadPoolExecutor(max(1, len(found))) as pool:
            list(pool.map(lambda commit: sync_commit(self.warehouse, commit), found))

    def _path(self, request: CommitRequest) -> WarehousePath:
        return join_path(self.warehouse, request.table)

    def _hashed(self, request: CommitRequest) -> CommitRequest:
        try:
            hashes = to_metadata(
                self._path(request), [f.path for f in request.files] + [f.path for f in request.replacing]
            )
        except OSError as error:
            raise unusable_table(self._path(request), f"a file to be added is not readable ({error})") from error
        return replace(request, metadata={**request.metadata, **hashes})

    def _known(self, request: CommitRequest) -> tuple[Snapshot, Commit] | None:
        """The version that this process has committed last to a table of a bucket, if it has."""
        path = self._path(request)
        kept = self.own.take(path) if isinstance(path, BucketPath) else None
        if kept is not None:
            self._refuse_other_schema(request, kept[0])
        return kept

    def _checked(self, request: CommitRequest, before: Snapshot | None, fence: Fence) -> Actions:
        planned = self._planned(request, before)
        fence.check()
        return planned

    def _confirmed(self, request: CommitRequest, before: Snapshot, commit: Commit, fence: Fence) -> Actions | None:
        """Checks the fence, and at the same time whether the version that this process knows is still the newest one.

        It was known before, which is the order that counts; the put of the next version proves again that it is the
        newest (adr/0071).

        Returns:
            None if there is a later version. That must be read, and the fence be checked behind that: this answer may
            be older than the later version.
        """
        path = self._path(request)
        assert isinstance(path, BucketPath)  # noqa: S101  (for the type checker; see `_known`)
        with ThreadPoolExecutor(2) as pool:
            proof, planned = pool.submit(is_newest, path, commit), pool.submit(self._planned, request, before)
            fence.check()
            return planned.result() if proof.result() else None

    def _newest_version(self, request: CommitRequest) -> Snapshot | None:
        table = self._open_table(self._path(request), request)
        if table is None:
            return None
        snapshot = Snapshot(version=table.version(), live=tuple(files_in(table)), schema=table.schema(), table=table)
        self._refuse_other_schema(request, snapshot)
        return snapshot

    def _refuse_other_schema(self, request: CommitRequest, found: Snapshot) -> None:
        if request.schema and shape(found.schema) != shape(delta_schema(request.schema)):
            path, why = self._path(request), "a changed stored schema starts a new table"
            raise unusable_table(path, f"its schema is not the operator's: {why}")

    def _open_table(self, path: WarehousePath, request: CommitRequest) -> DeltaTable | None:
        table = self._newest(path, -1 if request.parent is None else request.parent.version)
        if table is None:
            if request.parent is not None:
                raise unusable_table(path, f"it is gone, but version {request.parent.version} is this attempt's input")
            return None
        if table.metadata().partition_columns != _PARTITION_BY or table.protocol().min_reader_version > 1:
            raise unusable_table(path, "a foreign writer changed its partitioning or its protocol")
        return table

    def _newest(self, path: WarehousePath, settled: int) -> DeltaTable | None:
        """Opens the table at its newest version, after repairing what a power cut has torn (local disk)."""
        if isinstance(path, BucketPath):
            return newest(path)
        with translate_disk_errors(path):
            mend_commits(path, settled)
        try:
            return newest(path)
        except StoreError:
            with translate_disk_errors(path):
                mend_copies(path)
            return newest(path)

    def _planned(self, request: CommitRequest, before: Snapshot | None) -> Actions:
        parent: list[LiveFile] = []
        if request.parent is not None:
            is_newest = before is not None and before.version == request.parent.version
            parent = segment_files(self._path(request), request.parent, before.live if before and is_newest else None)
            absent = [path for path in self._unlisted(request, parent) if not (self._path(request) / path).is_file()]
            if absent:
                raise unusable_table(self._path(request), f"files of the input are gone: {', '.join(absent[:3])}")
        return actions(request, before.live if before else [], parent)

    def _unlisted(self, request: CommitRequest, files: Sequence[LiveFile]) -> list[str]:
        """The files of a table that have to be looked at one by one: on a disk all, in a bucket what no listing has."""
        wanted, table = {f.path for f in files}, self._path(request)
        if isinstance(table, BucketPath) and wanted:
            below = f"{request.table}/"
            for path, _ in table.folder.list_sizes(below, after=below + min(wanted)[:-1]):
                wanted.discard(path.removeprefix(below))
                if not wanted or path.removeprefix(below) > max(wanted):
                    break
        return sorted(wanted)

    def _transact(self, request: CommitRequest, before: Snapshot | None, planned: Actions) -> Commit | Exception | None:
        """Tries to commit once. An exception proves nothing (a lost reply, a failed hook): the caller reads back."""
        now, path = self.clock.now_ms(), self._path(request)
        metadata = {**request.metadata, **_parent(request), "write_id": request.write_id}
        if before is not None and isinstance(path, BucketPath):
            entry = entry_of(request, metadata, planned.add, planned.remove, now)
            return put_entry(path, before.version + 1, request, entry)
        adds = [AddAction(f.path, f.file.size, _partition(f), now, True, f.file.stats) for f in planned.add]
        removes = [RemoveAction(f.path, True, now, f.file.size, _partition(f)) for f in planned.remove]
        properties = CommitProperties(
            custom_metadata=metadata,
            max_commit_retries=0,
            app_transactions=[Transaction(*request.app)],
        )
        schema = before.schema if before and not request.schema else delta_schema(request.schema)
        table = None if before is None else before.table
        try:
            if table is None:
                create_table_with_add_actions(
                    str(path),
                    schema,
                    adds,
                    mode="append",
                    partition_by=_PARTITION_BY,
                    configuration=CONFIGURATION,
                    storage_options=storage_options(path),
                    commit_properties=properties,
                )
            else:
                table.create_write_transaction(
                    [*adds, *removes], "append", schema, partition_by=_PARTITION_BY, commit_properties=properties
                )
        except (DeltaError, OSError) as error:
            return error
        return None

    def _keep(self, request: CommitRequest, done: Commit, planned: Actions, before: Snapshot | None) -> None:
        """Remembers a commit to a bucket, if nothing came between it and the version that it was planned on."""
        path = self._path(request)
        if before is not None and isinstance(path, BucketPath) and done.version == before.version + 1:
            self.own.keep(path, planned.live, before.schema, done)

    def _read_back(self, request: CommitRequest, since: int) -> Commit | None:
        version = since + 1
        while found := commit_at(self._path(request), version):
            if found.write_id == request.write_id:
                return Commit(path=request.table, version=version, write_id=found.write_id, sha256=found.sha256)
            version += 1
        return None


def _parent(request: CommitRequest) -> dict[str, str]:
    return {} if request.parent is None else {PARENT: str(request.parent.version)}


def _partition(f: LiveFile) -> dict[str, str | None]:
    return {"_level": str(f.level), "_checkpoint": str(f.checkpoint)}


def _segment(request: CommitRequest, version: int, planned: Actions) -> Segment:
    return Segment(
        after=request.after,
        through=request.checkpoint,
        path=request.table,
        version=version,
        rows=sum(f.file.rows for f in planned.live),
        bytes=sum(f.file.size for f in planned.live),
        files=len(planned.live),
    )


def _lost(request: CommitRequest, failure: Exception | None) -> StoreError:
    return StoreError(
        f"commit failed: {request.table}: {failure or 'the commit is not in the log'}",
        safe="every completed checkpoint is intact; this attempt published nothing.",
        next="check the disk and its permissions, then run the pipeline again.",
    )
