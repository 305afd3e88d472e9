"""A warehouse on disk with every kind of state, sinks, dead letters and a compaction; without Kafka and Spark."""

import json
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.cli.command import Command
from tests.cli.disk_line import DiskLine
from tidemark.adapters.memory import MemoryLog
from tidemark.model.offsets import TopicPartition

DECLARATION = Path(__file__).parent / "pipelines" / "market.py"
START = datetime(2024, 5, 1, tzinfo=UTC)
UIDS = ("sold", "tills", "rates")


@dataclass
class Market:
    """A pipeline of some name over a log that several of them may read.

    Attributes:
        tidemark: the command line over its warehouse.
        name: of the pipeline.
        log: what it reads.
        seed: of what is sent.
    """

    tidemark: Command
    name: str = "market"
    log: MemoryLog = field(default_factory=MemoryLog)
    seed: int = 7

    def __post_init__(self) -> None:
        self._chance, self._hours = random.Random(self.seed), 0
        self.tidemark.declare(DECLARATION, file=f"{self.name}.py", name=self.name)
        self.line = DiskLine(
            self.tidemark.warehouse, self.tidemark.runtime.pipeline(self.name), "sales", partitions=2, log=self.log
        )
        if "rates" not in self.log.topic_ids(("rates",)):
            self.log.create("rates", 1)

    def send(self, count: int = 12) -> None:
        """Sales over about a day, one of them not decodable, and a rate."""
        for _ in range(count):
            self._hours += 2
            sale = {
                "stall": self._chance.choice("abcd"),
                "item": self._chance.choice(["tea", "mug", "jam"]),
                "cents": self._chance.choice([0, 5, 10, 250]),
                "at": (START + timedelta(hours=self._hours)).isoformat(),
            }
            self.line.send([(self._chance.randrange(2), json.dumps(sale).encode(), 0)])
        self.line.send([(0, b'{"stall": 1}', 0)])
        rate = {"item": self._chance.choice(["tea", "mug"]), "percent": self._chance.randrange(2, 9)}
        self.log.append(
            TopicPartition("rates", 0), json.dumps(rate).encode(), timestamp_ms=0, key=rate["item"].encode()
        )

    def grown(self, checkpoints: int, *, compacted: int = 0) -> "Market":
        """Some checkpoints more, with a compaction behind one of them."""
        for n in range(1, checkpoints + 1):
            self.send()
            self.line.checkpoint()
            if n == compacted:
                for uid in UIDS:
                    self.line.compact(uid)
        return self


def market(folder: Path, **options: object) -> Market:
    """A new one in a folder of its own."""
    return Market(Command(folder, "127.0.0.1:1", "sc://127.0.0.1:1"), **options)  # type: ignore[arg-type]
