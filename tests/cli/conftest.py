"""One line for the whole folder: a till's topic and the checkpoints that the command line made of it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Command
from tests.support.kafka import Sent, Topics
from tests.support.sales import Sales

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", "20240711"))
DECLARATION = Path(__file__).parent / "pipelines" / "till.py"


@dataclass
class TillPipeline:
    """The topic, the oracle, the command, and the JSON of the checkpoints made so far."""

    tidemark: Command
    topics: Topics
    topic: str
    sales: Sales
    made: list[dict[str, Any]] = field(default_factory=list)

    def send(self, count: int) -> None:
        records = [Sent(value, partition=p, timestamp_ms=ms) for p, value, ms in self.sales.more(count)]
        self.topics.produce(self.topic, records)

    def run(self, *options: str) -> dict[str, Any]:
        told: dict[str, Any] = self.tidemark("run", "till", *options, "--json").ok().json
        if "id" in told:
            self.made.append(told)
        return told

    def ends(self, checkpoint: dict[str, Any]) -> dict[int, int]:
        """End offset of each partition."""
        return {int(tp.rpartition("-")[2]): bounds["end"] for tp, bounds in checkpoint["ranges"].items()}

    def starts(self, checkpoint: dict[str, Any]) -> dict[int, int]:
        """Start offset of each partition."""
        return {int(tp.rpartition("-")[2]): bounds["start"] for tp, bounds in checkpoint["ranges"].items()}


@pytest.fixture(scope="module")
def line(
    topics: Topics, broker: str, spark_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TillPipeline]:
    """A topic of two partitions with 60 sales; no checkpoint yet."""
    topic = topics.make(partitions=2)
    tidemark = Command(tmp_path_factory.mktemp("till"), broker, spark_server)
    tidemark.declare(DECLARATION, topic=topic)
    made = TillPipeline(tidemark, topics, topic, Sales(SEED))
    print(f"seed {SEED}; repeat with TIDEMARK_TEST_SEED={SEED}")
    made.send(60)
    yield made
    topics.delete(topic)
