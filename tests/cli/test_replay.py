"""A checkpoint computed again by real Spark from real Kafka comes to the same state, twice, compaction or not (Q5)."""

from typing import Any

import pytest

from tests.cli.conftest import TillPipeline
from tidemark.operations import reads

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]


def _replayed(line: TillPipeline, checkpoint: str) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = line.tidemark("checkpoint", "replay", "till", checkpoint, "--json").ok().json
    return told


def _hashes(line: TillPipeline, checkpoint: str) -> list[str]:
    """Hashes of the states as they are computed again, which must equal those of the manifest."""
    before = line.tidemark.objects("till")
    told = _replayed(line, checkpoint)
    assert [(s["uid"], s["equal"], s["sha256"]) for s in told] == [
        (
            uid,
            True,
            line.tidemark("state", "hash", "till", uid, "--checkpoint", checkpoint, "--json").ok().json["sha256"],
        )
        for uid in ("accounts", "tills")
    ]
    assert line.tidemark.objects("till") == before, "a replay leaves nothing"
    assert not (line.tidemark.warehouse / "till" / "scratch").exists()
    return [s["sha256_replayed"] for s in told]


def test_a_replay_gives_equal_hashes_twice_with_a_compaction_between(line: TillPipeline) -> None:
    line.run("--max-records", "20", "--once")
    line.run()
    first = _hashes(line, "chk-2")
    told = line.tidemark("compact", "till", "--full", "--json").ok().json
    assert {row["uid"] for row in told} == {"accounts", "tills"}
    states = [row for row in told if row["table"] == "state"]
    assert len(states) == 2
    for row in states:
        assert (row["levels_before"], row["levels_after"]) == ([0, 0], [1])
        assert (row["files_after"], row["amplification_after"]) == (1, 1.0)
        assert row["rows_after"] <= row["rows_before"] and row["amplification_before"] > 1
    line.send(25)
    line.run()
    assert _hashes(line, "chk-2") == first


def test_a_checkpoint_over_a_compacted_base_is_replayed(line: TillPipeline) -> None:
    plan = reads.get_checkpoint(line.tidemark.context, "till", 3).plan
    assert {uid for uid in plan.adopted if "~" not in uid} == {"accounts", "tills"}
    assert _hashes(line, "chk-3") != _hashes(line, "chk-1")


def test_the_printed_query_answers_in_spark_as_the_command_line_does(line: TillPipeline) -> None:
    wanted = line.tidemark("state", "sql", "till", "select account, sales from accounts order by account", "--json")
    text = line.tidemark("state", "query", "till", "accounts").ok().out
    with line.tidemark.context.session("test of a printed query", 1) as spark:
        rows = spark.sql(text).select("account", "sales").orderBy("account").collect()
    assert [row.asDict() for row in rows] == wanted.ok().json


def test_records_that_kafka_has_dropped_cannot_be_replayed(line: TillPipeline) -> None:
    line.topics.trim(line.topic, 12)
    line.tidemark("checkpoint", "replay", "till", "chk-1").failed(6, "chk-1 cannot be replayed", "checkpoint list till")
    assert not (line.tidemark.warehouse / "till" / "scratch").exists()
    assert all(s["equal"] for s in _replayed(line, "chk-3"))
