"""A warehouse of sales that no Spark wrote, the command that works on it, and the oracle: what tests of verbs fill."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.sales import Sales
from tidemark.model.checkpoint.manifest import Checkpoint

SEED = 20241122
PIPELINES = Path(__file__).parents[1] / "cli" / "pipelines"
DECLARATION = PIPELINES / "till.py"


@dataclass
class SalesPipeline:
    """A pipeline's warehouse, and the oracle.

    Attributes:
        made: checkpoints by id.
    """

    tidemark: Command
    line: DiskPipeline
    sales: Sales
    made: dict[int, Checkpoint] = field(default_factory=dict)

    @classmethod
    def opened(cls, folder: Path, pipeline: str = "till", seed: int = SEED) -> Self:
        """A shop that has sold nothing yet; neither Kafka nor Spark is there."""
        tidemark = Command(folder, "127.0.0.1:1", "sc://127.0.0.1:1")
        tidemark.declare(PIPELINES / f"{pipeline}.py", topic="sales")
        line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline(pipeline), "sales")
        return cls(tidemark, line, Sales(seed))

    def sell(self, count: int = 20) -> None:
        """Sends sales to both partitions."""
        self.line.send(self.sales.more(count))

    def checkpoint(self, count: int = 20) -> None:
        """Sells, and completes a checkpoint of it."""
        self.sell(count)
        found = self.line.checkpoint()
        self.made[found.id] = found

    def checkpoints(self, count: int, compact_every: int | None = None) -> None:
        """Several checkpoints; all accounts are compacted behind each one whose number this divides."""
        for number in range(1, count + 1):
            self.checkpoint()
            if compact_every is not None and number % compact_every == 0:
                self.line.compact("accounts", full=True)

    def ends(self, checkpoint: int) -> dict[int, int]:
        """End offset of each partition."""
        return {tp.partition: r.end for tp, r in self.made[checkpoint].plan.ranges.items()}

    def states(self, checkpoint: int) -> dict[str, dict[str, Any]]:
        """State per account, by plain Python; `_changed` left out."""
        return self.sales.accounts(self.ends(checkpoint))

    def accounts(self, checkpoint: int) -> dict[str, int]:
        """Sales per account."""
        return {account: state["sales"] for account, state in self.states(checkpoint).items()}
