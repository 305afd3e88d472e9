"""`python -m benchmarks.publications.upkeep`, a part of `make bench`: bytes of a mirror while its files grow old.

The writer of mirrors publishes one uniform change of 1 % after the other to a table of 8 M keys, until the files of the
first publication are mostly dead and are written again. Files are merged meanwhile. Neither Kafka nor Spark takes part,
so the bytes are those of any machine. The same is measured with a wider row, because deletion vectors cost bits per row
and the change costs bytes per row. All rows are compared with numpy's at the end. `BENCH=quick` runs a small version,
and writes separate files that Git ignores.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from benchmarks.bench import SEED
from benchmarks.facts import made_by
from benchmarks.generator import START_MS, key_text
from benchmarks.peers.places import Listing
from benchmarks.publications import page
from tidemark.ports.publishing import Difference, StatePart, Step
from tidemark.publications.delta_mirror import DeltaMirrorTable
from tidemark.publications.target_folder import TargetFolder
from tidemark.tables.delta_tables import arrow_schema

QUICK = os.environ.get("BENCH") == "quick"
KEYS, COUNT = (20_000, 150) if QUICK else (8_000_000, 150)
CHURN = 100
PARTS = 4
"""Files of the first publication, as many as a rebuild from a state of 8 M keys writes."""
WIDTHS = {"three fields": 0, "eight fields": 5}
"""Fields of random numbers below a million that a row has in addition to count, sum and maximum."""


@dataclass
class AgingMirror:
    """A mirror under uniform changes.

    Attributes:
        folder: the table.
        keys: the number of keys.
        more: the number of additional fields.
    """

    folder: Path
    keys: int
    more: int
    number: int = 0
    values: np.ndarray = field(init=False)
    texts: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        names = ("updates", "amount", *(f"field_{n}" for n in range(self.more)))
        self.columns = (("key", "STRING"), *((name, "BIGINT") for name in names), ("last_at", "TIMESTAMP"))
        self.chance = np.random.default_rng(SEED)
        self.texts = np.sort(np.array([key_text(n) for n in range(self.keys)]))
        self.values = np.ones((len(names) + 1, self.keys), np.int64)
        self._change(np.arange(self.keys))

    @property
    def mirror(self) -> DeltaMirrorTable:
        """A publisher of its own."""
        return DeltaMirrorTable(
            folder=TargetFolder(str(self.folder)),
            application="tidemark/bench/upkeep",
            keys=("key",),
            columns=self.columns,
            now_ms=lambda: int(time.time() * 1000),
            make_id=uuid4,
        )

    def load(self) -> None:
        """Publishes all keys."""
        every = [np.arange(n, self.keys, PARTS) for n in range(PARTS)]
        parts = [StatePart(name=str(n), read=partial(self._part, numbers)) for n, numbers in enumerate(every)]
        self.mirror.replace(self._step(), parts)

    def publish(self) -> dict[str, Any]:
        """Changes and publishes a hundredth of the keys, drawn with replacement; returns the bytes by kind of file."""
        numbers = np.unique(self.chance.integers(0, self.keys, self.keys // CHURN))
        self._change(numbers)
        rows, before = self._rows(numbers), Listing.of(str(self.folder))
        nothing = rows.select(["key"]).slice(0, 0)
        step = self._step()
        started = time.process_time()
        self.mirror.apply(step, lambda: Difference(upserts=rows, deletes=nothing, erased=nothing))
        cpu = time.process_time() - started
        kinds = dict.fromkeys(("data", "vectors", "log"), 0)
        for path, found in Listing.of(str(self.folder)).files.items():
            if before.files.get(path) != found:
                kinds["log" if "_delta_log" in path else "vectors" if path.endswith(".bin") else "data"] += found[0]
        files = self.mirror.log.newest().files.values()
        stored = sum(file.rows or 0 for file in files)
        return {
            "publication": self.number - 1,
            "changed": _bytes(rows),
            **kinds,
            "files": len(files),
            "stored": round(stored / self.keys, 3),
            "cpu_seconds": round(cpu, 2),
        }

    def check(self) -> int:
        """Compares all rows with numpy's; a wrong row voids the run."""
        query = QueryBuilder().register("mirror", DeltaTable(str(self.folder)))
        found = pa.table(query.execute("SELECT * FROM mirror").read_all())
        found = found.set_column(0, "key", found["key"].cast(pa.string())).sort_by("key")
        if not found.cast(arrow_schema(self.columns)).equals(self._rows(np.arange(self.keys))):
            raise SystemExit("the mirror differs from numpy's: this run is void")
        return int(found.num_rows)

    def _part(self, numbers: np.ndarray) -> list[pa.Table]:
        return [self._rows(numbers)]

    def _step(self) -> Step:
        self.number += 1
        return Step(
            number=self.number,
            previous=self.number - 1,
            lineage="bench",
            previous_lineage="bench" if self.number > 1 else "",
            checkpoint=self.number,
            timeline="t1",
        )

    def _change(self, numbers: np.ndarray) -> None:
        self.values[0, numbers] += 1
        self.values[1, numbers] += self.chance.integers(0, 1000, len(numbers))
        for row in range(2, len(self.values) - 1):
            self.values[row, numbers] = self.chance.integers(0, 1_000_000, len(numbers))
        self.values[-1, numbers] = np.maximum(self.values[-1, numbers], self.chance.integers(0, 1000, len(numbers)))

    def _rows(self, numbers: np.ndarray) -> pa.Table:
        last = pa.array((START_MS + self.values[-1, numbers] * 1000) * 1000, pa.timestamp("us", tz="UTC"))
        arrays = [pa.array(self.texts[numbers]), *(pa.array(row[numbers]) for row in self.values[:-1]), last]
        return pa.table(arrays, names=[name for name, _ in self.columns]).cast(arrow_schema(self.columns))


def _bytes(rows: pa.Table) -> int:
    file = pa.BufferOutputStream()
    pq.write_table(rows, file, compression="zstd", row_group_size=100_000)
    return int(file.getvalue().size)


def _measured(width: str, folder: Path) -> Iterator[dict[str, Any]]:
    aging = AgingMirror(folder, KEYS, WIDTHS[width])
    aging.load()
    for _ in range(COUNT):
        row = {"width": width} | aging.publish()
        sys.stderr.write(json.dumps(row) + "\n")
        yield row
    yield {"width": width, "checked": aging.check()}


def main() -> int:
    """Measures both widths, and writes data and page."""
    rows: list[dict[str, Any]] = []
    for width in WIDTHS:
        with tempfile.TemporaryDirectory(prefix="tidemark-upkeep-") as folder:
            rows += _measured(width, Path(folder, "mirror"))
    facts = made_by(f"{'BENCH=quick ' if QUICK else ''}make bench", SEED) | {"keys": KEYS, "publications": COUNT}
    page.write_upkeep(facts, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
