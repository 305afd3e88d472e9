"""State at a checkpoint: the only place that makes resolved rows, or a view of them, from a checkpoint and a uid.

Everything that decides what a reader sees is in the checkpoint: the stored schema, the handle, the clock of its plan.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.readers.state_reader import Relation, empty_state, read_state, resolve, stored_rows, stream_state
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
