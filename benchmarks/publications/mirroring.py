"""Tidemark's part: checkpoints of a fold with and without publications, and what each publication writes."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from benchmarks.peers.places import COLUMNS, ROOT
from benchmarks.peers.sparks import MASTER
from benchmarks.publications.step_costs import StepCost
from tidemark.answers.publication_facts import PublishedFacts
from tidemark.context import Context, open_context
from tidemark.operations import checkpoints, compaction
from tidemark.operations.publications import publishing
from tidemark.ports import PlanRequest
from tidemark.settings import load_settings

Row = dict[str, Any]
LAKE = "BENCH_LAKE"
"""The environment variable with the folder of all mirrors, which the pipelines read."""
TOPICS = ("publications-0", "publications-1")
"""A topic that warms up, and the measured one."""
PLAIN, MIRRORED, EACH, TENTH = "plain", "mirrored", "each", "tenth"
"""The kinds of pipelines, and the two mirrors of the second one."""
SAME = "-same"
"""Follows the name of a mirror in rounds that all change the same keys."""
PIPELINES = str(ROOT / "benchmarks" / "publications" / "pipelines")


@dataclass
class Mirroring:
    """Both pipelines over one topic.

    Attributes:
        topic: the topic.
        bootstrap: the address of the broker.
        home: the folder for the warehouse and the mirrors; all cases share it, because pipeline files are read once.
    """

    topic: str
    bootstrap: str
    home: Path
    context: Context = field(init=False)

    def __post_init__(self) -> None:
        os.environ[LAKE] = str(self.home / "lake")
        settings = load_settings(
            home=str(self.home / "tidemark"), pipelines=PIPELINES, kafka_bootstrap=self.bootstrap, spark=MASTER
        )
        self.context = open_context(settings)

    def checkpoint(self, kind: str) -> Row:
        """Completes a checkpoint, then runs the due compactions, which are timed separately."""
        name, made = f"{self.topic}-{kind}", list[object]()

        def run() -> None:
            made.append(checkpoints.run_once(self.context, name, PlanRequest(origin="bench")).checkpoint)

        cost = StepCost.of(run, str(self.home))
        assert made != [None], f"{name} had nothing to checkpoint"
        started = time.perf_counter()
        compaction.compact(self.context, name)
        return cost.row | {"upkeep_seconds": round(time.perf_counter() - started, 4)}

    def publish(self, mirror: str) -> Row:
        """Brings a mirror to the newest checkpoint, and counts every byte that this has written, by kind of file."""
        made, name = list[PublishedFacts](), f"{self.topic}-{MIRRORED}"
        cost = StepCost.of(lambda: made.extend(publishing.publish(self.context, name, mirror)), str(self.home))
        kinds = dict.fromkeys(("data", "vectors", "log", "records"), 0)
        for path, size in cost.files.items():
            kinds[self._kind(path)] += size
        (step,) = made
        return {"mode": step.mode, **cost.row, **kinds, "files": len(self.table(mirror).file_uris())}

    def table(self, mirror: str) -> DeltaTable:
        """Opens a mirror with deltalake, as any reader does."""
        return DeltaTable(str(self.home / "lake" / self.topic / mirror))

    def rows(self, mirror: str) -> pa.Table:
        """Reads the rows of a mirror, which are those of its newest checkpoint."""
        query = QueryBuilder().register("mirror", self.table(mirror))
        found = pa.table(query.execute(f"SELECT {', '.join(COLUMNS)} FROM mirror").read_all())
        return found.set_column(0, "key", found["key"].cast(pa.string()))

    def _kind(self, path: str) -> str:
        inside = Path(path).relative_to(self.home)
        if inside.parts[0] != "lake":
            return "records"
        return "log" if "_delta_log" in inside.parts else "vectors" if inside.suffix == ".bin" else "data"
