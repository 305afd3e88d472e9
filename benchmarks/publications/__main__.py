"""`python -m benchmarks.publications`, a part of `make bench`: what a publication costs at 8 M keys and 1 % churn.

In each round, a hundredth of the keys change, and four parties take turns, each round with a different one first: a
pipeline without publications, a pipeline with two mirrors, Delta's MERGE of the changed rows, and a streaming query
that merges the records. One mirror is published in every round, the other one in every tenth. Then as many rounds
change the same hundredth again and again. A wrong row in any table ends the run before anything is written.
`BENCH=quick` runs a small version and writes separate files that Git ignores. What upkeep adds to the bytes of a mirror
over more rounds is measured by `benchmarks.publications.upkeep`.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import generator
from benchmarks.bench import SEED, create_topic
from benchmarks.facts import made_by
from benchmarks.generator import Updates
from benchmarks.peers.batch import ends_of
from benchmarks.peers.places import COLUMNS, Place, check, in_turn
from benchmarks.peers.sparks import WARM, opened
from benchmarks.publications.merging import MergedTable, StreamedTable
from benchmarks.publications.mirroring import EACH, MIRRORED, PLAIN, SAME, TENTH, TOPICS, Mirroring
from benchmarks.publications.page import write_page
from benchmarks.workload import State, Totals, Workload
from devstack import control
from tidemark.operations import reads
from tidemark.settings import load_settings

Row = dict[str, Any]
QUICK = os.environ.get("BENCH") == "quick"
LOAD, EVERY = -1, 3 if QUICK else 10
"""The number of the round that loads all keys, and the rounds between two publications of the second mirror."""
CHURN = 100
"""One of so many keys changes in a round."""


@dataclass(frozen=True)
class Case:
    """A number of keys, all of them written in the first round.

    Attributes:
        topic: the topic.
        keys: the number of keys.
        rounds: the number of further rounds; the first one warms up and does not count.
    """

    topic: str
    keys: int
    rounds: int


WARM_UP = Case(TOPICS[0], 20_000, 1)
MEASURED = Case(TOPICS[1], 20_000 if QUICK else 8_000_000, EVERY + 1)


@dataclass
class Course:
    """A case in progress.

    Attributes:
        case: the case.
        bootstrap: the address of the broker.
        home: the folder for everything that the parties write.
        totals: the expected state.
        dirty: keys that changed since the second mirror was published.
    """

    case: Case
    bootstrap: str
    home: Path
    totals: Totals = field(default_factory=Totals)
    dirty: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    mirroring: Mirroring = field(init=False)
    merged: MergedTable = field(init=False)
    streamed: StreamedTable = field(init=False)

    def __post_init__(self) -> None:
        self.mirroring = Mirroring(self.case.topic, self.bootstrap, self.home.parent / "mirroring")
        self.merged = MergedTable(self.home / "merged")
        self.streamed = StreamedTable(self.home / "streamed", self.bootstrap, self.case.topic)
        self.workload = Workload(self.case.keys, self.case.keys // CHURN, SEED)

    def rows(self) -> Iterator[Row]:
        """Runs all rounds, checks all tables, and compacts the merged one, which it needs some day."""
        create_topic(self.bootstrap, self.case.topic)
        yield from self._load()
        above = self.case.keys
        for n in range(self.case.rounds):
            batch = self.workload.batch(n, above)
            above += self.workload.fresh
            yield from self._round(n, batch)
        yield from self._checked()
        yield self._row(self.case.rounds, "optimize", self.merged.optimize())
        yield from self._same_keys()
        shutil.rmtree(self.home)

    def _same_keys(self) -> Iterator[Row]:
        """Changes the same keys in each round, and publishes to both mirrors as before. Round 0 warms up."""
        chance = np.random.default_rng(SEED)
        keys = np.unique(chance.integers(0, self.case.keys, self.case.keys // CHURN))
        for n in range(EVERY + 1):
            self._produce(Updates(keys, chance.integers(0, 1000, len(keys)), np.zeros(len(keys), bool)))
            self.mirroring.checkpoint(MIRRORED)
            yield self._row(n, EACH + SAME, self.mirroring.publish(EACH))
            if n % EVERY == 0:
                yield self._row(n, TENTH + SAME, self.mirroring.publish(TENTH))
        for mirror in (EACH, TENTH):
            rows = self.mirroring.rows(mirror)
            yield {"kind": mirror + SAME, "checked": check(f"{self.case.topic}, {mirror}", rows, self.totals.state())}

    def _load(self) -> Iterator[Row]:
        self._produce(self.workload.load())
        for kind in (PLAIN, MIRRORED):
            yield self._row(LOAD, kind, self.mirroring.checkpoint(kind))
        for mirror in (EACH, TENTH):
            yield self._row(LOAD, mirror, self.mirroring.publish(mirror))
        rows = self.home / "rows.parquet"
        written(self.totals.state(), rows)
        for table in (self.merged, self.streamed):
            table.load(str(rows))
        place = Place(self.bootstrap, self.case.topic, str(self.home), "")
        self.streamed.starts = ends_of(place)

    def _round(self, n: int, batch: Updates) -> Iterator[Row]:
        self._produce(batch)
        numbers = np.unique(batch.keys)
        self.dirty = np.union1d(self.dirty, numbers)
        changed = self.home / "changed.parquet"
        yield self._row(n, "changed", written(self.totals.state(numbers), changed))
        for kind in in_turn((PLAIN, MIRRORED, "merge", "stream"), n):
            if kind == "merge":
                yield self._row(n, kind, self.merged.merge(self._source(numbers)))
            elif kind == "stream":
                yield self._row(n, kind, self.streamed.take())
            else:
                yield self._row(n, kind, self.mirroring.checkpoint(kind))
            if kind == MIRRORED:
                yield self._row(n, EACH, self.mirroring.publish(EACH))
        if n % EVERY == 0:
            yield self._row(n, "changed-tenth", written(self.totals.state(self.dirty), changed))
            yield self._row(n, TENTH, self.mirroring.publish(TENTH))
            self.dirty = self.dirty[:0]

    def _checked(self) -> Iterator[Row]:
        """Compares every row of every table with the oracle's."""
        wanted = self.totals.state()
        tables = {
            PLAIN: lambda: reads.read_state(self.mirroring.context, f"{self.case.topic}-{PLAIN}", "totals"),
            EACH: lambda: self.mirroring.rows(EACH),
            TENTH: lambda: self.mirroring.rows(TENTH),
            "merge": self.merged.rows,
            "stream": self.streamed.rows,
        }
        if len(self.dirty):  # it has an earlier state
            del tables[TENTH]
        for kind, read in tables.items():
            yield {"kind": kind, "checked": check(f"{self.case.topic}, {kind}", read(), wanted)}

    def _source(self, numbers: np.ndarray) -> str:
        """The source of a MERGE: the changed rows, and the keys that are gone."""
        live, path = self.totals.state(numbers), self.home / "source.parquet"
        dead = [generator.key_text(n) for n in numbers[self.totals.counts[numbers] == 0].tolist()]
        rows = table_of(live).append_column("gone", pa.repeat(pa.scalar(False), len(live.keys)))
        gone = pa.table({"key": pa.array(dead, pa.string()), "gone": pa.repeat(pa.scalar(True), len(dead))})
        pq.write_table(pa.concat_tables([rows, gone], promote_options="default"), path)
        return str(path)

    def _produce(self, batch: Updates) -> None:
        generator.produce(self.bootstrap, self.case.topic, batch)
        self.totals.apply(batch)

    @staticmethod
    def _row(n: int, kind: str, found: Row) -> Row:
        return {"round": n, "kind": kind} | found


def table_of(state: State) -> pa.Table:
    """The rows of a state, with the columns of a mirror."""
    at = pa.array(state.last_at, pa.timestamp("us", tz="UTC"))
    arrays = [pa.array(state.keys), pa.array(state.updates), pa.array(state.amounts), at]
    return pa.table(arrays, names=COLUMNS)


def written(state: State, path: Path) -> Row:
    """Writes rows alone, ordered by key, as a mirror writes its files; returns their number and bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table_of(state), path, compression="zstd", row_group_size=100_000)
    return {"rows": len(state.keys), "bytes": path.stat().st_size}


def main() -> int:
    """Runs both cases in a separate stack and writes the page."""
    rows: list[Row] = []
    load = os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="tidemark-publications-") as home:
        settings = load_settings(home=home)
        control.up(settings, only=("kafka",))
        try:
            spark = opened("", f"{home}/scratch", WARM)
            for case in (WARM_UP, MEASURED):
                for row in Course(case, settings.kafka_address, Path(home, case.topic)).rows():
                    sys.stderr.write(json.dumps({"topic": case.topic} | row) + "\n")
                    if case is MEASURED:
                        rows.append(row)
            spark.stop()
        finally:
            control.down(settings)
    facts = made_by(f"{'BENCH=quick ' if QUICK else ''}make bench", SEED) | {
        "load": [round(value, 2) for value in (*load, *os.getloadavg())],
        "keys": MEASURED.keys,
        "updates": MEASURED.keys // CHURN,
        "rounds": MEASURED.rounds,
    }
    write_page(facts, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
