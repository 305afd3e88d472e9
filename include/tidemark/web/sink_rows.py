"""The source of a row of a sink: the checkpoint and the DAG run that emitted it, and the record."""

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import Any

from tidemark.answers.checkpoint_facts import iso
from tidemark.answers.row_sources import DueRow, RecordPage, SinkOrigin, SinkRowOrigin
from tidemark.context import Context
from tidemark.errors import NotFoundError, ReleasedError
from tidemark.model.checkpoint.emitted import windows_of
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.sinks import PATH, ROW_ID
from tidemark.model.schema.event_windows import END, START, from_ms
from tidemark.model.schema.key_groups import key_hash
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.operations import reads
from tidemark.operations.sinks import sink_of
from tidemark.web import history_cache, row_origin
from tidemark.web.row_origin import plain
from tidemark.web.source_lookup import RecordQuery, read_records

_OURS = {"_checkpoint", *(name for name, _ in ROW_ID)}
_MOST_CHECKPOINTS, _MOST_RECORDS = 20, 100


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

    named = _naming(context, name, checkpoint)
    table = sink_of(named, sink)
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
        rows=[_row(named, row) for row in found[:limit]],
    )


def _naming(context: Context, name: str, checkpoint: int) -> Checkpoint:
    """A manifest that names the rows of a checkpoint: its own, or the newest one if retention released it."""
    try:
        return reads.get_checkpoint(context, history_cache.require_planned(context, name), checkpoint)
    except ReleasedError:
        return reads.get_checkpoint(context, name)


def _row(named: Checkpoint, row: Mapping[str, Any]) -> SinkRowOrigin:
    return SinkRowOrigin(
        row={column: plain(value) for column, value in row.items() if column not in _OURS},
        uid=row["_uid"],
        partition=f"{row['_topic']}-{row['_partition']}",
        offset=row["_offset"],
        path=row[PATH],
        due=_due(named, row),
    )


def _due(named: Checkpoint, row: Mapping[str, Any]) -> DueRow | None:
    """What became due when a row was emitted; None if it was emitted for a record."""
    kind, slash, uid = str(row["_topic"]).partition("/")
    schema = named.plan.schemas.get(uid)
    if not slash or schema is None:
        return None
    pairs = schema.interval_join is not None
    what = "pair" if pairs else "window" if kind == windows_of(uid).topic.partition("/")[0] else "timer"
    key = () if pairs else _key_of(schema, row)
    return DueRow(operator=uid, what=what, at=iso(row["_offset"]), key=key)


def _key_of(schema: OperatorSchema, row: Mapping[str, Any]) -> tuple[str, ...]:
    """The key of the window or the timer that a row comes from, as texts; empty if the row does not have it.

    Columns of an operator behind it may have the names of key columns and other values: the path has the key's hash.
    """
    own = [row.get(k.name) for k in schema.own_keys]
    if key_hash(own) != row[PATH][0]:
        return ()
    if schema.window is None:
        return tuple(map(_text, own))
    start, end = row.get(START), from_ms(row["_offset"])
    if row.get(END) != end or not isinstance(start, datetime):
        if schema.window.is_merged or not schema.window.has_row_per_window:
            return ()
        start = schema.window.bounds(end - timedelta(milliseconds=1))[0]
    return (*map(_text, own), start.isoformat(), end.isoformat())


def _text(value: Any) -> str:
    """A value of a key as `parse_key` reads it."""
    return value.isoformat() if isinstance(value, datetime | date) else str(value)


def read_due_records(
    context: Context, name: str, origin: SinkOrigin, row: SinkRowOrigin, limit: int
) -> list[RecordPage]:
    """Records of the window or the timer that a row comes from, by the checkpoints that read them, newest first.

    Args:
        context: of this process.
        name: the pipeline.
        origin: the answer that has the row.
        row: the row, whose `due` has a key.
        limit: the most records; reading ends after 20 checkpoints, too.

    Raises:
        BrokerError: Kafka does not answer.
    """
    assert row.due is not None  # noqa: S101  (for the type checker)
    pages, uid, key = list[RecordPage](), row.due.operator, row.due.key
    changed = row_origin.describe_change(context, name, origin.changed.checkpoint, uid)
    while changed.known and limit > 0 and len(pages) < _MOST_CHECKPOINTS:
        query = RecordQuery(uid=uid, key=key, limit=min(limit, _MOST_RECORDS))
        pages.append(read_records(context, name, changed.checkpoint, query))
        limit -= len(pages[-1].records)
        if changed.parent is None:
            break
        try:
            changed = row_origin.find_origin(context, name, uid, key, changed.parent).changed
        except NotFoundError:
            break
    return pages
