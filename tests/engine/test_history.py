"""What was committed stays readable: time travel by Spark, aged versions, abandoned attempts, the gate's frames."""

import os
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.engine.kafka_spark_pipeline import KafkaSparkPipeline, OpenAttempt
from tests.support.spark_warehouse import warehouse_of
from tidemark.engine.state.resolve_sql import resolve_state
from tidemark.errors import DeadLettersExceededError, FencedError, GateFailedError
from tidemark.model.core.ttl import Now

BODY = {"device": "d", "at": "2020-01-01T00:00:00Z", "count": 1}


def test_every_checkpoint_stays_readable_by_spark_even_after_weeks(
    line: KafkaSparkPipeline, spark: SparkSession
) -> None:
    states = []
    for n in range(3):
        line.send([{**BODY, "count": n}, {**BODY, "device": f"d{n}", "count": 5}])
        line.checkpoint()
        states.append((line.handles["devices"], line.state("devices")))
    for log in (line.root / line.handles["devices"].segments[0].path / "_delta_log").glob("*.json"):
        os.utime(log, (1_000_000_000, 1_000_000_000))
    for handle, expected in states:
        assert line.state("devices", handle) == expected
    frame = resolve_state(warehouse_of(spark, line.root), line.pipeline.schemas()["devices"], states[0][0], Now())
    assert frame.count() == 2


def test_every_data_file_is_compressed_with_zstd_runs_bases_and_dead_letters(line: KafkaSparkPipeline) -> None:
    for _ in range(2):
        line.send([BODY, b"{"])
        line.checkpoint()
    assert line.compact("devices", runs=2) is not None
    files = [*line.root.rglob("*.parquet")]
    assert {p.relative_to(line.root).parts[1] for p in files} == {"state", "dead_letters"}
    assert any("base" in p.parts for p in files)
    for path in files:
        found = pq.ParquetFile(path).metadata
        chunks = [found.row_group(g).column(c) for g in range(found.num_row_groups) for c in range(found.num_columns)]
        assert {chunk.compression for chunk in chunks} == {"ZSTD"}, path


def test_an_abandoned_attempt_leaves_no_trace_in_the_state(line: KafkaSparkPipeline) -> None:
    line.send([BODY] * 4)
    line.checkpoint()
    line.send([BODY] * 6)
    plan = line.plan()
    line.execute(OpenAttempt(plan, 1))
    line.complete(plan, line.execute(OpenAttempt(plan, 2)))
    (row,) = line.state("devices")
    assert (row["readings"], row["total"]) == (10, 10)


def test_a_revoked_attempt_stops_before_its_next_step(line: KafkaSparkPipeline) -> None:
    line.send([BODY] * 4)
    attempt = OpenAttempt(line.plan())
    attempt.revoked = True
    with pytest.raises(FencedError):
        line.execute(attempt)


def test_an_operator_without_rows_commits_nothing_and_is_re_referenced(line: KafkaSparkPipeline) -> None:
    line.send([BODY] * 2)
    sealed = line.checkpoint()
    devices, days = sealed.acks
    assert len(devices.commits) == 1
    assert (days.applied, days.dead_lettered, days.keys, bool(days.handle)) == (0, 2, 0, False)
    line.send([])
    idle = line.checkpoint()
    assert idle.acks[0].handle == devices.handle and idle.acks[0].commits == ()


def test_too_many_dead_letters_stop_the_checkpoint(line: KafkaSparkPipeline) -> None:
    line.send([BODY, b"x"])
    with pytest.raises(DeadLettersExceededError):
        line.execute(OpenAttempt(line.plan()), share=0.4)


def test_a_gate_judges_records_changes_and_state(line: KafkaSparkPipeline) -> None:
    line.send([BODY] * 3)
    line.checkpoint()
    line.with_gate(_gate)
    line.send([{**BODY, "count": 2}])
    sealed = line.checkpoint()
    found = {(e.frame, e.type): e.success for e in sealed.verdict.expectations}
    assert found == {
        ("records", "expect_column_values_to_be_between"): True,
        ("changes.devices", "expect_column_max_to_be_between"): True,
        ("state.devices", "expect_column_max_to_be_between"): True,
        ("state.devices", "expect_column_values_to_be_null"): False,
    }
    line.send([{**BODY, "count": 1000}])
    with pytest.raises(GateFailedError, match="records: expect_column_values_to_be_between: 1 of 1"):
        line.execute(OpenAttempt(line.plan()))


@pytest.mark.parametrize("frame", ["records", "nowhere", "raises"])
def test_a_gate_that_cannot_judge_is_no_pass(line: KafkaSparkPipeline, frame: str) -> None:
    def broken() -> dict[str, Any]:
        import great_expectations.expectations as gxe

        if frame == "raises":
            raise RuntimeError("the author's mistake")
        word = "warning"  # as an author writes it
        return {frame: [gxe.ExpectColumnValuesToNotBeNull(column="no_such_column", severity=word)]}  # type: ignore[arg-type]

    line.with_gate(broken)
    line.send([BODY])
    with pytest.raises(GateFailedError, match="could not judge"):
        line.execute(OpenAttempt(line.plan()))


def _gate() -> dict[str, Any]:
    import great_expectations.expectations as gxe

    return {
        "records": [gxe.ExpectColumnValuesToBeBetween(column="count", max_value=100)],
        "changes": {"devices": [gxe.ExpectColumnMaxToBeBetween(column="total", min_value=2, max_value=2)]},
        "state": {
            "devices": [
                gxe.ExpectColumnMaxToBeBetween(column="total", min_value=5, max_value=5),
                gxe.ExpectColumnValuesToBeNull(column="total", severity="warning"),  # type: ignore[arg-type]
            ]
        },
    }
