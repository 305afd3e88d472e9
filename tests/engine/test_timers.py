"""Timers of a process on Spark: equal to the twin and to a brute force, at every checkpoint."""

import itertools
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.scale import cases
from tests.support.spark import SparkPipeline, TwinPipeline
from tests.support.spark_warehouse import warehouse_of
from tests.support.timer_cases import (
    START,
    Found,
    Model,
    Order,
    Rules,
    Sent,
    agree,
    pipeline,
    random_batches,
    random_rules,
    record,
)
from tidemark import DeltaSink, KafkaSource, Pipeline, Process, state
from tidemark.engine.process import process_operator, subtasks
from tidemark.errors import EngineError, ProcessFunctionError
from tidemark.model.checkpoint.segments import StateHandle

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
CASES = cases(4)


def test_spark_the_twin_and_a_brute_force_agree(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    for case in range(CASES):
        rules = random_rules(chance)
        # With few keys at once, tasks look up their keys in several parts.
        monkeypatch.setattr(subtasks, "_HELD", chance.choice([2, 5, 100_000]))
        declared, model = pipeline(rules), Model(rules)
        twin = TwinPipeline(declared)
        line = SparkPipeline(declared, spark=spark, root=tmp_path / str(case))
        for batch in random_batches(chance):
            records = [record(sent) for sent in batch]
            model.checkpoint(batch)
            one, other = twin.checkpoint(records), line.checkpoint(records)
            assert one.sealed.facts == other.sealed.facts
            for mine, its in zip(one.sealed.acks, other.sealed.acks, strict=True):
                counts = [(a.read, a.applied, a.dead_lettered, a.late, a.fired, a.keys, a.emitted) for a in (mine, its)]
                assert counts[0] == counts[1], mine.uid
            for uid in ("desks", "alarms"):
                assert line.state(uid, other) == twin.state(uid, one), uid
            for uid in ("desks", "desks.said", "alarms"):
                assert line.emitted(uid, other) == twin.emitted(uid, one), uid
            assert line.letters("desks", other) == twin.letters("desks", one)
            found = [line.emitted(uid, other) for uid in ("desks", "desks.said", "alarms")]
            agree(model, Found(line.state("desks", other), *found))
        for deepest in (False, True):
            assert line.compacted("desks", other, deepest=deepest) == twin.compacted("desks", one, deepest=deepest)


def test_keys_without_records_fire_in_a_checkpoint_without_records(spark: SparkSession, tmp_path: Path) -> None:
    """The first operator by logical time would do; here another key moves the watermark, then nothing is read."""
    line = SparkPipeline(pipeline(Rules(lateness=5)), spark=spark, root=tmp_path)
    line.checkpoint([record(Sent(p, "a", 0, "set", "x", 2)) for p in (0, 1)])
    line.pipeline = pipeline(Rules(lateness=0))
    line.checkpoint([record(Sent(p, "b", 1)) for p in (0, 1)])
    line.pipeline = pipeline(Rules(lateness=0))
    second = line.checkpoint([record(Sent(p, "b", 4)) for p in (0, 1)])
    (fired,) = line.emitted("desks", second)
    assert (fired["desk"], fired["at"]) == ("a", START + timedelta(minutes=2))
    empty = line.checkpoint([])
    ack = empty.ack("desks")
    assert ack is not None and (ack.read, ack.fired, ack.keys) == (0, 0, 0)


def test_a_lower_lateness_fires_without_a_record(spark: SparkSession, tmp_path: Path) -> None:
    for line in (
        SparkPipeline(pipeline(Rules(lateness=15)), spark=spark, root=tmp_path),
        TwinPipeline(pipeline(Rules(lateness=15))),
    ):
        line.checkpoint([record(Sent(p, "a", 10 * p, "set", f"t{p}", 2)) for p in (0, 1, 0, 1)])
        line.checkpoint([record(Sent(p, "b", 12)) for p in (0, 1)])
        line.pipeline = pipeline(Rules(lateness=0))
        found = line.checkpoint([])
        ack = found.ack("desks")
        assert ack is not None and (ack.read, ack.applied, ack.fired) == (0, 0, 2)
        assert [r["name"] for r in line.emitted("desks", found)] == ["t0", "t1"]
        assert [r["timers"] for r in line.state("desks", found) if r["desk"] == "a"] in ([{}], [[]])


def test_workers_look_up_the_keys_of_their_own_range_only(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = SparkPipeline(pipeline(Rules()), spark=spark, root=tmp_path)
    first = line.checkpoint([record(Sent(0, desk, 0)) for desk in "abcdefgh"])
    handle = first.handles["desks"]
    there = warehouse_of(spark, tmp_path)
    assert there.reader_of(handle, 500_000) is not None
    assert there.reader_of(handle, 500_001) is None, "a task would hold too many keys"
    assert there.reader_of(StateHandle(), 1) is None, "nothing is stored"
    assert warehouse_of(spark, tmp_path, by_workers=False).reader_of(handle, 1) is None
    monkeypatch.setattr(
        process_operator, "partition_by_task", lambda rows, schema, tasks: rows.repartition(tasks, "_k0")
    )
    line.turns = itertools.repeat(0)
    with pytest.raises(EngineError, match="Python worker"):
        line.checkpoint([record(Sent(0, desk, 1)) for desk in "abcdefgh"])


def broken(desk: str, name: str, at: object, remembered: Any, *, timers: Any) -> None:
    if name == "loop":
        timers.set(name, at)
    else:
        raise ValueError("no")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("x", r"ValueError: no \(broken, line \d+\): key \(a\), a timer of 2024-01-01T00:01:00"),
        ("loop", "more than 1,000 firings of one key at 2024-01-01T00:01:00"),
    ],
)
def test_an_error_of_on_timer_names_key_and_time(spark: SparkSession, tmp_path: Path, name: str, what: str) -> None:
    declared = pipeline(Rules())
    process, alarms = declared.operators
    assert isinstance(process, Process)
    declared = replace(declared, operators=[replace(process, on_timer=broken), alarms])
    for line in (SparkPipeline(declared, spark=spark, root=tmp_path), TwinPipeline(declared)):
        orders = [Sent(p, "a", m, "set" if m == 0 else "say", name, 1) for p in (0, 1) for m in (0, 5)]
        with pytest.raises(ProcessFunctionError, match=what) as caught:
            line.checkpoint([record(sent) for sent in orders])
        assert caught.value.next == "fix on_timer, then run the pipeline again."


@dataclass(frozen=True)
class Alert:
    """A desk that was silent, and since when."""

    desk: str
    since: datetime


@dataclass(frozen=True)
class Count:
    """How many alerts a task has seen."""

    desk: str
    heard: int


class Nothing(state.Keyed):
    """State that no function touches."""

    n: int = state.value(0)


class Local(state.Operator):
    """The desks that fired, per task."""

    desks: list[str] = state.split_list()


def watch(desk: str, orders: Iterator[Any], remembered: Any, *, timers: Any) -> None:
    for order in orders:
        timers.set("silent", order.at + timedelta(minutes=5))


def silent(desk: str, name: str, at: datetime, remembered: Any) -> Iterator[Alert]:
    yield Alert(desk, at)


def hear(
    key: tuple[str, datetime], alerts: Iterator[Alert], remembered: Any, *, timers: Any, operator_state: Any
) -> None:
    for alert in alerts:
        timers.set("again", alert.since + timedelta(minutes=6))


def report(key: Any, name: str, at: datetime, remembered: Any, *, timers: Any, operator_state: Any) -> Iterator[Count]:
    operator_state.desks.append(key[0])
    yield Count(key[0], len(operator_state.desks))


def chain() -> Pipeline:
    """Timers over the rows of timers, by a key of two columns, one of them a time; with lists per task."""
    first = Process("watch", key_by="desk", state=Nothing, function=watch, on_timer=silent, emits=Alert)
    second = Process(
        "report",
        key_by=("desk", "since"),
        state=Nothing,
        function=hear,
        on_timer=report,
        operator_state=Local,
        input="watch",
        emits=Count,
        sink=DeltaSink("counts"),
    )
    return Pipeline(name="desks", source=KafkaSource("orders", Order, event_time="at"), operators=[second, first])


def test_timers_over_rows_of_timers_fire_alike(spark: SparkSession, tmp_path: Path) -> None:
    twin = TwinPipeline(chain(), parallelism=2)
    line = SparkPipeline(chain(), spark=spark, root=tmp_path)
    found = []
    for batch in ([("a", 0), ("b", 1), ("c", 9)], [("c", 12)], [("c", 20)], []):
        records = [record(Sent(0, desk, minute)) for desk, minute in batch]
        one, other = twin.checkpoint(records), line.checkpoint(records)
        assert one.sealed.facts == other.sealed.facts
        for uid in ("watch", "report"):
            assert line.state(uid, other) == twin.state(uid, one), uid
        assert line.emitted("report", other) == twin.emitted("report", one)
        assert other.operator_states == one.operator_states
        ack = other.ack("report")
        assert ack is not None and ack == replace(ack, applied=ack.read)
        found.append((ack.read, ack.fired))
    assert found == [(2, 0), (0, 2), (1, 0), (0, 0)], "the second has no record when its timers fire"
