"""Reads state without a JVM: deltalake opens each segment at its version, DuckDB reads its files and resolves.

Nothing here imports pandas, which takes longer than most queries: pyarrow imports it for datasets, and to make an array
of a Python list.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from tidemark.model.checkpoint.segments import Segment, StateHandle
from tidemark.model.core.ttl import Now
from tidemark.model.kinds.base.sql import quote
from tidemark.model.portable_sql.dialects import DUCKDB
from tidemark.model.schema.key_groups import KeyGroupRange, group_of, key_group_ranges
from tidemark.model.schema.operator_schema import OperatorSchema, run_columns
from tidemark.model.state.closed_files import open_groups
from tidemark.model.state.compaction import Group, groups_of, is_top_light
from tidemark.model.state.key_choice import KeyChoice, condition_of
from tidemark.ports import LiveFile
from tidemark.readers.duckdb_session import (
    ALONE,
    WORKER,
    literal,
    open_connection,
    stream_batches,
    translate_duckdb_errors,
)
from tidemark.sql.resolve import compacted_sql, empty_columns, mapped_sql, resolving_sql, single_sql
from tidemark.storage.bucket_path import BucketPath
from tidemark.storage.local_store import Root, WarehousePath, address_of, arrow_place, join_path, open_warehouse
from tidemark.tables.delta_reader import segment_files, unusable_table
from tidemark.tables.delta_tables import arrow_schema

if TYPE_CHECKING:
    from tidemark.storage.s3_location import S3Place


ROWS_AT_ONCE = 4_000_000
"""Stored rows of a range of a stream: they fit into memory, and each range opens all files again."""
RESOLVED = '"_resolved"'
"""The relation with the resolved rows of a range, in queries over them."""


def read_state(
    warehouse: Root, schema: OperatorSchema, handle: StateHandle, now: Now, key: Sequence[object] | None = None
) -> pa.Table:
    """Returns one row per live key: key columns, state fields, `_changed`, in no particular order.

    Args:
        warehouse: root of all tables.
        schema: the operator's stored schema in the manifest.
        handle: its state in the manifest.
        now: the checkpoint's clocks.
        key: only this key, one value per key column; files and row groups that cannot contain it are skipped. Without
            the bounds of a window, all open windows of the key.

    Raises:
        StoreError: a version or a file of the handle is missing.
        StateOverflowError: a key's merged state does not fit; the message names the key.
    """
    groups = _open_groups(warehouse, schema, handle, now)
    if not groups:
        return empty_state(schema)
    if key is None and is_top_light(schema, groups):
        below, newer = (relation_of(warehouse, schema, part) for part in (groups[:1], groups[1:]))
        return _split(schema, now, below, newer)
    return resolve(schema, now, relation_of(warehouse, schema, groups), key)


def empty_state(schema: OperatorSchema) -> pa.Table:
    """Returns no rows, in the columns of resolved state."""
    return pa.Table.from_batches([], schema=arrow_schema(empty_columns(schema)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """Rows that are not read yet, in the form for DuckDB.

    Attributes:
        parts: each is an Arrow table, a dataset, or paths of Parquet files with the same columns, together with the
            query that turns it into rows of one schema, or None if it has these rows already.
        key_groups: only rows of these; None = all. Row groups of others are skipped.
        where: of those, only rows that meet this condition; empty = all.
    """

    parts: tuple[tuple[Any, Callable[[str], str] | None], ...]
    key_groups: KeyGroupRange | None = None
    where: str = ""

    @property
    def files(self) -> list[str]:
        """Paths of all files, which a connection must be allowed to open."""
        return [path for rows, _ in self.parts if isinstance(rows, tuple) for path in rows]

    def register(self, connection: duckdb.DuckDBPyConnection, name: str) -> str:
        """Registers the rows with a connection; returns the relation that a query reads."""
        selected = []
        for n, (rows, sql) in enumerate(self.parts):
            if isinstance(rows, tuple):
                relation = f"read_parquet([{', '.join(map(literal, rows))}], hive_partitioning = false)"
            else:
                own = f"{name} {n}"
                connection.register(own, rows)
                relation = '"' + own.replace('"', '""') + '"'
            selected.append(f"FROM {relation}" if sql is None else sql(relation))
        rows, of = f'({" UNION ALL ".join(selected)}) AS "_stored"', self.key_groups
        if of is None:
            return rows
        more = f" AND {self.where}" if self.where else ""
        return f'(SELECT * FROM {rows} WHERE "_key_group" BETWEEN {of.first} AND {of.last}{more}) AS "_of_range"'


def stored_rows(warehouse: Root, schema: OperatorSchema, handle: StateHandle) -> Relation | None:
    """Returns the rows of a handle's files in the columns of a schema, unread; None if it has no files.

    Raises:
        StoreError: a version or a file of the handle is missing.
    """
    groups = groups_of(handle, lambda segment: _files_of(warehouse, segment))
    return relation_of(warehouse, schema, groups) if groups else None


def relation_of(warehouse: Root, schema: OperatorSchema, groups: Sequence[Group]) -> Relation:
    """Returns the rows of groups in the columns of a schema, unread."""
    paths: dict[str, list[WarehousePath]] = {}
    for group in groups:
        table = group.segment.path if schema.layout(group.segment.path) is not None else ""
        paths.setdefault(table, []).extend(join_path(warehouse, group.segment.path, f.path) for f in group.files)
    return Relation(parts=tuple((readable(found), _mapping(schema, table)) for table, found in paths.items()))


def readable(files: Sequence[WarehousePath]) -> Any:
    """Returns files of one layout: paths for DuckDB's own reader, or a dataset for a bucket, which reads on demand."""
    places = [arrow_place(path) for path in files]
    if not isinstance(files[0], BucketPath):
        return tuple(path for path, _ in places)
    from pyarrow import dataset

    return dataset.dataset([path for path, _ in places], filesystem=places[0][1], format="parquet")


def _mapping(schema: OperatorSchema, table: str) -> Callable[[str], str]:
    return lambda relation: mapped_sql(schema, table, relation, DUCKDB)


def resolve(schema: OperatorSchema, now: Now, rows: Any, key: Sequence[object] | None = None) -> pa.Table:
    """Returns one row per live key of stored rows: a `Relation` or an Arrow table with all rows of each of its keys.

    Args:
        schema: the operator's stored schema.
        now: the checkpoint's clocks.
        rows: the stored rows.
        key: only this key.

    Raises:
        StoreError: the rows cannot be read.
        StateOverflowError: a key's merged state does not fit; the message names the key.
    """
    relation = rows if isinstance(rows, Relation) else Relation(parts=((rows, None),))
    where, values = ("", []) if key is None else _of_key(schema, key)
    with (
        open_connection(relation.files) as connection,
        translate_duckdb_errors(f"state of {schema.uid} cannot be read"),
    ):
        query = resolving_sql(schema, relation.register(connection, "rows"), now, where=where)
        resolved = connection.sql(query, params=values).to_arrow_table()
        return resolved.cast(arrow_schema(empty_columns(schema)))


def _split(schema: OperatorSchema, now: Now, below: Relation, newer: Relation) -> pa.Table:
    """Resolves the oldest group and all newer ones; see `resolve`."""
    with (
        open_connection([*below.files, *newer.files]) as connection,
        translate_duckdb_errors(f"state of {schema.uid} cannot be read"),
    ):
        query = _splitting(connection, schema, now, below, newer)
        return connection.sql(query).to_arrow_table().cast(arrow_schema(empty_columns(schema)))


def _splitting(
    connection: duckdb.DuckDBPyConnection, schema: OperatorSchema, now: Now, below: Relation, newer: Relation
) -> str:
    """Returns the query that finishes rows of the oldest group without newer rows, without a merge (adr/0007)."""
    keys = ", ".join(quote(k.name) for k in schema.keys)
    oldest, above = below.register(connection, "below"), newer.register(connection, "newer")
    touched = f'(SELECT {keys} FROM {above}) AS "_touched"'
    alone = f'(SELECT * FROM {oldest} ANTI JOIN {touched} USING ({keys})) AS "_alone"'
    beneath = f"SELECT * FROM {oldest} SEMI JOIN {touched} USING ({keys})"
    merged = f'(SELECT * FROM {above} UNION ALL BY NAME {beneath}) AS "_stored"'
    return f"{single_sql(schema, alone, now)} UNION ALL {resolving_sql(schema, merged, now)}"


def range_reader(
    warehouse: Root, schema: OperatorSchema, handle: StateHandle, now: Now, choice: KeyChoice | None = None
) -> Callable[[KeyGroupRange], Iterator[pa.RecordBatch]]:
    """Returns a function that resolves any range of key groups of a state, in this process or, pickled, in another one.

    It takes the range and yields batches of the rows of `read_state`. It uses one thread and a bounded part of the
    memory. Another process must see the same warehouse at the same path; for a bucket it uses its own credentials,
    because none are sent.

    Args:
        warehouse: root of all tables.
        schema: the operator's stored schema.
        handle: its state.
        now: the checkpoint's clocks.
        choice: only these keys; row groups that cannot contain one are skipped. None = all keys.

    Raises:
        UsageError: only Spark can read the state.
        StoreError: a version or a file of the handle is missing; the returned function raises it too, and
            StateOverflowError.
    """
    resolving_sql(schema, '"_stored"', now)  # raises here if no worker can resolve it
    groups = _open_groups(warehouse, schema, handle, now)
    return partial(_read_range, address_of(warehouse), schema, groups, now, choice or {})


KeyReader = Callable[[KeyGroupRange, pa.Table], pa.Table]
"""Returns the stored rows of some keys of a range of key groups; see `key_reader`."""


def key_reader(warehouse: Root, schema: OperatorSchema, groups: Sequence[Group], due: str) -> KeyReader:
    """Returns a function that looks up keys of a state, in this process or, pickled, in another one.

    It takes a range of key groups and a table of keys of that range, and returns their newest stored rows, in
    `run_columns`, without tombstones. It uses one thread and a bounded part of the memory.

    Args:
        warehouse: root of all tables.
        schema: the operator's stored schema.
        groups: the files to look in.
        due: condition on stored rows, in DuckDB's SQL: the keys of the rows that meet it count as given; empty = none.

    Raises:
        StoreError: a file is missing; the returned function raises it.
    """
    return partial(_read_keys, address_of(warehouse), schema, tuple(groups), due)


def _read_keys(
    address: "str | S3Place",
    schema: OperatorSchema,
    groups: Sequence[Group],
    due: str,
    within: KeyGroupRange,
    keys: pa.Table,
) -> pa.Table:
    names = ", ".join(quote(k.name) for k in schema.keys)
    with open_warehouse(address) as root, translate_duckdb_errors(f"state of {schema.uid} cannot be read"):
        relation = replace(relation_of(root, schema, groups), key_groups=within)
        with open_connection(relation.files, WORKER) as connection:
            connection.register("given", keys)
            stored = relation.register(connection, "rows")
            wanted = f"SELECT {names} FROM given"
            if due:
                wanted += f" UNION ALL SELECT {names} FROM {stored} WHERE {due}"
            found = f'(SELECT * FROM {stored} SEMI JOIN ({wanted}) AS "_wanted" USING ({names})) AS "_found"'
            newest = compacted_sql(schema, found, Now(), deepest=False)
            rows = connection.sql(f"""SELECT * FROM ({newest}) AS "_newest" WHERE "_kind" <> 'tombstone'""")
            return rows.to_arrow_table().cast(arrow_schema(run_columns(schema)))


def stream_state(
    warehouse: Root, schema: OperatorSchema, handle: StateHandle, now: Now, first: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of `read_state` in bounded memory: one range of key groups after the other.

    Args:
        warehouse: root of all tables.
        schema: the operator's stored schema.
        handle: its state.
        now: the checkpoint's clocks.
        first: of each range, only so many rows, the first by key; the caller merges them.

    Raises:
        StoreError: a version or a file of the handle is missing.
        StateOverflowError: a key's merged state does not fit; the message names the key.
    """
    query = None
    if first is not None:
        keys = ", ".join(quote(k.name) for k in schema.keys)
        query = f"SELECT * FROM {RESOLVED} ORDER BY {keys} LIMIT {first}"
    mode = _Mode(config=ALONE, query=query, columns=arrow_schema(empty_columns(schema)))
    yield from _stream(warehouse, schema, handle, now, mode)


def query_state(
    warehouse: Root, schema: OperatorSchema, handle: StateHandle, now: Now, query: str, columns: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yields the answers to a query over the rows of `read_state`, of one range of key groups after the other.

    Args:
        warehouse: root of all tables.
        schema: the operator's stored schema.
        handle: its state.
        now: the checkpoint's clocks.
        query: a query of DuckDB over `RESOLVED`.
        columns: the columns of the answers.

    Raises:
        StoreError: a version or a file of the handle is missing.
        StateOverflowError: a key's merged state does not fit; the message names the key.
    """
    yield from _stream(warehouse, schema, handle, now, _Mode(config=ALONE, query=query, columns=columns))


def _stream(
    warehouse: Root, schema: OperatorSchema, handle: StateHandle, now: Now, mode: "_Mode"
) -> Iterator[pa.RecordBatch]:
    groups = _open_groups(warehouse, schema, handle, now)
    count = max(1, min(math.ceil(handle.rows / ROWS_AT_ONCE), schema.key_groups))
    yield from _read_ranges(
        address_of(warehouse), schema, groups, now, key_group_ranges(schema.key_groups, count), mode
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mode:
    """How ranges are read.

    Attributes:
        config: DuckDB's settings.
        columns: the columns of the answer.
        query: a query over `RESOLVED`, the rows of a range; None = these rows, in no particular order.
        choice: only rows of these keys.
    """

    config: Mapping[str, str]
    columns: pa.Schema
    query: str | None = None
    choice: KeyChoice = field(default_factory=dict)


def _read_range(
    address: "str | S3Place",
    schema: OperatorSchema,
    groups: Sequence[Group],
    now: Now,
    choice: KeyChoice,
    key_groups: KeyGroupRange,
) -> Iterator[pa.RecordBatch]:
    mode = _Mode(config=WORKER, columns=arrow_schema(empty_columns(schema)), choice=choice)
    return _read_ranges(address, schema, groups, now, (key_groups,), mode)


def _read_ranges(
    address: "str | S3Place",
    schema: OperatorSchema,
    groups: Sequence[Group],
    now: Now,
    ranges: Iterable[KeyGroupRange],
    mode: _Mode,
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of one range after the other, from one connection."""
    if not groups:
        return
    parts = (groups[:1], groups[1:]) if is_top_light(schema, groups) else (groups,)
    values: list[object] = []
    where = condition_of(schema, mode.choice, schema.found_by, values)
    # The bounds of a session are known only once its rows are merged.
    merged = condition_of(schema, mode.choice, [k for k in schema.keys if k not in schema.found_by], values)
    with open_warehouse(address) as root, translate_duckdb_errors(f"state of {schema.uid} cannot be read"):
        relations = [relation_of(root, schema, part) for part in parts]
        with open_connection([path for rows in relations for path in rows.files], mode.config) as connection:
            for key_groups in ranges:
                within = [replace(rows, key_groups=key_groups, where=where) for rows in relations]
                query = _range_query(connection, schema, now, within)
                if merged:
                    query = f'SELECT * FROM ({query}) AS "_sessions" WHERE {merged}'
                if mode.query is not None:
                    # Materialized, as common table expressions are by default, all rows would be held for a few.
                    query = f"WITH {RESOLVED} AS NOT MATERIALIZED ({query}) {mode.query}"
                yield from stream_batches(connection.sql(query, params=values), mode.columns)


def _range_query(
    connection: duckdb.DuckDBPyConnection, schema: OperatorSchema, now: Now, relations: Sequence[Relation]
) -> str:
    if len(relations) > 1:
        return _splitting(connection, schema, now, relations[0], relations[1])
    return resolving_sql(schema, relations[0].register(connection, "rows"), now)


def files_of(warehouse: Root, handle: StateHandle) -> list[tuple[Segment, LiveFile]]:
    """Returns the files of a handle with the segments that name them, oldest segment first.

    Raises:
        StoreError: a version or a file of the handle is missing.
    """
    return [(segment, f) for segment in handle for f in _files_of(warehouse, segment)]


def _open_groups(warehouse: Root, schema: OperatorSchema, handle: StateHandle, now: Now) -> tuple[Group, ...]:
    groups = groups_of(handle, lambda segment: _files_of(warehouse, segment))
    return tuple(open_groups(schema, groups, now.frontiers.get(schema.uid)))


def _files_of(warehouse: Root, segment: Segment) -> list[LiveFile]:
    table = join_path(warehouse, segment.path)
    found = segment_files(table, segment)
    for f in found:
        if not (table / f.path).is_file():
            raise unusable_table(table, f"file {f.path} of version {segment.version} is gone")
    return found


def _of_key(schema: OperatorSchema, key: Sequence[object]) -> tuple[str, list[object]]:
    """Returns a condition with parameters, and their values."""
    names = ["_key_group", *(k.name for k in schema.keys[: len(key)])]
    condition = " AND ".join(f"{quote(name)} = ${n}" for n, name in enumerate(names, 1))
    return condition, [group_of(schema, key), *key]
