"""Makes lines: a topic, a pipeline that reads it, and the command over a warehouse of its own."""

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Answer, Command
from tests.support.kafka import Sent, Topics

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", "20240902"))
PIPELINES = Path(__file__).parent / "pipelines"


@dataclass
class BadInputPipeline:
    """One pipeline, called `name`, over one topic."""

    tidemark: Command
    topics: Topics
    topic: str
    name: str

    def send(self, *amounts: int, shop: str = "north") -> None:
        """Sends a sale of each amount, all at one time: a bounded plan ends between milliseconds if it can."""
        now_ms = int(time.time() * 1000)
        values = [json.dumps({"shop": shop, "amount": a}).encode() for a in amounts]
        self.topics.produce(self.topic, [Sent(value, timestamp_ms=now_ms) for value in values])

    def run(self, *options: str, **more: str) -> Answer:
        """`tidemark run`, in this process."""
        return self.tidemark("run", self.name, *options, "--json", **more)

    def crash(self, point: str) -> None:
        """`tidemark run` in a process that is killed at a crash point."""
        killed = self.tidemark.process("run", self.name, TIDEMARK_CRASH_AT=point, TIDEMARK_TEST_FAULTS="1")
        assert killed.code == -9, f"{point} was not reached: {killed.err}"

    def shops(self, *options: str) -> dict[str, tuple[int, int]]:
        """(sales, amount) of each shop, as the command line tells it."""
        rows = self.tidemark("state", "show", self.name, "shops", *options, "--json").ok().json
        return {row["shop"]: (row["sales"], row["amount"]) for row in rows}

    def checkpoints(self) -> list[dict[str, Any]]:
        """Facts of the completed checkpoints, newest first."""
        listed: list[dict[str, Any]] = self.tidemark("checkpoint", "list", self.name, "--json").ok().json
        return listed

    def manifests(self) -> list[Path]:
        """Files of the completed checkpoints, oldest first."""
        return sorted((self.tidemark.warehouse / self.name / "timelines").rglob("*.json"))

    def dead_letters(self, uid: str, checkpoint: int) -> list[dict[str, Any]]:
        """Rows of an operator's dead-letter table as of a checkpoint, by the manifest and plain deltalake."""
        from deltalake import DeltaTable

        manifest = self.tidemark("checkpoint", "show", self.name, str(checkpoint), "--json").ok().json
        [ack] = [a for a in manifest["sealed"]["acks"] if a["uid"] == uid]
        rows = []
        for segment in ack["dead_letters"]["segments"]:
            table = DeltaTable(str(self.tidemark.warehouse / segment["path"]), version=segment["version"])
            rows += table.to_pyarrow_table().to_pylist()
        return [r for r in rows if r["_checkpoint"] <= checkpoint]

    def last_abort(self) -> dict[str, Any]:
        """The failure that the newest abort record tells."""
        failure: dict[str, Any] = self.tidemark.abort_records(self.name)[-1]["failure"]
        return failure


MakeLine = Callable[..., BadInputPipeline]


@pytest.fixture(scope="module")
def make_line(
    topics: Topics, broker: str, spark_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MakeLine]:
    """`make_line(name)`: a line over `pipelines/shops.py`, or another file, with `$words` replaced."""
    print(f"seed {SEED}; repeat with TIDEMARK_TEST_SEED={SEED}")

    def make(
        name: str, file: str = "shops.py", *, warehouse: Path | None = None, partitions: int = 1, **words: str
    ) -> BadInputPipeline:
        topic = topics.make(partitions=partitions)
        tidemark = Command(tmp_path_factory.mktemp(name), broker, spark_server, warehouse or Path())
        tidemark.declare(PIPELINES / file, file=file, topic=topic, name=name, **words)
        return BadInputPipeline(tidemark, topics, topic, name)

    yield make
