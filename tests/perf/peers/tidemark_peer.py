"""Tidemark itself: one checkpoint per run, in the driver's JVM or through a warm Connect server."""

from dataclasses import dataclass

import pyarrow as pa

from tests.perf.peers.places import COLUMNS, ROOT, Place
from tidemark.ports import PlanRequest
from tidemark.settings import load_settings
from tidemark.wiring import Runtime, open_runtime

PIPELINES = str(ROOT / "tests" / "perf" / "peers" / "pipelines")


@dataclass
class TidemarkPeer:
    """A pipeline with one fold.

    Attributes:
        place: its topic and folder.
        spark: `local[2]`, which is the session that this process has, or the address of a Connect server.
    """

    place: Place
    spark: str

    def __post_init__(self) -> None:
        settings = load_settings(
            home=self.place.folder, pipelines=PIPELINES, kafka_bootstrap=self.place.bootstrap, spark=self.spark
        )
        self.runtime: Runtime = open_runtime(settings)

    def take(self) -> None:
        """One checkpoint."""
        made = self.runtime.run_once(self.place.topic, PlanRequest(origin="bench")).checkpoint
        assert made is not None, f"{self.place.topic} had nothing to checkpoint"

    def upkeep(self) -> None:
        """Compacts what is due."""
        self.runtime.compact(self.place.topic)

    def close(self) -> None:
        """Nothing runs between two runs."""

    def rows(self) -> pa.Table:
        """The state at the head."""
        return self.runtime.state_table(self.place.topic, "totals").select(COLUMNS)
