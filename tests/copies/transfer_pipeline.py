"""A warehouse on disk with every kind of state, sinks, dead letters and a compaction; without Kafka and Spark."""

import itertools
import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tidemark.model.core.offsets import TopicPartition
from tidemark.operations import reads
from tidemark.testing.twin.memory import MemoryLog

DECLARATION = (Path(__file__).parent / "pipelines" / "market.py").read_text()
START = datetime(2024, 5, 1, tzinfo=UTC)
SEED = int(os.environ.get("TIDEMARK_TEST_SEED", "20130701"))
UIDS = ("sold", "tills", "rates")


@dataclass
class TransferPipeline:
    """A pipeline of some name over a log that several of them may read.

    Attributes:
        tidemark: the command line over its warehouse.
        name: of the pipeline.
        log: what it reads.
        chance: of what is sent.
        hours: event times of sales, ascending.
        declared: the text of its file.
    """

    tidemark: Command
    name: str = "market"
    log: MemoryLog = field(default_factory=MemoryLog)
    chance: random.Random = field(default_factory=lambda: random.Random(SEED))
    hours: Iterator[int] = field(default_factory=lambda: itertools.count(2, 2))
    declared: str = DECLARATION

    def __post_init__(self) -> None:
        self.tidemark.declare(self.declared, file=f"{self.name}.py", name=self.name)
        self.line = DiskPipeline(
            self.tidemark.warehouse, self.tidemark.context.pipeline(self.name), "sales", partitions=2, log=self.log
        )
        if "rates" not in self.log.topic_ids(("rates",)):
            self.log.create("rates", 1)

    def send(self, count: int = 12) -> None:
        """Sales over about a day, one of them not decodable, and a rate."""
        for _ in range(count):
            sale = {
                "stall": self.chance.choice("abcd"),
                "item": self.chance.choice(["tea", "mug", "jam"]),
                "cents": self.chance.choice([0, 5, 10, 250]),
                "at": (START + timedelta(hours=next(self.hours))).isoformat(),
            }
            self.line.send([(self.chance.randrange(2), json.dumps(sale).encode(), 0)])
        self.line.send([(0, b'{"stall": 1}', 0)])
        item = self.chance.choice(["tea", "mug"])
        rate = {"item": item, "percent": self.chance.randrange(2, 9)}
        self.log.append(TopicPartition("rates", 0), json.dumps(rate).encode(), timestamp_ms=0, key=item.encode())

    def beside(self, tidemark: Command, name: str, declared: str | None = None) -> "TransferPipeline":
        """Another pipeline over the same log, which goes on sending where this one does; it has no checkpoint yet."""
        return replace(self, tidemark=tidemark, name=name, declared=declared or self.declared)

    def rows(self, uid: str, checkpoint: int | None = None) -> list[dict[str, Any]]:
        """The resolved state of an operator, in order of keys."""
        at = "" if checkpoint is None else f"_at({checkpoint})"
        found: list[dict[str, Any]] = (
            self.tidemark("state", "sql", self.name, f"FROM {uid}{at} ORDER BY ALL", "--json").ok().json
        )
        return found

    def states(self, *, changed: bool = True) -> dict[str, Any]:
        """All that is remembered at the newest checkpoint; `changed`: with the ids of the checkpoints that did it."""
        newest = reads.get_checkpoint(self.tidemark.context, self.name)
        found: dict[str, Any] = {uid: self.rows(uid) for uid in newest.plan.schemas}
        if not changed:
            found = {
                uid: [{k: v for k, v in r.items() if k != "_changed"} for r in rows] for uid, rows in found.items()
            }
        lists = {uid: {x.name: x.elements for x in of.lists} for uid, of in newest.operator_states.items()}
        return found | {"lists": lists, "now": newest.now, "ends": newest.plan.ranges.ends}

    def grown(self, checkpoints: int, *, compacted: int = 0) -> "TransferPipeline":
        """Some checkpoints more, with a compaction behind one of them."""
        for n in range(1, checkpoints + 1):
            self.send()
            self.line.checkpoint()
            if n == compacted:
                for uid in UIDS:
                    self.line.compact(uid)
        return self


def transfer_pipeline(folder: Path, **options: object) -> TransferPipeline:
    """A new one in a folder of its own."""
    return TransferPipeline(Command(folder, "127.0.0.1:1", "sc://127.0.0.1:1"), **options)  # type: ignore[arg-type]
