"""Reads dead letters as of a manifest, without a JVM; it excludes rows that no manifest names."""

from collections.abc import Collection, Iterator
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
_WHOLE = [*_WHY, "timestamp", "key", "value"]


def dead_letters(warehouse: Root, handle: StateHandle, checkpoint: int, limit: int, offset: int = 0) -> dict[str, Any]:
    """Returns the records that one checkpoint could not apply, ordered by position.

    Returns:
        `rows`, at most `limit` from `offset` on, with the raw key and value, and the total number.

    Raises:
        StoreError: a version or a file of the handle is missing.
    """
    places = [part.append_column("_file", pa.repeat(pa.scalar(n, pa.int32()), part.num_rows))
              for n, part in enumerate(_parts(warehouse, handle, checkpoint, _POSITION))]  # fmt: skip
    if not places:
        return {"rows": [], "count": 0}
    order = [(name, "ascending") for name in _POSITION]
    placed = pa.concat_tables(places).sort_by(order)
    wanted = placed.slice(offset, limit).to_pylist()
    found: list[dict[str, Any]] = []
    for n, part in enumerate(_parts(warehouse, handle, checkpoint, _WHOLE)):
        here = [(w["topic"], w["partition"], w["offset"]) for w in wanted if w["_file"] == n]
        found += _at(part, here)
    found.sort(key=lambda r: tuple(r[name] for name in _POSITION))
    return {"rows": found, "count": placed.num_rows}


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
