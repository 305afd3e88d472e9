"""Folds with windows on Spark: equal to the twin and to a brute force, at every checkpoint."""

import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.scale import cases
from tests.support.spark import SparkPipeline, TwinPipeline
from tests.support.window_cases import (
    KINDS,
    Model,
    Rules,
    Sent,
    agree,
    agree_on_updates,
    finals,
    key_of,
    pipeline,
    random_batches,
    random_rules,
    record,
)
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.errors import StateOverflowError

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
CASES = cases(1)


@pytest.mark.parametrize("kind", KINDS)
def test_spark_the_twin_and_a_brute_force_agree(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    for case in range(CASES):
        rules = random_rules(chance, kind)
        if chance.random() < 0.5:
            rules = replace(rules, is_small=True, updates=False, keeps_late=False)  # folded as it is read
        declared, model = pipeline(rules), Model(rules)
        twin = TwinPipeline(declared)
        line = SparkPipeline(declared, spark=spark, root=tmp_path / str(case))
        for batch in random_batches(chance, rules):
            records = [record(sent) for sent in batch]
            model.checkpoint(batch)
            one, other = twin.checkpoint(records), line.checkpoint(records)
            assert one.sealed.facts == other.sealed.facts
            for mine, its in zip(one.sealed.acks, other.sealed.acks, strict=True):
                counts = [
                    (a.read, a.applied, a.filtered, a.dead_lettered, a.late, a.keys, a.emitted) for a in (mine, its)
                ]
                assert counts[0] == counts[1], mine.uid
            late = [uid for uid in ("sold.late",) if rules.keeps_late]
            for uid in ("sold", "days", "ever", *(["missed"] if late else [])):
                assert line.state(uid, other) == twin.state(uid, one), uid
                assert line.letters(uid, other) == twin.letters(uid, one), uid
            for uid in ("sold", "days", *late):
                assert line.emitted(uid, other) == twin.emitted(uid, one), uid
            agree(model, line.state("sold", other), model.open)
            agree(model, finals(line.emitted("sold", other)), model.closed)
            if rules.updates:
                agree_on_updates(model, line.emitted("sold", other))
            closed = {key_of(row): (row["hours"], row["cents"]) for row in line.emitted("days", other)}
            assert closed == Model.sums(model.closed_days)
            ack = other.ack("sold")
            assert ack is not None and ack.late == model.late
        one, other = twin.checkpoint([], drains=True), line.checkpoint([], drains=True)
        assert one.sealed.facts == other.sealed.facts
        assert not line.state("sold", other) and not line.state("days", other)
        for uid in ("sold", "days"):
            assert line.emitted(uid, other) == twin.emitted(uid, one), uid
        model.frontier = 10**9
        model.checkpoint([])
        agree(model, finals(line.emitted("sold", other)), model.closed)
        for deepest in (False, True):
            assert line.compacted("sold", other, deepest=deepest) == twin.compacted("sold", one, deepest=deepest)


def test_a_sum_that_does_not_fit_names_the_key_whether_its_window_closes_or_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    for case, (last, is_small) in enumerate(((5, True), (50, True), (50, False))):
        line = SparkPipeline(pipeline(Rules(is_small=is_small)), spark=spark, root=tmp_path / str(case))
        huge = [Sent(0, "a", 1, 2**63 - 1), Sent(0, "a", 2, 1), Sent(0, "b", last, 1)]
        with pytest.raises(StateOverflowError, match=r"sold: cents of key \(a, .*\) does not fit 64 bits"):
            line.checkpoint([record(sent) for sent in huge])


def test_a_restore_that_keeps_sinks_ends_where_a_line_without_one_does(spark: SparkSession, tmp_path: Path) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    rules = random_rules(chance)
    declared, model = pipeline(rules), Model(rules)
    line = SparkPipeline(declared, spark=spark, root=tmp_path)
    made = []
    # Without a row that a sink gets after the restore point, nothing is repeated: the last batch closes a window.
    ends = [[Sent(partition, "a", minute, 1) for partition in range(2)] for minute in (5_000, 10_000)]
    for batch in (*random_batches(chance, rules), *ends):
        made.append(line.checkpoint([record(sent) for sent in batch]))
        model.checkpoint(batch)
    at = chance.randrange(len(made) - 1)
    Recovery(coordinator=line.coordinator, pipeline=declared).restore(RestorePoint(checkpoint=made[at]))
    for recorded in made[at + 1 :]:
        again = line.checkpoint([])
        assert again.plan.replays == (recorded.id,)
        assert again.sealed.facts.clocks == recorded.sealed.facts.clocks
        for uid in ("sold", "days", "ever"):
            assert without_run(line.state(uid, again)) == without_run(line.state(uid, recorded)), uid
        agree(model, finals(line.emitted("sold", again)), model.closed)
        closed = {key_of(row): (row["hours"], row["cents"]) for row in line.emitted("days", again)}
        assert closed == Model.sums(model.closed_days)


def without_run(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of state without the checkpoint that changed them last."""
    return [{name: value for name, value in row.items() if name != "_changed"} for row in rows]
