"""Operator state on Spark: its tasks are those of the memory twin, whatever the parallelism of each checkpoint."""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import pytest
from pyspark.sql import SparkSession

from tests.support.operator_lists import PIPELINE, OperatorListOracle, Order, orders, told
from tests.support.spark import SparkPipeline, TwinPipeline
from tidemark import KafkaSource, Pipeline, Process, state
from tidemark.errors import StateOverflowError
from tidemark.model.checkpoint import codec
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.state import Precision


def test_spark_the_memory_twin_and_plain_lists_agree_while_tasks_come_and_go(
    spark: SparkSession, tmp_path: Path
) -> None:
    seed = int(os.environ.get("TIDEMARK_SEED", "0")) or random.randrange(2**32)
    print(f"TIDEMARK_SEED={seed}")
    chance, oracle = random.Random(seed), OperatorListOracle()
    world, twin = (
        TwinPipeline(PIPELINE, partitions=1),
        SparkPipeline(PIPELINE, partitions=1, spark=spark, root=tmp_path),
    )
    for tasks, n in ((1, 30), (3, 30), (2, 0), (2, 30), (5, 2)):
        world.parallelism = twin.parallelism = tasks
        records = orders(chance, n)
        one, other = world.checkpoint(records), twin.checkpoint(records)
        oracle.checkpoint(records, tasks)
        assert told(other) == {"samples": oracle.samples, "rules": oracle.rules}
        assert other.operator_states == one.operator_states
        assert twin.state("o", other) == world.state("o", one)
        assert twin.letters("o", other) == world.letters("o", one)


def test_from_one_to_three_to_two_tasks_every_element_stays(spark: SparkSession, tmp_path: Path) -> None:
    world = SparkPipeline(PIPELINE, partitions=1, spark=spark, root=tmp_path)
    rules = [f"r{n}" for n in range(5)]
    first = [Order("a", "append", "rules", r) for r in rules]
    first += [Order("b", "append", "samples", f"s{n}") for n in range(7)]
    found = told(world.checkpoint(first))
    assert found == {"rules": rules, "samples": [f"s{n}" for n in range(7)]}
    for tasks in (3, 2):
        world.parallelism = tasks
        # One key, so one task works; the slices of the others come from nobody.
        made = world.checkpoint([Order("c", "append", "samples", f"t{tasks}")])
        before, found = found, told(made)
        assert found["rules"] == rules
        assert sorted(found["samples"]) == sorted([*before["samples"], f"t{tasks}"])
        assert made.operator_states["o"].tasks == tasks


@dataclass(frozen=True)
class Point:
    """An element with fields of most types."""

    name: str | None
    at: datetime
    price: Annotated[Decimal, Precision(12, 2)]
    raw: bytes


class Points(state.Operator):
    """Typed elements."""

    points: list[Point] = state.union_list()


class Count(state.Keyed):
    """What is kept by key."""

    n: int = state.value(0)


def keep_points(key: str, orders: Iterator[Order], count: Count, *, operator_state: Points) -> None:
    """Adds one point per record, and insists on getting back what it added."""
    for order in orders:
        if operator_state.points:
            last = operator_state.points[-1]
            assert last == Point(last.name, datetime(2020, 1, 1, tzinfo=UTC), Decimal("1.50"), b"\xff")
        operator_state.points.append(
            Point(order.what or None, datetime(2020, 1, 1, tzinfo=UTC), Decimal("1.5"), b"\xff")
        )
        count.n += 1


POINTS = Pipeline(
    name="points",
    source=KafkaSource("orders", Order),
    operators=[Process("p", key_by="key", state=Count, function=keep_points, operator_state=Points)],
)


def test_elements_come_back_as_the_instances_that_they_were(spark: SparkSession, tmp_path: Path) -> None:
    world = SparkPipeline(POINTS, partitions=1, spark=spark, root=tmp_path, parallelism=2)
    for what in ("ü", ""):
        made = world.checkpoint([Order(k, "", "", what) for k in "abc"])
    (points,) = made.operator_states["p"].lists
    assert len(points.elements) == 6
    assert points.elements[0] == {
        "name": "ü",
        "at": "2020-01-01T00:00:00+00:00",
        "price": "1.50",
        "raw": "/w==",
    }
    assert codec.from_json(Checkpoint, codec.to_json(made), "m").operator_states == made.operator_states


@pytest.mark.parametrize("engine", ["memory", pytest.param("spark", marks=pytest.mark.spark)])
def test_too_much_is_refused_with_operator_and_list_and_nothing_is_published(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    world = TwinPipeline(PIPELINE, partitions=1)
    if engine == "spark":
        world = SparkPipeline(PIPELINE, partitions=1, spark=request.getfixturevalue("spark"), root=tmp_path)
    world.parallelism = 2
    good = world.checkpoint([Order("a", "append", "rules", "x")])
    # Each task holds less than the bound; together it is too much.
    half = [Order(k, "append", "samples", "ü" * 15_000) for k in "abc"]
    with pytest.raises(StateOverflowError, match=r"o: operator state samples: 90,006 bytes.*limit is 65,536"):
        world.checkpoint(half)
    assert next(world.coordinator.checkpoints()).id == good.id


def test_one_task_is_refused_as_soon_as_it_holds_too_much() -> None:
    world = TwinPipeline(PIPELINE, partitions=1)
    with pytest.raises(StateOverflowError, match="o: operator state rules: ") as caught:
        world.checkpoint([Order("a", "append", "rules", "x" * 1_000)] * 100)
    assert "keep fewer" in caught.value.next


def test_without_operator_state_nothing_of_it_is_written() -> None:
    def plain(key: str, orders: Iterator[Order], count: Count) -> None:
        count.n += len(list(orders))

    operator = Process("p", key_by="key", state=Count, function=plain)
    made = TwinPipeline(replace(POINTS, operators=[operator]), partitions=1).checkpoint([Order("a", "", "", "")])
    assert "operator_state" not in str(codec.to_json(made))
