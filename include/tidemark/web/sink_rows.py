"""The source of a row of a sink: the checkpoint and the DAG run that emitted it, and the record."""

from collections.abc import Mapping
from typing import Any

from tidemark.answers.row_sources import SinkOrigin, SinkRowOrigin
from tidemark.context import Context
from tidemark.errors import NotFoundError, ReleasedError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.sinks import PATH, ROW_ID
from tidemark.operations import reads
from tidemark.operations.sinks import sink_of
from tidemark.web import history_cache, row_origin
from tidemark.web.row_origin import plain

_OURS = {"_checkpoint", *(name for name, _ in ROW_ID)}


def find_sink_origin(
    context: Context, name: str, sink: str, checkpoint: int, where: Mapping[str, str], limit: int = 20
) -> SinkOrigin:
    """Rows of a sink that one checkpoint emitted, each with the record that it was emitted for.

    Args:
        context: of this process.
        name: the pipeline.
        sink: its name.
        checkpoint: the value of column `_checkpoint`.
        where: values as text, by column; empty = any row.
        limit: the most rows to return.

    Raises:
        NotFoundError: no such pipeline, checkpoint or sink, or no such row.
        UsageError: no such column, or a text that is no value of its type.
        StoreError: a file of the sink is gone.
    """
    from tidemark.readers.sink_reader import found_rows

    table = sink_of(_naming(context, name, checkpoint), sink)
    warehouse = context.warehouse.root
    found = found_rows(warehouse, table, checkpoint, where, limit + 1)
    if not found:
        raise NotFoundError(
            f"chk-{checkpoint} has emitted no such row to {sink}",
            safe="nothing was changed.",
            next=f"check the row's _checkpoint and values: tidemark sink show {name} {sink}.",
        )
    uid = str(found[0]["_uid"])
    return SinkOrigin(
        sink=sink,
        uid=uid,
        more=len(found) > limit,
        changed=row_origin.describe_change(context, name, checkpoint, uid),
        rows=[_row(row) for row in found[:limit]],
    )


def _naming(context: Context, name: str, checkpoint: int) -> Checkpoint:
    """A manifest that names the rows of a checkpoint: its own, or the newest one if retention released it."""
    try:
        return reads.get_checkpoint(context, history_cache.require_planned(context, name), checkpoint)
    except ReleasedError:
        return reads.get_checkpoint(context, name)


def _row(row: Mapping[str, Any]) -> SinkRowOrigin:
    return SinkRowOrigin(
        row={column: plain(value) for column, value in row.items() if column not in _OURS},
        uid=row["_uid"],
        partition=f"{row['_topic']}-{row['_partition']}",
        offset=row["_offset"],
        path=row[PATH],
    )
