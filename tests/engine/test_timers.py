"""Timers of a process on Spark: equal to the twin and to a brute force, at every checkpoint."""

import os
import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.spark import SparkPipeline, TwinPipeline
from tests.support.timer_cases import (
    START,
    Found,
    Model,
    Rules,
    Sent,
    agree,
    pipeline,
    random_batches,
    random_rules,
    record,
)
from tidemark import Process
from tidemark.errors import ProcessFunctionError

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
CASES = 4 * int(os.environ.get("TIDEMARK_TEST_SCALE", "1"))


def test_spark_the_twin_and_a_brute_force_agree(spark: SparkSession, tmp_path: Path) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    for case in range(CASES):
        rules = random_rules(chance)
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
