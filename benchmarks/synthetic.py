"""State of any size without Kafka: pyarrow writes the tables that checkpoints and compactions would have left."""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.generator import START_MS, key_text, uniform
from benchmarks.pipelines import sized
from tidemark.model.checkpoint.commits import CommitRequest
from tidemark.model.checkpoint.segments import Segment, StateHandle, WrittenFile
from tidemark.model.core.ttl import Now
from tidemark.model.schema.operator_schema import OperatorSchema, run_columns
from tidemark.ports import Fence
from tidemark.tables.delta_tables import DeltaTables, arrow_schema
from tidemark.testing.twin.memory import ManualClock

UPDATES = 20_000
BASE = 1_000
"""The checkpoint id of the base; the runs have the ids after it."""
NOW = Now(event_time_ms=START_MS, logical_time_ms=START_MS)


class _Open:
    def check(self) -> None:
        """Passes always, because a benchmark's attempt is never revoked."""


@dataclass
class Synthetic:
    """A base of `keys` keys and runs of uniform updates above it."""

    root: Path
    keys: int
    texts: np.ndarray = field(init=False)
    groups: np.ndarray = field(init=False)
    handle: StateHandle = StateHandle()

    def __post_init__(self) -> None:
        self.tables = DeltaTables(warehouse=str(self.root), clock=ManualClock())
        self.table = f"bench/state/totals/t{self.keys}-1"
        self.texts = np.array([key_text(n) for n in range(self.keys)])
        crc = (zlib.crc32(t.encode()) for t in self.texts)
        self.groups = np.fromiter(crc, np.int64, self.keys) % self.schema.key_groups
        self._commit("base", "value", BASE, np.arange(self.keys), np.ones(self.keys, np.int64))

    @property
    def schema(self) -> OperatorSchema:
        """The schema of the operator."""
        return sized(self.keys).schemas()["totals"]

    @property
    def paths(self) -> list[Path]:
        """All files of the state."""
        return [self.root / s.path / f.path for s in self.handle for f in self.tables.files_of(s)]

    def add_runs(self, count: int, seed: int = 7) -> None:
        """Appends runs of 20,000 updates each."""
        for n in range(count):
            batch = uniform(self.keys, UPDATES, seed + n)
            numbers, counts = np.unique(batch.keys, return_counts=True)
            self._commit("runs", "operand", self.handle.through + 1, numbers, counts)

    def _commit(self, table: str, kind: str, checkpoint: int, numbers: np.ndarray, counts: np.ndarray) -> None:
        order = np.lexsort((self.texts[numbers], self.groups[numbers]))
        numbers, counts = numbers[order], counts[order]
        size = len(numbers)
        columns = {
            "key": pa.array(self.texts[numbers]),
            "updates": pa.array(counts),
            "amount": pa.array(counts * 3),
            "last_at": pa.array(np.full(size, START_MS * 1000), pa.timestamp("us", tz="UTC")),
            "_first_at": pa.nulls(size, pa.int64()),
            "_last_at": pa.array(np.full(size, START_MS)),
            "_kind": pa.array([kind] * size),
            "_changed": pa.array(np.full(size, checkpoint)),
            "_key_group": pa.array(self.groups[numbers].astype(np.int32)),
        }
        shape = arrow_schema(run_columns(self.schema))
        rows = pa.table([columns[f.name].cast(f.type) for f in shape], schema=shape)
        path = f"{self.table}/{table}"
        files = self._files(path, rows, checkpoint)
        parent = self.handle.segment_of(path)
        after = parent.after if parent else self.handle.through
        fence: Fence = _Open()
        done = self.tables.commit(_request(path, parent, files, size, checkpoint, after, self.schema), fence)
        older = tuple(s for s in self.handle if s.path != path)
        self.handle = StateHandle((*older, done.segment))

    def _files(self, path: str, rows: pa.Table, checkpoint: int) -> tuple[WrittenFile, ...]:
        folder = self.root / path / f"{checkpoint}.1"
        folder.mkdir(parents=True)
        found = []
        for n, start in enumerate(range(0, rows.num_rows, 4_000_000)):
            part = rows.slice(start, 4_000_000)
            file = folder / f"part-{n}.parquet"
            pq.write_table(part, file, compression="zstd", row_group_size=200_000)
            name = f"{checkpoint}.1/part-{n}.parquet"
            stats = json.dumps({"numRecords": part.num_rows})
            found.append(WrittenFile(path=name, size=file.stat().st_size, rows=part.num_rows, stats=stats))
        return tuple(found)


def _request(
    path: str,
    parent: Segment | None,
    files: Sequence[WrittenFile],
    rows: int,
    checkpoint: int,
    after: int,
    schema: OperatorSchema,
) -> CommitRequest:
    return CommitRequest(
        table=path,
        parent=parent,
        files=tuple(files),
        rows=rows,
        level=3 if path.endswith("base") else 0,
        checkpoint=checkpoint,
        after=after,
        schema=run_columns(schema),
        write_id=f"{checkpoint:032x}",
        metadata={},
        app=("bench", checkpoint),
    )
