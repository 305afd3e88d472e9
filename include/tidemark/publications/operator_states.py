"""The states of one operator as targets get them: all rows of a checkpoint, or the changes between two."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.kinds.base.sql import key_columns
from tidemark.model.schema.key_groups import KeyGroupRange, key_group_ranges
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.ports.publishing import Columns, Difference, StatePart
from tidemark.readers.checkpoint_reader import read_checkpoint
from tidemark.readers.diff_candidates import Search, Side
from tidemark.readers.duckdb_session import QueryRunner, open_query_runner
from tidemark.readers.state_diff import Comparison, compare_states, expires
from tidemark.readers.state_reader import range_reader
from tidemark.readers.stored_rows import StoredRows
from tidemark.sql.resolve import empty_columns
from tidemark.storage.local_store import Root
from tidemark.tables.delta_tables import arrow_schema

ROWS_PER_PART = 2_000_000
"""Stored rows of a part, at most twice as many as its keys as a rule: a file of 32 to 128 MiB for ordinary rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorStates:
    """See `ports.publishing.PublishedStates`.

    Attributes:
        warehouse: root of all tables.
        uid: the operator.
    """

    warehouse: Root
    uid: str

    @staticmethod
    def columns(schema: OperatorSchema) -> Columns:
        """Returns (column, SQL type) of the rows: those of `tidemark state export`."""
        return tuple(empty_columns(schema))

    def state_of(self, rows: pa.Table, schema: OperatorSchema) -> pa.Table:
        """See `ports.publishing.PublishedStates`: they are the state."""
        return rows

    def parts(self, checkpoint: Checkpoint) -> list[StatePart]:
        """See `ports.publishing.PublishedStates`; a part is a range of key groups."""
        schema, handle = checkpoint.plan.schemas[self.uid], checkpoint.handles[self.uid]
        read = range_reader(self.warehouse, schema, handle, checkpoint.now)
        count = max(1, min(math.ceil(handle.rows / ROWS_PER_PART), schema.key_groups))

        def part(of: KeyGroupRange) -> StatePart:
            # An erasure revises the manifest, and the rows of the key with it.
            name = f"{checkpoint.revision}-{of.first}-{of.last}"
            return StatePart(name=name, read=lambda: (pa.Table.from_batches([batch]) for batch in read(of)))

        return [part(of) for of in key_group_ranges(schema.key_groups, count)]

    def difference(
        self, before: Checkpoint, after: Checkpoint, ancestor: int, erased: Sequence[tuple[object, ...]]
    ) -> Difference:
        """See `ports.publishing.PublishedStates`.

        If values expire, or stored rows have several schemas, both states are resolved in full.
        """
        compared = Comparison(warehouse=self.warehouse, uid=self.uid, before=before, after=after, ancestor=ancestor)
        schema = compared.schema
        with open_query_runner() as ask:
            if before.id == after.id:
                found = _no_rows(schema), _no_rows(schema)
            elif compared.has_evolved or expires(schema):
                found = self._by_whole_states(ask, before, after)
            else:
                found = self._by_candidates(ask, compared)
            changed, gone = found
            return self._with_erased(ask, after, changed, gone, erased)

    def _by_whole_states(self, ask: QueryRunner, before: Checkpoint, after: Checkpoint) -> tuple[pa.Table, pa.Table]:
        schema = after.plan.schemas[self.uid]
        old, new = (read_checkpoint(self.warehouse, at, self.uid) for at in (before, after))
        changes, keys = compare_states(ask, schema, old, new), _keys(schema)
        changed = ask(f"FROM new SEMI JOIN changes USING ({keys})", new=new, changes=changes)
        return changed, ask(f"SELECT {keys} FROM changes WHERE _change = 'deleted'", changes=changes)

    def _by_candidates(self, ask: QueryRunner, compared: Comparison) -> tuple[pa.Table, pa.Table]:
        stored, keys = StoredRows(self.warehouse, compared.schema, ask), _keys(compared.schema)
        before, after = (Side.of(stored, at, self.uid, compared.ancestor) for at in (compared.before, compared.after))
        search = Search(stored, before, after)
        changes = search.changes(all_hits=False, inserts=False)
        living = ask(f"SELECT {keys} FROM changes WHERE _change <> 'deleted'", changes=changes)
        gone = ask(f"SELECT {keys} FROM changes WHERE _change = 'deleted'", changes=changes)
        return search.values_after(living), gone

    def _with_erased(
        self,
        ask: QueryRunner,
        after: Checkpoint,
        changed: pa.Table,
        gone: pa.Table,
        erased: Sequence[tuple[object, ...]],
    ) -> Difference:
        """Adds the rows of erased keys that are in the state again: their files are written without the old ones."""
        schema = after.plan.schemas[self.uid]
        columns, keys = arrow_schema(empty_columns(schema)), _keys(schema)
        again = [read_checkpoint(self.warehouse, after, self.uid, key).cast(columns) for key in dict.fromkeys(erased)]
        upserts = changed.select(columns.names).cast(columns)
        back = pa.concat_tables([columns.empty_table(), *again])
        more = ask(f"FROM back ANTI JOIN upserts USING ({keys})", back=back, upserts=upserts)
        own = pa.schema([columns.field(key.name) for key in schema.keys])
        names = [key.name for key in schema.keys]
        rows = [dict(zip(names, key, strict=True)) for key in dict.fromkeys(erased)]
        return Difference(
            upserts=pa.concat_tables([upserts, more.select(columns.names).cast(columns)]),
            deletes=gone.select(names).cast(own),
            erased=pa.Table.from_pylist(rows, schema=own),
        )


def _keys(schema: OperatorSchema) -> str:
    return ", ".join(key_columns(schema))


def _no_rows(schema: OperatorSchema) -> pa.Table:
    return arrow_schema(empty_columns(schema)).empty_table()
