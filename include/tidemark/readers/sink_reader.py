"""Reads emitted rows as of a manifest, without a JVM; it excludes rows that no manifest names."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.errors import UsageError
from tidemark.model.checkpoint.row_tables import may_hold, sink_rows
from tidemark.model.checkpoint.sinks import PATH, ROW_ID, SinkTable
from tidemark.readers.state_reader import files_of
from tidemark.storage.local_store import Root
from tidemark.tables.delta_tables import arrow_schema
from tidemark.tables.row_files import read_file

_PLACE = [name for name, _ in ROW_ID[1:]]
_CHECKPOINT = pa.field("_checkpoint", pa.int64())


def read_sink(warehouse: Root, table: SinkTable) -> pa.Table:
    """Returns all rows of a sink: emitted fields, `_uid`, position, `_path`, `_checkpoint`; by checkpoint and position.

    Raises:
        StoreError: a version or a file of the handle is missing.
    """
    schema = arrow_schema(table.stored).append(_CHECKPOINT)
    rows = pa.concat_tables([schema.empty_table(), *_rows(warehouse, table)])
    return _ordered(rows, ["_checkpoint", *_PLACE])


def rows_since(warehouse: Root, table: SinkTable, checkpoint: int) -> pa.Table:
    """Returns the rows of later checkpoints, in no particular order; see `read_sink`.

    Raises:
        StoreError: a version or a file of the handle is missing.
    """
    schema = arrow_schema(table.stored).append(_CHECKPOINT)
    later = (part.filter(pc.field("_checkpoint") > checkpoint) for part in _rows(warehouse, table, after=checkpoint))
    return pa.concat_tables([schema.empty_table(), *later])


def count_since(warehouse: Root, table: SinkTable, checkpoint: int) -> int:
    """Returns an upper bound of the rows of later checkpoints, which the list of files is enough for.

    Raises:
        StoreError: a version or a file of the handle is missing.
    """
    return sum(f.file.rows for _, f in files_of(warehouse, table.handle) if f.checkpoint > checkpoint)


def outbox_rows(warehouse: Root, table: SinkTable, checkpoint: int) -> Iterator[dict[str, Any]]:
    """Returns the rows that one checkpoint left in a sink, ordered by position.

    Raises:
        StoreError: a version or a file of the handle is missing.
    """
    for part in _rows(warehouse, table, checkpoint):
        for batch in _ordered(part, _PLACE).to_batches(max_chunksize=1000):
            yield from batch.to_pylist(maps_as_pydicts="strict")


def found_rows(
    warehouse: Root, table: SinkTable, checkpoint: int, where: Mapping[str, str], limit: int
) -> list[dict[str, Any]]:
    """Returns rows that one checkpoint left in a sink, with given values in some columns, ordered by position.

    Args:
        warehouse: the folder.
        table: the sink.
        checkpoint: the checkpoint; no file of another one is read.
        where: values as text, by column.
        limit: maximum number of rows.

    Raises:
        UsageError: there is no such column, or a text is not a value of its type.
        StoreError: a version or a file of the handle is missing.
    """
    schema = arrow_schema(table.stored)
    values = {name: _value(schema, name, text) for name, text in where.items()}
    kept = [schema.append(_CHECKPOINT).empty_table()]
    for part in _rows(warehouse, table, checkpoint):
        for name, value in values.items():
            part = part.filter(pc.equal(part[name], value))
        kept.append(part)
    found = _ordered(pa.concat_tables(kept), _PLACE).slice(0, limit)
    rows: list[dict[str, Any]] = found.to_pylist(maps_as_pydicts="strict")
    return rows


def _ordered(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Sorts rows; Arrow does not sort by lists, so the numbers of a path become columns for the time of the sort."""
    deepest = pc.max(pc.list_value_length(rows[PATH])).as_py() or 0
    keyed, numbers = rows, [f"{PATH}{n}" for n in range(deepest)]
    if deepest:
        padded = pc.list_slice(rows[PATH], 0, deepest, return_fixed_size_list=True)
        for n, name in enumerate(numbers):
            keyed = keyed.append_column(name, pc.fill_null(pc.list_element(padded, n), -1))
    order = [(name, "ascending") for name in (*(c for c in columns if c != PATH), *numbers)]
    return rows.take(pc.sort_indices(keyed, sort_keys=order))


def _value(schema: pa.Schema, name: str, text: str) -> pa.Scalar:
    if name not in schema.names:
        raise UsageError(f"the sink has no column {name!r}", next=f"name one of: {', '.join(schema.names)}.")
    of = schema.field(name).type
    try:
        at = datetime.fromisoformat(text) if pa.types.is_timestamp(of) else None
        if at is not None:
            return pa.scalar(at if at.tzinfo else at.replace(tzinfo=UTC), of)
        return pa.scalar(text).cast(of)
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise UsageError(f"not a value of column {name} ({of}): {text!r}", next=f"give a value of {name}.") from error


def _rows(warehouse: Root, table: SinkTable, checkpoint: int = 0, *, after: int = 0) -> Iterator[pa.Table]:
    """The rows of each file that has some of a checkpoint behind `after`, or those of one checkpoint if it is given."""
    held = sink_rows("", table)
    names = [name for name, _ in table.stored]
    for segment, f in files_of(warehouse, table.handle):
        if f.checkpoint > after and (not checkpoint or may_hold(segment, f, checkpoint)):
            rows = read_file(warehouse, held, segment, f, names, checkpoint)
            yield rows.rename_columns([*names, _CHECKPOINT.name])
