"""A process that runs a checkpoint of a till, and stops itself (SIGSTOP) at a step: `FOLDER AHEAD [STEP MOMENT]`.

Its clock is so many seconds ahead of the others', so that nobody has to wait for a timeout.
"""

import itertools
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.disk_context import DiskContext
from tests.support.sales_pipeline import SalesPipeline
from tidemark.environment import SystemClock
from tidemark.errors import TidemarkError
from tidemark.operations import checkpoints
from tidemark.ports import PlanRequest


@dataclass
class Ahead:
    """A clock that shows a later time."""

    seconds: int

    def now_ms(self) -> int:
        return SystemClock().now_ms() + self.seconds * 1000


def main(folder: Path, ahead: int, *at: str) -> int:
    shop = SalesPipeline.opened(folder)
    shop.sell()  # the same records in every process
    shop.line._ids = (f"{os.getpid():016x}{n:016x}" for n in itertools.count(1))
    context = DiskContext(shop.line, shop.tidemark.settings)
    context.clock = Ahead(ahead)

    def crash(step: str, moment: str) -> None:
        if (step, moment) == at:
            print("stopped", flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)

    shop.line.crash = crash
    try:
        made = checkpoints.run_once(context, "till", PlanRequest(origin="test"), crash)
    except TidemarkError as error:
        print(type(error).__name__, error.what, flush=True)
        return error.code
    assert made.checkpoint is not None
    print(f"made chk-{made.checkpoint.id} by attempt {made.checkpoint.sealed.attempt}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
