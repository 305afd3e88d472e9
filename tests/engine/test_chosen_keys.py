"""`read_state` in Spark: who merges where nobody says it, and keys that are chosen, by each engine.

Each check runs over a Connect session and in a driver of its own.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any, get_args
from unittest import mock

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession

import tidemark
from tests.support import typed_keys
from tests.support.cli import Command
from tests.support.kafka import Topics
from tests.support.s3 import Bucket, one_store
from tests.support.spark_cluster import ROOT
from tidemark.context import open_context
from tidemark.engine.session.session import SparkSettings, open_session
from tidemark.engine.state import resolve_ranges
from tidemark.engine.state.resolve_ranges import workers_see
from tidemark.errors import UsageError
from tidemark.readers.state_reader import range_reader
from tidemark.reading import Resolver
from tidemark.settings import load_settings
from tidemark.storage.s3_folder import S3Folder

CHOICES: Sequence[Mapping[str, Any]] = (
    {"name": "a"},
    {"name": ["", "a%", "é", "a\0b", "nobody"]},
    {"name": typed_keys.NAMES},
    {"number": -(2**63)},
    {"number": [2**53 + 1, 2, 0]},
    {"amount": Decimal("7.1")},
    {"amount": [Decimal("99999999.99"), Decimal("-0.5"), Decimal(0)]},
    {"day": date(1, 1, 1)},
    {"day": [date(1582, 10, 4), date(9999, 12, 31)]},
    {"moment": datetime(1900, 1, 1, 0, 0, 0, 1, UTC)},
    {"moment": typed_keys.MOMENTS[2:]},
    {"good": True},
    {"good": [True, False]},
    {"good": []},
    {"name": "a", "good": False, "number": typed_keys.NUMBERS},
    {name: [row[name] for row in list(typed_keys.key_rows())[:7]] for name in typed_keys.KEYS},
    list(typed_keys.key_rows())[9],
    {},
)
BY_SPARK = """
from dataclasses import dataclass

from tidemark import Fold, KafkaSource, Pipeline, state


@dataclass(frozen=True)
class Entry:
    who: str
    n: int


class Mixed(state.Keyed):
    mixed: int | None = state.aggregate(
        accumulator={"n": int}, partial={"n": "bit_xor(n)"}, merge={"n": "bit_xor(n)"}, finish="n", spark_only=True
    )


mixes = Pipeline(
    name="mixes", source=KafkaSource("$topic", Entry), operators=[Fold("mixed", key_by="who", state=Mixed)]
)
"""
pytestmark = pytest.mark.slow


class TypedState:
    """The typed state of a folder, in a session."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        typed_keys.typed_keys(root / "warehouse")
        self.spark = spark
        self.settings = load_settings(home=str(root / "home"), warehouse=str(root / "warehouse"))
        rows = [row | {"count": n + (1000 if n % 5 == 0 else 0)} for n, row in enumerate(typed_keys.key_rows())]
        self.rows = pd.DataFrame(rows, dtype=object)

    def read(self, **options: Any) -> DataFrame:
        """The state as a frame."""
        return tidemark.read_state(self.spark, "typed", typed_keys.UID, settings=self.settings, **options)


def plan_of(frame: Any) -> str:
    """Spark's plan of a frame."""
    is_remote = hasattr(frame, "_explain_string")
    return str(frame._explain_string() if is_remote else frame._jdf.queryExecution().toString())


def merged_by_workers(frame: DataFrame) -> bool:
    """Whether Python merges the rows of a frame."""
    return "MapInArrow" in plan_of(frame)


def shown(rows: Sequence[Mapping[Any, Any]]) -> list[str]:
    """Rows as sorted texts, whatever the zone of their times."""
    return sorted(
        repr([row[name].timestamp() if name == "moment" else row[name] for name in (*typed_keys.KEYS, "count")])
        for row in rows
    )


def check_keys(state: TypedState) -> None:
    """Chosen keys are the rows that pandas selects from what was sent."""
    sizes = set()
    for keys in CHOICES:
        chosen = state.rows
        for name, given in keys.items():
            chosen = chosen[chosen[name].isin(given if isinstance(given, list) else [given])]
        sizes.add(len(chosen))
        for by in get_args(Resolver):
            found = state.read(by=by, keys=keys).collect()
            assert shown([row.asDict() for row in found]) == shown(chosen.to_dict("records")), (by, keys)
    assert {0, 1, len(state.rows)} < sizes


def check_who_merges(state: TypedState) -> None:
    """Workers by default, and SQL if it is asked for."""
    assert merged_by_workers(state.read())
    assert merged_by_workers(state.read(by="duckdb"))
    assert not merged_by_workers(state.read(by="spark"))


def check_sql_reads_less(state: TypedState) -> None:
    """The condition of chosen keys is part of the scan of the files."""
    plan = plan_of(state.read(by="spark", keys={"number": 2**53 + 1, "day": date(2024, 2, 29)}))
    scans = [line for line in plan.splitlines() if "PushedFilters" in line]
    assert scans
    assert all("EqualTo(number,9007199254740993)" in line for line in scans), scans
    assert all("EqualTo(day,2024-02-29)" in line for line in scans), scans


def check_refusals(state: TypedState) -> None:
    """A wrong argument is refused at once, whoever merges."""
    for by in get_args(Resolver):
        for keys in ({"count": 1}, {"number": "1"}, {"name": None}):
            with pytest.raises(UsageError):
                state.read(by=by, keys=keys)


def check_workers_without_the_folder_or_the_libraries(state: TypedState, tmp_path: Path, name: str) -> None:
    """They do not see a state, and are asked only once."""
    assert not workers_see(state.spark, f"{name}/there", f"{name}/there/file", range_reader)
    (tmp_path / f"{name}.py").write_text("def range_reader(*_): ...")
    with mock.patch.object(sys, "path", [*sys.path, str(tmp_path)]):
        lacking = import_module(name).range_reader
    existing = str(tmp_path / f"{name}.py")
    assert not workers_see(state.spark, f"{name}/lacking", existing, lacking)
    assert workers_see(state.spark, f"{name}/here", existing, range_reader)
    with mock.patch.object(resolve_ranges, "version", lambda _: "0.0.0"):  # this client's, not the worker's
        assert not workers_see(state.spark, f"{name}/older", existing, range_reader)
    (tmp_path / f"{name}.py").unlink()
    assert workers_see(state.spark, f"{name}/here", existing, range_reader)


CHECKS = (check_keys, check_who_merges, check_sql_reads_less, check_refusals)


@pytest.fixture(scope="module")
def typed_state(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TypedState]:
    """The typed state over Connect."""
    yield TypedState(spark, tmp_path_factory.mktemp("typed"))


@pytest.mark.parametrize("check", CHECKS)
def test_over_connect(typed_state: TypedState, check: Any) -> None:
    check(typed_state)


def test_workers_without_the_folder_or_the_libraries(typed_state: TypedState, tmp_path: Path) -> None:
    check_workers_without_the_folder_or_the_libraries(typed_state, tmp_path, "lacking_over_connect")


@one_store
def test_a_bucket_is_left_to_sql(spark_server: str, bucket: Bucket, folder: S3Folder, tmp_path: Path) -> None:
    typed_keys.typed_keys(tmp_path, folder)
    settings = load_settings(home=str(tmp_path / "home"), warehouse=f"s3://{bucket.name}/house", spark=spark_server)
    with open_context(settings).session("chosen", 1) as spark:
        keys = list(typed_keys.key_rows())[9]
        frame = tidemark.read_state(spark, "typed", typed_keys.UID, keys=keys, settings=settings)
        assert not merged_by_workers(frame)
        assert [row["count"] for row in frame.collect()] == [9]
        workers = tidemark.read_state(spark, "typed", typed_keys.UID, by="duckdb", settings=settings)
        assert merged_by_workers(workers), "as far as the client knows"


def test_a_state_that_only_spark_can_merge_is_left_to_it(
    topics: Topics, broker: str, spark_server: str, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topics.make(partitions=1)
    command = Command(tmp_path, broker, spark_server)
    command.declare(BY_SPARK, topic=topic)
    topics.produce(topic, [json.dumps({"who": who, "n": n}).encode() for who, n in (("a", 6), ("b", 1), ("a", 3))])
    command("run", "mixes").ok()
    settings = load_settings(home=str(tmp_path / "home"), warehouse=str(command.warehouse))
    found = tidemark.read_state(spark, "mixes", "mixed", keys={"who": ["a"]}, settings=settings)
    assert not merged_by_workers(found)
    assert [(row["who"], row["mixed"]) for row in found.collect()] == [("a", 6 ^ 3)]
    with pytest.raises(UsageError):
        tidemark.read_state(spark, "mixes", "mixed", by="duckdb", settings=settings)


def test_in_a_driver_of_its_own(tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT / "include"), str(ROOT)])
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    command = [sys.executable, "-m", "tests.engine.test_chosen_keys", str(tmp_path)]
    done = subprocess.run(
        command, env=env | {"PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr[-3_000:]


if __name__ == "__main__":
    session = open_session(SparkSettings(master="local[2]", jars=ROOT / ".jars" / "spark"), "chosen", 1)
    for each in CHECKS:
        each(TypedState(session, Path(sys.argv[1]) / each.__name__))
    last = TypedState(session, Path(sys.argv[1]) / "last")
    check_workers_without_the_folder_or_the_libraries(last, Path(sys.argv[1]), "lacking_in_a_driver")
    session.stop()
