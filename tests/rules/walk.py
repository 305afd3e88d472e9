"""Lists the files that a newcomer reads to follow one `tidemark run`: those whose functions it calls, in call order.

    python -m tests.rules.walk
    python -m tests.rules.walk fold

The second form follows one `Fold` from its declaration to its written rows, on a Spark session that it starts.

The pipeline has one `Fold` and the warehouse is a folder. In-memory twins replace Kafka and Spark. The list excludes
the files of the command line, and every call that a twin makes: in a real run Spark does that work.
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
    """Files of the package whose functions an action calls; code that runs on import does not count."""
    seen: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name != "<module>" and code.co_filename.startswith(f"{PACKAGE}/"):
            file = code.co_filename.removeprefix(f"{PACKAGE}/")
            if file not in seen and not _is_called_by_a_twin(frame):
                seen.setdefault(file)

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return [file for file in seen if not file.startswith(LEFT_OUT)]


def _is_called_by_a_twin(frame: FrameType) -> bool:
    """Whether a twin is on the call stack above this frame."""
    above = frame.f_back
    while above is not None:
        code = above.f_code
        if code.co_filename.startswith(f"{PACKAGE}/testing/twin/") or code.co_qualname.startswith("ParquetFiles."):
            return True
        above = above.f_back
    return False


def run_files(folder: Path) -> list[str]:
    """Files whose functions the second `tidemark run` of a pipeline calls."""
    tidemark = Command(folder, "127.0.0.1:1", "sc://127.0.0.1:1")
    tidemark.declare(DECLARATION, file="orders.py")
    line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("orders"), "orders")
    files: list[str] = []
    for n in range(2):
        line.send([(0, json.dumps({"customer": "anna", "amount": n}).encode(), n)])
        with commands_over(line):
            files = visited(lambda: tidemark("run", "orders").ok())
    return files


def fold_files(folder: Path) -> list[str]:
    """Files whose functions run from the declaration of a `Fold` to its written rows, without reading from Kafka."""
    from pyspark.sql import SparkSession

    from tests.support.readings import plan_of
    from tidemark import Fold
    from tidemark.engine.fold.fold import FoldTask, write_fold
    from tidemark.engine.write.parquet_writer import RunFolder
    from tidemark.model.core.offsets import TopicPartition
    from tidemark.model.core.ttl import Now
    from tidemark.model.core.types import record_type

    spark = SparkSession.builder.master("local[1]").config("spark.sql.shuffle.partitions", 1).getOrCreate()
    frame = spark.sql(
        "SELECT 'orders' AS topic, 0 AS partition, 0L AS offset, TIMESTAMP '2020-01-01T00:00:00Z' AS timestamp,"
        " named_struct('customer', 'anna', 'amount', 1L) AS record, TIMESTAMP '2020-01-01T00:00:00Z' AS event_time,"
        " CAST(NULL AS STRING) AS _reason"
    )

    declared: dict[str, Any] = {"__name__": "orders"}
    exec(DECLARATION, declared)  # noqa: S102  (the source is a constant of this file)
    plan = plan_of(declared["orders"], 1, {TopicPartition("orders", 0): (0, 1)})
    task = FoldTask(plan=plan, uid="customers", now=Now(), at_most=1, folder=RunFolder(path=f"{folder}/run"))

    def declare_and_fold() -> None:
        fold = Fold("customers", key_by="customer", state=declared["Customer"])
        assert fold.bind(record_type(declared["Order"])) == plan.schemas["customers"]
        write_fold(frame, task)

    return visited(declare_and_fold)


def main() -> int:
    """Prints the files and their number."""
    with tempfile.TemporaryDirectory() as folder:
        files = (fold_files if sys.argv[1:] == ["fold"] else run_files)(Path(folder))
    sys.stdout.write("\n".join(files) + f"\n{len(files)} files\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
