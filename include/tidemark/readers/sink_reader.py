"""Reads emitted rows as of a manifest, without a JVM; it excludes rows that no manifest names."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.errors import UsageError
from tidemark.model.checkpoint.sinks import ROW_ID, SinkTable
from tidemark.model.state.sink_evolution import sources_of
from tidemark.readers.state_reader import files_of
from tidemark.storage.local_store import Root, arrow_place, join_path
from tidemark.tables.delta_reader import unusable_table
from tidemark.tables.delta_tables import arrow_schema

_CHECKPOINT = pa.field("_checkpoint", pa.int64())


def read_sink(warehouse: Root, table: SinkTable) -> pa.Table:
    """Returns all rows of a sink: emitted fields, `_uid`, position, `_n`, `_checkpoint`; by checkpoint and position.

    Raises:
        StoreError: a version or a file of the handle is missing.
    """
    schema = arrow_schema(table.stored).append(_CHECKPOINT)
    parts = [part for checkpoint in _checkpoints(warehouse, table) for part in _rows(warehouse, table, checkpoint)]
    rows = pa.concat_tables([schema.empty_table(), *parts])
    order = ["_checkpoint", *(name for name, _ in ROW_ID[1:])]
    return rows.sort_by([(name, "ascending") for name in order])


def outbox_rows(warehouse: Root, table: SinkTable, checkpoint: int) -> Iterator[dict[str, Any]]:
    """Returns the rows that one checkpoint left in a sink, ordered by position.

    Raises:
        StoreError: a version or a file of the handle is missing.
    """
    for part in _rows(warehouse, table, checkpoint):
        for batch in part.sort_by([(name, "ascending") for name, _ in ROW_ID[1:]]).to_batches(max_chunksize=1000):
            yield from batch.to_pylist()


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
    found = pa.concat_tables(kept).sort_by([(name, "ascending") for name, _ in ROW_ID[1:]]).slice(0, limit)
    rows: list[dict[str, Any]] = found.to_pylist(maps_as_pydicts="strict")
    return rows


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


def _checkpoints(warehouse: Root, table: SinkTable) -> list[int]:
    return sorted({f.checkpoint for _, f in files_of(warehouse, table.handle)})


def _rows(warehouse: Root, table: SinkTable, checkpoint: int) -> Iterator[pa.Table]:
    schema = arrow_schema(table.stored)
    for segment, f in files_of(warehouse, table.handle):
        if f.checkpoint != checkpoint:
            continue
        path, system = arrow_place(join_path(warehouse, segment.path, f.path))
        try:
            held = pq.read_table(
                path, columns=_stored_columns(table, segment.path), partitioning=None, filesystem=system
            )
            rows = pa.table([_column(held, of) for of in schema], schema=schema)
        except (OSError, pa.ArrowInvalid) as error:
            raise unusable_table(
                join_path(warehouse, segment.path), f"file {f.path} cannot be read: {error}"
            ) from error
        yield rows.append_column(_CHECKPOINT, pa.repeat(pa.scalar(checkpoint, pa.int64()), rows.num_rows))


def _stored_columns(table: SinkTable, path: str) -> list[str]:
    """Returns the columns to read from one of its tables, which another declaration may have begun."""
    return [*sources_of(table, path), *(name for name, _ in ROW_ID)]


def _column(rows: pa.Table, of: pa.Field) -> pa.ChunkedArray:
    if of.name not in rows.column_names:
        return pa.chunked_array([pa.nulls(rows.num_rows, of.type)])
    return rows[of.name].cast(of.type)
