"""The rows of a transform, made by DuckDB: compacted states, a query per operator, checked and matched answers.

Everything goes through files in a scratch folder. Memory is bounded by what DuckDB may use; it spills the rest. A query
runs in a connection of its own, which reads the source states alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC
from typing import Any

import duckdb
import pyarrow as pa

from tidemark.errors import UsageError
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.core.ttl import Now
from tidemark.model.kinds.base.sql import key_columns, quote
from tidemark.model.retention.export_manifest import ExportedFile
from tidemark.model.schema.operator_schema import OperatorSchema, run_columns
from tidemark.model.state.evolution import compare_schemas, shares_tables
from tidemark.readers.duckdb_session import (
    ALONE,
    literal,
    message_of,
    open_connection,
    refuse_overflow,
    stream_batches,
    translate_duckdb_errors,
)
from tidemark.readers.sql_views import refuse_other_statements, words_of
from tidemark.sql.initial_state import given_columns, stored_sql, timer_faults, window_fault
from tidemark.sql.transform_rows import (
    FAULT,
    UNTYPED,
    RefusedRows,
    TransformedState,
    checked_columns,
    is_number,
    kept_sql,
    matched_sql,
    source_columns,
    source_sql,
)
from tidemark.storage.local_store import Root
from tidemark.storage.parquet_folder import ParquetFolder
from tidemark.tables.delta_tables import arrow_schema, fits
from tidemark.transfer.bootstrap_tables import key_groups_of
from tidemark.transfer.export_folder import compacted_batches, order_columns, stored_order

_BATCH = 100_000
_EXAMPLES = 3
_GIVEN, _STORED, _WAS, _MATCHED = '"_given"', '"_compacted"', '"_source"', '"_matched"'


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """A state at the source of a transform.

    Attributes:
        schema: its stored schema.
        handle: the state.
        now: the clocks of the checkpoint.
    """

    schema: OperatorSchema
    handle: StateHandle
    now: Now


@dataclass(frozen=True, kw_only=True)
class SourceFiles:
    """The states at the source, compacted to scratch files when they are first needed.

    Attributes:
        warehouse: root of all tables.
        folder: the scratch folder.
        states: by uid, and by other names that no query can read.
    """

    warehouse: Root
    folder: ParquetFolder
    states: Mapping[str, SourceState]
    _files: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def readable(self) -> list[str]:
        """The states that a query may read."""
        return [name for name in self.states if "@" not in name]

    def paths(self, uid: str) -> tuple[str, ...]:
        """Returns the files of a state.

        Raises:
            UsageError: only Spark can read the state.
            StoreError: the state cannot be read.
        """
        if uid not in self._files:
            of = self.states[uid]
            columns = arrow_schema(run_columns(of.schema))
            with translate_duckdb_errors(f"state of {uid} cannot be read"):
                rows = compacted_batches(self.warehouse, of.schema, of.handle, of.now, is_sorted=False)
                self._files[uid] = self.folder.scratch_files(f"source/{uid}", rows, columns)
        return self._files[uid]

    def relation(self, uid: str) -> str:
        """Returns the compacted rows of a state, as a query reads them."""
        return _relation(self.paths(uid))

    def view(self, uid: str) -> str:
        """Returns the query of a state as readers see it; see `source_sql`."""
        return source_sql(self.states[uid].schema, self.relation(uid), self.states[uid].now)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateQuery:
    """The new state of one operator.

    Attributes:
        schema: the stored schema of the new state.
        statement: the query that returns it; None = its stored rows as they are, in other key groups.
        origin: name of the same state at the source; empty = it had none.
        at_ms: access time of rows that are not the same, on the operator's clock.
        frontier: windows up to it are closed and timers have fired; None = none has.
    """

    schema: OperatorSchema
    statement: str | None
    origin: str
    at_ms: int
    frontier: int | None


def read_by(statement: str, states: Mapping[str, SourceState]) -> list[str]:
    """Returns the operators whose states a query reads.

    Raises:
        UsageError: it is no SELECT, or DuckDB cannot parse it.
    """
    try:
        with open_connection() as connection:
            refuse_other_statements(connection.extract_statements(statement))
    except duckdb.Error as error:
        raise UsageError(message_of(error), next="correct the query.") from error
    words = {word.lower() for word in words_of(statement)}
    named = {uid: states[uid].schema for uid in states if uid.lower() in words}
    if not _binds(statement, named):
        return list(named)  # its run will say why
    # A column may have the name of an operator: a query reads the states without which its names are unknown.
    return [uid for uid in named if not _binds(statement, {n: s for n, s in named.items() if n != uid})]


def _binds(statement: str, schemas: Mapping[str, OperatorSchema]) -> bool:
    """Whether DuckDB finds all names of a statement in these states."""
    with open_connection() as connection:
        for uid, schema in schemas.items():
            connection.register(uid, arrow_schema(source_columns(schema)).empty_table())
        try:
            connection.sql(statement)
        except duckdb.Error:
            return False
    return True


class TransformedRows:
    """The new state of one operator, not written yet; valid inside the block of `transformed_rows`."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        query: StateQuery,
        refused: Sequence[RefusedRows],
        *,
        keeps: bool,
    ) -> None:
        self._connection, self._query, self._refused = connection, query, tuple(refused)
        self._keeps = keeps

    @property
    def is_empty(self) -> bool:
        """Whether no key has any state."""
        return self._count(_STORED if self._query.statement is None else _GIVEN) == 0

    def describe(self) -> TransformedState:
        """Returns the effect."""
        schema, of = self._query.schema, self._query
        before = self._count(_WAS) if of.origin else 0
        if of.statement is None:
            return _described(schema, before=before, after=before, unchanged=before)
        after, was, same = self._count(_GIVEN), 0, 0
        if of.origin:
            was = self._count(f'{_MATCHED} WHERE "_was"')
            same = self._count(f'{_MATCHED} WHERE "_same"')
        return replace(
            _described(schema, before=before, after=after, unchanged=same),
            inserted=after - was,
            changed=was - same,
            deleted=before - was,
            refused=self._refused,
        )

    def write(self, folder: ParquetFolder, name: str, number: int) -> list[ExportedFile]:
        """Writes the stored rows.

        Args:
            folder: the target folder.
            name: folder in it.
            number: id of the checkpoint that makes them.

        Raises:
            OSError: the disk refused.
            StateOverflowError, StoreError: DuckDB cannot make the rows.
        """
        schema = self._query.schema
        columns = run_columns(schema)
        with translate_duckdb_errors(f"state of {schema.uid} cannot be transformed"):
            rows = self._connection.sql(order_columns(self._rows(number), columns, stored_order(schema)))
            shape = arrow_schema(columns)
            return folder.files(name, stream_batches(rows, shape, _BATCH), shape)

    def _rows(self, number: int) -> str:
        schema, keys = self._query.schema, ", ".join(key_columns(self._query.schema))
        if self._query.statement is None:
            return f"FROM {_STORED}"
        if not self._keeps:
            return stored_sql(schema, _GIVEN, self._query.at_ms, number)
        others = f'(FROM {_GIVEN} SEMI JOIN (FROM {_MATCHED} WHERE NOT "_same") AS "_m" USING ({keys})) AS "_others"'
        made = stored_sql(schema, others, self._query.at_ms, number)
        return f"{kept_sql(schema, _STORED, _MATCHED)} UNION ALL {made}"

    def _count(self, relation: str) -> int:
        with translate_duckdb_errors(f"state of {self._query.schema.uid} cannot be transformed"):
            found: int = self._connection.sql(f"SELECT count(*) FROM {relation}").fetchall()[0][0]
        return found


@contextmanager
def transformed_rows(sources: SourceFiles, query: StateQuery) -> Iterator[TransformedRows]:
    """Makes the new state of an operator, and compares it with the one that it replaces.

    Raises:
        UsageError: the query fails, a column is missing or has another type; or only Spark can read a state.
        StateOverflowError: a key's merged state does not fit; the message names the key.
        StoreError: a state cannot be read.
    """
    schema, uid = query.schema, query.schema.uid
    before = sources.states[query.origin] if query.origin else None
    keeps = before is not None and _has_rows_of(before.schema, schema)
    refused: list[RefusedRows] = []
    given: tuple[str, ...] = ()
    if query.statement is None:
        stored = _regrouped(sources, query)
    else:
        given, refused = _answered(sources, query)
        stored = sources.paths(query.origin) if query.origin else ()
    with open_connection((*stored, *given), ALONE) as connection:
        with translate_duckdb_errors(f"state of {uid} cannot be transformed"):
            for name, paths in ((_STORED, stored), (_GIVEN, given)):
                if paths:
                    connection.execute(f"CREATE TEMP VIEW {name} AS FROM {_relation(paths)}")
            if before is not None:
                seen = source_sql(before.schema, _STORED, before.now)
                connection.execute(f"CREATE TEMP VIEW {_WAS} AS {seen}")
            if before is not None and given:
                compared = _compared(before.schema, schema)
                matched = matched_sql(schema, _GIVEN, _WAS, compared)
                connection.execute(f"CREATE TEMP TABLE {_MATCHED} AS {matched}")
            if given:
                refused += _faults(connection, query)
        yield TransformedRows(connection, query, refused, keeps=keeps)


def _described(schema: OperatorSchema, *, before: int, after: int, unchanged: int) -> TransformedState:
    return TransformedState(
        before=before,
        after=after,
        inserted=0,
        changed=0,
        deleted=0,
        unchanged=unchanged,
        key_groups=schema.key_groups,
    )


def _relation(paths: Sequence[str]) -> str:
    return f"read_parquet([{', '.join(map(literal, paths))}], hive_partitioning = false)"


def _has_rows_of(old: OperatorSchema, new: OperatorSchema) -> bool:
    """Whether stored rows of the old state are rows of the new one."""
    same = replace(new, key_groups=old.key_groups)
    return not compare_schemas(old, same).misfits and shares_tables(old, same)


def _compared(old: OperatorSchema, new: OperatorSchema) -> list[str]:
    """Returns the columns, besides keys, in which an answer is compared with the state that it replaces."""
    keys = {k.name for k in new.keys}
    seen = {name: of.sql for name, of in given_columns(old)}
    return [name for name, of in given_columns(new) if name not in keys and seen.get(name) == of.sql]


def _regrouped(sources: SourceFiles, query: StateQuery) -> tuple[str, ...]:
    """Writes the compacted rows of a state again, in other key groups; returns their files."""
    schema, columns = query.schema, arrow_schema(run_columns(query.schema))
    place = columns.get_field_index("_key_group")

    def batches() -> Iterator[pa.RecordBatch]:
        with open_connection(sources.paths(query.origin), ALONE) as connection:
            for batch in stream_batches(connection.sql(f"FROM {sources.relation(query.origin)}"), columns, _BATCH):
                groups = key_groups_of(schema, _key_values(schema, batch))
                yield batch.set_column(place, columns.field(place), groups)

    with translate_duckdb_errors(f"state of {schema.uid} cannot be read"):
        return sources.folder.scratch_files(f"regrouped/{schema.uid}", batches(), columns)


def _key_values(schema: OperatorSchema, rows: "pa.RecordBatch") -> Iterator[tuple[Any, ...]]:
    return zip(*(rows.column(k.name).to_pylist() for k in schema.keys), strict=True)


def _answered(sources: SourceFiles, query: StateQuery) -> tuple[tuple[str, ...], list[RefusedRows]]:
    """Runs a query, and writes its answer in the types of a table of state; returns the files, and refused rows."""
    schema, uid = query.schema, query.schema.uid
    wanted = arrow_schema([(name, of.sql) for name, of in given_columns(schema)])
    refused = _Refused(schema)
    group = pa.field("_key_group", pa.int32())
    statement = query.statement or ""

    def batches() -> Iterator[pa.RecordBatch]:
        read = read_by(statement, {name: sources.states[name] for name in sources.readable})
        with open_connection([path for found in read for path in sources.paths(found)], ALONE) as connection:
            for found in read:
                connection.execute(f"CREATE TEMP VIEW {quote(found)} AS {sources.view(found)}")
            connection.execute("SET lock_configuration = true")
            answer = connection.sql(statement)
            _refuse_columns(schema, answer)
            types = {name.lower(): str(of) for name, of in zip(answer.columns, answer.types, strict=True)}
            checked = answer.project(checked_columns(schema, types))
            for batch in stream_batches(checked, wanted.append(pa.field(FAULT, pa.string())), _BATCH):
                kept = refused.without(batch, query.frontier)
                groups = key_groups_of(schema, _key_values(schema, kept))
                yield pa.RecordBatch.from_arrays(
                    [*(kept.column(name) for name in wanted.names), groups], schema=wanted.append(group)
                )

    try:
        return sources.folder.scratch_files(f"given/{uid}", batches(), wanted.append(group)), refused.all()
    except duckdb.Error as error:
        refuse_overflow(error)
        known = ", ".join(sources.readable)
        raise UsageError(
            f"the query for {uid} fails: {message_of(error)}", next=f"correct it; it can read: {known}."
        ) from error
    except pa.ArrowException as error:
        raise _refused_answer(uid, f"a value does not fit: {str(error).splitlines()[0]}") from error


def _refuse_columns(schema: OperatorSchema, answer: duckdb.DuckDBPyRelation) -> None:
    """Refuses an answer that lacks a column, or has one of another type."""
    names = [name.lower() for name in answer.columns]
    types = dict(zip(names, map(str, answer.types), strict=True))
    held = dict(zip(names, answer.limit(0).to_arrow_table().schema.types, strict=True))
    wrong = [f"column {name} is there twice" for name in sorted({n for n in names if names.count(n) > 1})]
    for name, of in given_columns(schema):
        found = types.get(name.lower())
        if found is None:
            wrong.append(f"{name} {of.shown} is missing")
        elif found != UNTYPED and not is_number(found, of) and not fits(held[name.lower()], of):
            wrong.append(f"{name} is {found}, not {of.shown}")
    if wrong:
        raise _refused_answer(schema.uid, "; ".join(wrong))


def _refused_answer(uid: str, why: str) -> UsageError:
    return UsageError(
        f"the query for {uid} does not return its state: {why}",
        safe="nothing was written.",
        next="return one row per key, and cast columns in the query, as in CAST(total AS BIGINT).",
    )


class _Refused:
    """Counts the rows that cannot be state."""

    def __init__(self, schema: OperatorSchema) -> None:
        self._schema = schema
        self._found: dict[str, tuple[int, list[str]]] = {}

    def without(self, batch: pa.RecordBatch, frontier: int | None) -> pa.RecordBatch:
        """Returns a batch without the rows that are refused, after noting these."""
        faults = batch.column(FAULT).to_pylist() if batch.column(FAULT).null_count < batch.num_rows else []
        window, keys = self._schema.window, list[tuple[Any, ...]]()
        if window is not None:
            faults = faults or [None] * batch.num_rows
            keys = list(_key_values(self._schema, batch))
            for n, (*_, start, end) in enumerate(keys):
                if faults[n] is None:
                    faults[n] = window_fault(window, start.astimezone(UTC), end.astimezone(UTC), frontier)
        if not any(faults):
            return batch
        keys = keys or list(_key_values(self._schema, batch))
        for key, why in zip(keys, faults, strict=True):
            if why is not None:
                self.add(why, 1, [_key_text(key)])
        return batch.filter(pa.array([why is None for why in faults]))

    def add(self, why: str, rows: int, some: Sequence[str]) -> None:
        """Notes rows."""
        count, known = self._found.get(why, (0, []))
        self._found[why] = count + rows, [*known, *some][:_EXAMPLES]

    def all(self) -> list[RefusedRows]:
        """Returns the reasons with their rows."""
        return [RefusedRows(why=why, rows=n, some=tuple(some)) for why, (n, some) in self._found.items()]


def _key_text(key: Sequence[object]) -> str:
    return "/".join("null" if value is None else str(value) for value in key)


def _faults(connection: duckdb.DuckDBPyConnection, query: StateQuery) -> list[RefusedRows]:
    """Returns rows of the answer whose keys occur twice, or whose columns contradict each other."""
    schema = query.schema
    keys, found = ", ".join(key_columns(schema)), _Refused(schema)
    twice = f"SELECT {keys}, count(*) AS _n FROM {_GIVEN} GROUP BY ALL HAVING count(*) > 1"
    (rows, _), *_ = connection.sql(f"SELECT coalesce(sum(_n), 0), count(*) FROM ({twice})").fetchall()
    if rows:
        some = connection.sql(f"SELECT {keys} FROM ({twice}) ORDER BY ALL LIMIT {_EXAMPLES}").fetchall()
        found.add("its key occurs more than once", int(rows), [_key_text(key) for key in some])
    torn = [fault for f in schema.fields for fault in f.state_kind.import_faults(f)]
    for wrong, why in [*torn, *timer_faults(schema, query.frontier)]:
        (rows,), *_ = connection.sql(f"SELECT count(*) FROM {_GIVEN} WHERE {wrong}").fetchall()
        if rows:
            torn_keys = f"SELECT {keys} FROM {_GIVEN} WHERE {wrong} ORDER BY ALL LIMIT {_EXAMPLES}"
            found.add(why, int(rows), [_key_text(key) for key in connection.sql(torn_keys).fetchall()])
    return found.all()
