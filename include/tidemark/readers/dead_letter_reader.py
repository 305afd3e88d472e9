"""Reads dead letters as of a manifest, without a JVM; it excludes rows that no manifest names."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.model.checkpoint.row_tables import ROW_CHECKPOINT, letter_rows, may_hold
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.core.offsets import TopicPartition
from tidemark.readers.state_reader import files_of
from tidemark.storage.local_store import Root
from tidemark.tables.row_files import read_file

_POSITION = ["topic", "partition", "offset"]
_WHY = [*_POSITION, "uid", "reason"]
_WHOLE = [*_WHY, "timestamp", "key", "value", "path"]


def dead_letters(
    warehouse: Root, handle: StateHandle, checkpoint: int, limit: int, offset: int = 0, reason: str | None = None
) -> dict[str, Any]:
    """Returns the records that one checkpoint could not apply, ordered by position.

    Args:
        warehouse: its root.
        handle: the dead-letter table of an operator.
        checkpoint: its id.
        limit: the most rows to return.
        offset: the number of rows to pass over.
        reason: only records that were rejected for it.

    Returns:
        `rows`, at most `limit` from `offset` on, with the raw key and value, and the total number.

    Raises:
        StoreError: a version or a file of the handle is missing.
    """
    columns = _POSITION if reason is None else [*_POSITION, "reason"]
    places = [_placed(part, n) for n, part in enumerate(_parts(warehouse, handle, checkpoint, columns))]
    if reason is not None:
        places = [part.filter(pc.equal(part["reason"], reason)) for part in places]
    if not places:
        return {"rows": [], "count": 0}
    # Rows of one position are in the order of their paths, as they were written.
    order = [(name, "ascending") for name in (*_POSITION, "_file", "_row")]
    placed = pa.concat_tables(places).sort_by(order)
    wanted = placed.slice(offset, limit).to_pylist()
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for n, part in enumerate(_parts(warehouse, handle, checkpoint, _WHOLE)):
        here = [w["_row"] for w in wanted if w["_file"] == n]
        found |= zip(((n, row) for row in here), part.take(here).to_pylist() if here else (), strict=True)
    return {"rows": [found[w["_file"], w["_row"]] for w in wanted], "count": placed.num_rows}


def _placed(part: pa.Table, n: int) -> pa.Table:
    """Adds the number of a file, and that of each row in it."""
    numbered = part.append_column("_file", pa.repeat(pa.scalar(n, pa.int32()), part.num_rows))
    return numbered.append_column("_row", pa.array(range(part.num_rows), pa.int64()))


def count_letters(
    warehouse: Root, handles: Mapping[str, StateHandle], checkpoint: int
) -> tuple[dict[str, Counter[str]], int]:
    """Counts the records that operators could not apply in one checkpoint.

    Args:
        warehouse: its root.
        handles: the dead-letter tables by operator.
        checkpoint: its id.

    Returns:
        Per operator the number of letters by reason, and the number of records, each of which counts once.

    Raises:
        StoreError: a version or a file of a handle is missing.
    """
    reasons, places = {uid: Counter[str]() for uid in handles}, list[pa.Table]()
    for uid, handle in handles.items():
        for part in _parts(warehouse, handle, checkpoint, [*_POSITION, "reason"]):
            for found in part["reason"].value_counts().to_pylist():
                reasons[uid][found["values"]] += found["counts"]
            places.append(part.select(_POSITION))
    records = pa.concat_tables(places).group_by(_POSITION).aggregate([]).num_rows if places else 0
    return reasons, records


def reasons_at(
    warehouse: Root, handle: StateHandle, checkpoint: int, places: Collection[tuple[TopicPartition, int]]
) -> dict[tuple[TopicPartition, int], str]:
    """Returns why records of a checkpoint became dead letters of the operator, by the positions where one did.

    Raises:
        StoreError: a version or a file of the handle is missing.
    """
    wanted = [(tp.topic, tp.partition, offset) for tp, offset in places]
    rows = [row for part in _parts(warehouse, handle, checkpoint, _WHY) for row in _at(part, wanted)]
    return {(TopicPartition(r["topic"], r["partition"]), r["offset"]): r["reason"] for r in rows}


def _at(part: pa.Table, places: Collection[tuple[str, int, int]]) -> list[dict[str, Any]]:
    if not places:
        return []
    near = part.filter(pc.is_in(part["offset"], pa.array([offset for *_, offset in places], pa.int64())))
    rows: list[dict[str, Any]] = near.to_pylist()
    return [row for row in rows if (row["topic"], row["partition"], row["offset"]) in places]


def _parts(warehouse: Root, handle: StateHandle, checkpoint: int, columns: list[str]) -> Iterator[pa.Table]:
    held = letter_rows(handle)
    for segment, f in files_of(warehouse, handle):
        if may_hold(segment, f, checkpoint):
            yield read_file(warehouse, held, segment, f, columns, checkpoint).drop_columns([ROW_CHECKPOINT])
