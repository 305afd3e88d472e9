"""The states of one operator as a change log gets them: what each checkpoint inserted, updated and deleted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.kinds.base.sql import key_columns, quote
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.ports.publishing import Columns, Difference, StatePart
from tidemark.publications.operator_states import OperatorStates
from tidemark.readers.checkpoint_reader import read_checkpoint
from tidemark.readers.duckdb_session import QueryRunner, open_query_runner
from tidemark.readers.state_diff import Comparison, Detail
from tidemark.sql.resolve import empty_columns
from tidemark.storage.local_store import Root
from tidemark.tables.delta_tables import arrow_schema

_OPERATIONS = "CASE change WHEN 'inserted' THEN 'insert' WHEN 'updated' THEN 'update' ELSE 'delete' END"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeStates:
    """See `ports.publishing.PublishedStates`; rows are changes, and none replaces another one.

    Attributes:
        warehouse: root of all tables.
        uid: the operator.
    """

    warehouse: Root
    uid: str

    @staticmethod
    def columns(schema: OperatorSchema) -> Columns:
        """Returns (column, SQL type) of the rows: the key, the operation, the row before and after, two checkpoints."""
        keys = {key.name for key in schema.keys}
        fields = ", ".join(f"`{name}`: {of}" for name, of in empty_columns(schema) if name not in keys)
        row = f"STRUCT<{fields}>"
        own = (("_op", "STRING"), ("before", row), ("after", row), ("_from", "BIGINT"), ("_checkpoint", "BIGINT"))
        return (*((key.name, key.type.sql) for key in schema.keys), *own)

    def state_of(self, rows: pa.Table, schema: OperatorSchema) -> pa.Table:
        """See `ports.publishing.PublishedStates`: the newest row of each key, if it is no delete."""
        state, keys = arrow_schema(empty_columns(schema)), {key.name for key in schema.keys}
        columns = ", ".join(quote(n) if n in keys else f"after.{quote(n)} AS {quote(n)}" for n in state.names)
        by = ", ".join(key_columns(schema))
        newest = f"QUALIFY row_number() OVER (PARTITION BY {by} ORDER BY _checkpoint DESC) = 1"
        with open_query_runner() as ask:
            found = ask(f"SELECT {columns} FROM (FROM rows {newest}) WHERE _op <> 'delete'", rows=rows)
        return found.select(state.names).cast(state)

    def parts(self, checkpoint: Checkpoint) -> list[StatePart]:
        """See `ports.publishing.PublishedStates`: the whole state as inserts."""
        schema = checkpoint.plan.schemas[self.uid]

        def inserts(part: StatePart) -> Iterator[pa.Table]:
            for table in part.read():
                yield _inserts(schema, table, checkpoint.id)

        states = OperatorStates(warehouse=self.warehouse, uid=self.uid)
        return [replace(part, read=partial(inserts, part)) for part in states.parts(checkpoint)]

    def difference(
        self, before: Checkpoint, after: Checkpoint, ancestor: int, erased: Sequence[tuple[object, ...]]
    ) -> Difference:
        """See `ports.publishing.PublishedStates`.

        The states no longer say what an erased key had, so it is deleted without `before`, or inserted if it is back.
        """
        schema = after.plan.schemas[self.uid]
        columns, keys = arrow_schema(ChangeStates.columns(schema)), [key.name for key in schema.keys]
        gone = pa.Table.from_pylist(
            [dict(zip(keys, key, strict=True)) for key in dict.fromkeys(erased)],
            schema=pa.schema([columns.field(key) for key in keys]),
        )
        back = [read_checkpoint(self.warehouse, after, self.uid, key) for key in dict.fromkeys(erased)]
        with open_query_runner() as ask:
            changed = self._changes(ask, before, after, ancestor, columns)
            again = pa.concat_tables([columns.empty_table(), *(_inserts(schema, rows, after.id) for rows in back)])
            told = ask(_with_erased(schema, before.id, after.id), changed=changed, gone=gone, again=again)
        return Difference(upserts=told.select(columns.names).cast(columns), deletes=gone.slice(0, 0), erased=gone)

    def _changes(
        self, ask: QueryRunner, before: Checkpoint, after: Checkpoint, ancestor: int, columns: pa.Schema
    ) -> pa.Table:
        if before.id == after.id:
            return columns.empty_table()
        compared = Comparison(warehouse=self.warehouse, uid=self.uid, before=before, after=after, ancestor=ancestor)
        rows = compared.diff(Detail.VALUES).rows
        keys = ", ".join(f"key.{name} AS {name}" for name in key_columns(compared.schema))
        ids = f"CAST({before.id} AS BIGINT) AS _from, CAST({after.id} AS BIGINT) AS _checkpoint"
        found = ask(f"SELECT {keys}, {_OPERATIONS} AS _op, before, after, {ids} FROM rows", rows=rows)
        return found.select(columns.names).cast(columns)


def _inserts(schema: OperatorSchema, rows: pa.Table, checkpoint: int) -> pa.Table:
    """The rows of a state as inserts."""
    columns, keys = arrow_schema(ChangeStates.columns(schema)), {key.name for key in schema.keys}
    rows = rows.cast(arrow_schema(empty_columns(schema))).combine_chunks()
    fields = columns.field("after").type
    inner = [rows[name].combine_chunks() for name in rows.column_names if name not in keys]
    after = pa.StructArray.from_arrays([_one_chunk(array) for array in inner], fields=list(fields))
    constant = {"_op": "insert", "before": None, "_from": 0, "_checkpoint": checkpoint}
    arrays = [
        after if name == "after"
        else rows[name].combine_chunks() if name in keys
        else pa.repeat(pa.scalar(constant[name], columns.field(name).type), rows.num_rows)
        for name in columns.names
    ]  # fmt: skip
    return pa.Table.from_arrays([_one_chunk(array) for array in arrays], schema=columns)


def _one_chunk(array: "pa.Array | pa.ChunkedArray") -> pa.Array:
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array


def _with_erased(schema: OperatorSchema, before: int, after: int) -> str:
    """Returns the query that puts erased keys in place of what the difference says about them."""
    keys = ", ".join(key_columns(schema))
    columns = ", ".join(quote(name) for name, _ in ChangeStates.columns(schema))
    ids = f"CAST({before} AS BIGINT) AS _from, CAST({after} AS BIGINT) AS _checkpoint"
    # The structs have the types of the changes, even if there are none.
    empty = "(SELECT before FROM changed WHERE false)"
    deleted = f"SELECT {keys}, 'delete' AS _op, {empty} AS before, {empty} AS after, {ids} FROM gone"
    return (
        f"SELECT {columns} FROM changed ANTI JOIN gone USING ({keys})"
        f" UNION ALL BY NAME SELECT * REPLACE (CAST({before} AS BIGINT) AS _from) FROM again"
        f" UNION ALL BY NAME {deleted} ANTI JOIN again USING ({keys})"
    )
