"""State at a checkpoint: the only place that makes resolved rows, or a view of them, from a checkpoint and a uid.

Everything that decides what a reader sees is in the checkpoint: the stored schema, the handle, the clock of its plan.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.kinds.base.sql import quote
from tidemark.model.schema.event_windows import END
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.readers.state_reader import (
    RESOLVED,
    Relation,
    empty_state,
    query_state,
    read_state,
    resolve,
    stored_rows,
    stream_state,
)
from tidemark.sql.resolve import resolving_sql
from tidemark.storage.local_store import Root

_TABLE_ROWS = 200_000
"""Rows of a table of a stream, and so of a row group of an exported file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Resolved state that is not read yet.

    Attributes:
        rows: the rows to register under a name.
        sql: the query over that relation that gives one row per live key.
    """

    rows: Relation
    sql: Callable[[str], str]


def read_checkpoint(warehouse: Root, checkpoint: Checkpoint, uid: str, key: Sequence[object] | None = None) -> pa.Table:
    """Returns one row per live key of an operator at a checkpoint; see `state_reader.read_state`.

    Raises:
        StoreError: a version or a file of the handle is missing.
        StateOverflowError: a key's merged state does not fit; the message names the key.
    """
    return read_state(warehouse, checkpoint.plan.schemas[uid], checkpoint.handles[uid], checkpoint.now, key)


def stream_checkpoint(
    warehouse: Root, checkpoint: Checkpoint, uid: str, first: int | None = None
) -> Iterator[pa.Table]:
    """Yields the rows of `read_checkpoint` in bounded memory, in tables of some 100,000 rows; see `stream_state`.

    Raises:
        StoreError: a version or a file of the handle is missing.
        StateOverflowError: a key's merged state does not fit; the message names the key.
    """
    batches: list[pa.RecordBatch] = []
    for batch in stream_state(warehouse, checkpoint.plan.schemas[uid], checkpoint.handles[uid], checkpoint.now, first):
        batches.append(batch)
        if sum(b.num_rows for b in batches) >= _TABLE_ROWS:
            yield pa.Table.from_batches(batches)
            batches = []
    if batches:
        yield pa.Table.from_batches(batches)


def resolve_rows(checkpoint: Checkpoint, uid: str, rows: Any) -> pa.Table:
    """Returns one row per live key of stored rows that the caller has chosen: all rows of each of its keys.

    Raises:
        StateOverflowError: a key's merged state does not fit; the message names the key.
    """
    return resolve(checkpoint.plan.schemas[uid], checkpoint.now, rows)


def view(warehouse: Root, checkpoint: Checkpoint, uid: str) -> View:
    """Returns the state of an operator at a checkpoint as a view, which reads only what a query needs.

    Raises:
        StoreError: a version or a file of the handle is missing.
    """
    schema = checkpoint.plan.schemas[uid]
    rows = stored_rows(warehouse, schema, checkpoint.handles[uid])
    if rows is None:
        return View(rows=Relation(parts=((empty_state(schema), None),)), sql="FROM {}".format)
    return View(rows=rows, sql=lambda relation: resolving_sql(schema, relation, checkpoint.now))


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTime:
    """What becomes due at one time: windows that close, rows that have waited for a partner, or timers that fire.

    Attributes:
        at_ms: the time, in milliseconds since the epoch: it is due once the frontier has reached it.
        count: the number of windows, rows or timers.
        some: up to three of their keys, and the name of a timer before its key.
    """

    at_ms: int
    count: int
    some: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """All that waits for the frontier of an operator.

    Attributes:
        total: the number of windows, rows or timers.
        overdue: how many of them are due at a given time or before.
        last_ms: the last time at which one is due; None if nothing waits.
        first: the first times.
    """

    total: int
    overdue: int
    last_ms: int | None
    first: list[DueTime]


_DUE = pa.schema(
    [(name, pa.int64()) for name in ("_at", "_count")]
    + [("_some", pa.list_(pa.string()))]
    + [(name, pa.int64()) for name in ("_all", "_overdue", "_last")]
)
_SOME = 3
_NEVER = -(2**62)


def due_times(warehouse: Root, checkpoint: Checkpoint, uid: str, first: int, overdue_ms: int | None = None) -> Waiting:
    """Returns what waits for the frontier of an operator: the number of all of it, and the first times.

    Args:
        warehouse: root of all tables.
        checkpoint: the checkpoint.
        uid: an operator with windows or timers.
        first: the most times to return.
        overdue_ms: counts those that are due at this time or before; None = none of them.

    Raises:
        StoreError: a version or a file of the handle is missing.
        StateOverflowError: a key's merged state does not fit; the message names the key.
    """
    schema, total, overdue, last = checkpoint.plan.schemas[uid], 0, 0, list[int]()
    counts, some = Counter[int](), dict[int, list[str]]()
    query = _due_sql(schema, first, _NEVER if overdue_ms is None else overdue_ms)
    for batch in query_state(warehouse, schema, checkpoint.handles[uid], checkpoint.now, query, _DUE):
        columns = [column.to_pylist() for column in batch.columns]
        if batch.num_rows:
            total, overdue, last = total + columns[3][0], overdue + columns[4][0], [*last, columns[5][0]]
        for at, count, keys in zip(*columns[:3], strict=True):
            counts[at] += count
            some[at] = sorted([*some.get(at, ()), *keys])[:_SOME]
    found = sorted(counts.items())[:first]
    return Waiting(
        total=total,
        overdue=overdue,
        last_ms=max(last, default=None),
        first=[DueTime(at_ms=at, count=count, some=tuple(some[at])) for at, count in found],
    )


def _due_sql(schema: OperatorSchema, first: int, overdue_ms: int) -> str:
    """Returns the query of the first times of a range of key groups; each row has the counts of all in it."""
    key = f"concat_ws(', ', {', '.join(f'CAST({quote(k.name)} AS VARCHAR)' for k in schema.own_keys)})"
    if schema.timers is None:
        waiting = f"SELECT epoch_ms({quote(END)}) AS _at, {key} AS _key FROM {RESOLVED}"
    else:
        entries = f"SELECT {key} AS _of, unnest(map_entries({quote(schema.timers.name)})) AS _timer FROM {RESOLVED}"
        waiting = f"SELECT epoch_ms(_timer.value) AS _at, _timer.key || ' of ' || _of AS _key FROM ({entries}) AS _all"
    late = f"count(*) FILTER (WHERE _at <= {overdue_ms})"
    return (
        f"SELECT _at, count(*) AS _count, min(_key, {_SOME}) AS _some, CAST(sum(count(*)) OVER () AS BIGINT) AS _all, "
        f"CAST(sum({late}) OVER () AS BIGINT) AS _overdue, max(_at) OVER () AS _last "
        f"FROM ({waiting}) AS _waiting GROUP BY _at ORDER BY _at LIMIT {first}"
    )
