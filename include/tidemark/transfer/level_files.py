"""Levels of a state merged without a JVM: DuckDB merges one range of key groups after the other, pyarrow writes.

Files are sorted by key group, so a range skips the row groups of others, and the written files have a range each
(adr/0064). Memory is bounded by the rows of a range.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa

from tidemark.model.checkpoint.manifest import WrittenRun
from tidemark.model.schema.key_groups import KeyGroupRange, key_group_ranges
from tidemark.model.schema.operator_schema import run_columns
from tidemark.model.state.compaction import LevelMerge
from tidemark.readers.duckdb_session import open_connection, stream_batches, translate_duckdb_errors
from tidemark.readers.state_reader import Relation, relation_of
from tidemark.sql.resolve import compacted_sql
from tidemark.storage.local_store import Root, fsync, stage_folder
from tidemark.storage.parquet_folder import ROW_GROUP, open_rows_writer, row_groups
from tidemark.tables.delta_tables import arrow_schema
from tidemark.tables.key_rewriter import Footers, translate_library_errors
from tidemark.transfer.export_folder import RANGE_ROWS, order_columns, stored_order

RANGE_BYTES = 64 * 2**20
"""Bytes in files of a range, as `RANGE_ROWS`."""
GROUP_BYTES = 8 * 2**20
"""Bytes of a row group in memory: a reader of one key decodes one of many."""


def merge_levels(warehouse: Root, merge: LevelMerge, footers: Footers) -> WrittenRun:
    """Writes the rows of a compaction. Durable.

    Half of the processors stay free, because checkpoints continue in the meantime.

    Args:
        warehouse: root of all tables.
        merge: the rows, and the folder to write to.
        footers: reads the written files, as every commit does.

    Raises:
        UsageError: only Spark can merge the rows (`spark_only`).
        StateOverflowError: merged state does not fit; the message names the key.
        StoreError: a file cannot be read or written.
    """
    schema, what = merge.schema, f"state of {merge.schema.uid} cannot be compacted"
    with (
        translate_library_errors(what, safe=_SAFE, following=_NEXT),
        translate_duckdb_errors(what),
        stage_folder(warehouse, merge.folder) as target,
    ):
        target.mkdir(parents=True, exist_ok=True)
        stored, rows = relation_of(warehouse, schema, merge.groups), 0
        with open_connection(stored.files, _config()) as connection:
            for number, ranges in enumerate(_files(merge) if merge.groups else ()):
                batches = _merged(connection, merge, stored, ranges)
                rows += _write(batches, arrow_schema(run_columns(schema)), target / f"part-{number:05d}.parquet")
        fsync(target)
        return footers(str(target), rows, schema.bounded_columns)


_SAFE = "no checkpoint names the files that were written."
_NEXT = "check the disk, then run tidemark compact again."


def _config() -> Mapping[str, str]:
    cores = os.cpu_count() or 1
    with suppress(AttributeError):  # not on every system
        cores = len(os.sched_getaffinity(0))
    return {"threads": str(max(1, cores // 2)), "memory_limit": "1GB"}


def _files(merge: LevelMerge) -> Iterator[Sequence[KeyGroupRange]]:
    """Yields the ranges of each file, in order."""
    least = max(math.ceil(merge.rows / RANGE_ROWS), math.ceil(merge.bytes / RANGE_BYTES), 1)
    files, groups = min(merge.files, merge.schema.key_groups), merge.schema.key_groups
    ranges = key_group_ranges(groups, min(files * math.ceil(least / files), groups))
    each = math.ceil(len(ranges) / files)
    for first in range(0, len(ranges), each):
        yield ranges[first : first + each]


def _merged(
    connection: duckdb.DuckDBPyConnection, merge: LevelMerge, stored: Relation, ranges: Sequence[KeyGroupRange]
) -> Iterator[pa.RecordBatch]:
    schema, columns = merge.schema, run_columns(merge.schema)
    for within in ranges:
        relation = replace(stored, key_groups=within).register(connection, "rows")
        query = compacted_sql(schema, relation, merge.now, deepest=merge.deepest)
        rows = connection.sql(order_columns(query, columns, stored_order(schema)))
        yield from stream_batches(rows, arrow_schema(columns), ROW_GROUP)


def _write(batches: Iterator[pa.RecordBatch], schema: pa.Schema, path: Path) -> int:
    """Writes one file, unless there are no rows; returns their number."""
    tables = row_groups(batches, schema)
    held, rows = next(tables, None), 0
    if held is None:
        return 0
    with open_rows_writer(path, schema) as writer:
        while held is not None:
            writer.write_table(held, max(1, min(ROW_GROUP, GROUP_BYTES * held.num_rows // held.nbytes)))
            rows += held.num_rows
            held = next(tables, None)
    fsync(path)
    return rows
