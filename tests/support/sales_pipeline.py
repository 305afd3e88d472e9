"""A pipeline of sales without Spark: its warehouse, the command line on it, and the oracle."""

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
    """The warehouse of a pipeline, the command line on it, and the oracle.

    Attributes:
        made: checkpoints by id.
    """

    tidemark: Command
    line: DiskPipeline
    sales: Sales
    made: dict[int, Checkpoint] = field(default_factory=dict)

    @classmethod
    def opened(cls, folder: Path, pipeline: str = "till", seed: int = SEED) -> Self:
        """Opens a pipeline without records; the addresses of Kafka and Spark are unreachable."""
        tidemark = Command(folder, "127.0.0.1:1", "sc://127.0.0.1:1")
        tidemark.declare(PIPELINES / f"{pipeline}.py", topic="sales")
        line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline(pipeline), "sales")
        return cls(tidemark, line, Sales(seed))

    def sell(self, count: int = 20) -> None:
        """Sends sales to both partitions."""
        self.line.send(self.sales.more(count))

    def checkpoint(self, count: int = 20) -> None:
        """Sends sales, and completes a checkpoint over them."""
        self.sell(count)
        found = self.line.checkpoint()
        self.made[found.id] = found

    def checkpoints(self, count: int, compact_every: int | None = None) -> None:
        """Completes `count` checkpoints, and compacts the accounts after every `compact_every` of them."""
        for number in range(1, count + 1):
            self.checkpoint()
            if compact_every is not None and number % compact_every == 0:
                self.line.compact("accounts", full=True)

    def ends(self, checkpoint: int) -> dict[int, int]:
        """The end offset of each partition at a checkpoint."""
        return {tp.partition: r.end for tp, r in self.made[checkpoint].plan.ranges.items()}

    def states(self, checkpoint: int) -> dict[str, dict[str, Any]]:
        """The expected state per account at a checkpoint, without `_changed`."""
        return self.sales.accounts(self.ends(checkpoint))

    def accounts(self, checkpoint: int) -> dict[str, int]:
        """The expected number of sales per account at a checkpoint."""
        return {account: state["sales"] for account, state in self.states(checkpoint).items()}
