"""How far a stranger walks: the files of ours whose functions one `tidemark run` calls, in the order of the first call.

    python -m tests.rules.visited_files

The pipeline has one `Fold` and the warehouse is a folder. Kafka and Spark are the twins, whose own files are left out,
as are those of the command line.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import commands_over

DECLARATION = """
from dataclasses import dataclass

from tidemark import Fold, KafkaSource, Pipeline, state


@dataclass(frozen=True)
class Order:
    customer: str
    amount: int


class Customer(state.Keyed):
    spent: int = state.sum("amount")


customers = Fold("customers", key_by="customer", state=Customer)
orders = Pipeline(name="orders", source=KafkaSource("orders", Order), operators=[customers])
"""
PACKAGE = Path(__file__).resolve().parents[2] / "include/tidemark"
LEFT_OUT = ("cli/", "testing/")


def visited(action: Callable[[], object]) -> list[str]:
    """Files of the package whose functions an action calls; imports do not count."""
    seen: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name != "<module>" and code.co_filename.startswith(f"{PACKAGE}/"):
            seen.setdefault(code.co_filename.removeprefix(f"{PACKAGE}/"))

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return [file for file in seen if not file.startswith(LEFT_OUT)]


def main() -> int:
    """Prints the files of a second checkpoint, and how many they are."""
    with tempfile.TemporaryDirectory() as folder:
        tidemark = Command(Path(folder), "127.0.0.1:1", "sc://127.0.0.1:1")
        tidemark.declare(DECLARATION, file="orders.py")
        line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("orders"), "orders")
        for n in range(2):
            line.send([(0, json.dumps({"customer": "anna", "amount": n}).encode(), n)])
            with commands_over(line):
                files = visited(lambda: tidemark("run", "orders").ok())
    sys.stdout.write("\n".join(files) + f"\n{len(files)} files\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
