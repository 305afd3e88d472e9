"""The whole line through the command: a pipeline's file that Spark's workers cannot import, Kafka, Delta, DuckDB."""

import json
from pathlib import Path

from pyspark.sql import SparkSession

import tidemark
from tests.support.cli import Command
from tests.support.kafka import Sent, Topics
from tidemark.settings import load_settings

DECLARATION = Path(__file__).parent / "pipelines" / "walk.py"


def test_a_process_runs_on_workers_that_have_no_pipeline_files(
    topics: Topics, broker: str, spark_server: str, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topics.make(partitions=2)
    command = Command(tmp_path, broker, spark_server)
    command.declare(DECLARATION, topic=topic)
    for first in (1, 4):
        sent = [(0, "a", first), (1, "b", first + 1), (0, "a", first + 2)]
        values = [Sent(json.dumps({"who": who, "n": n}).encode(), partition=p) for p, who, n in sent]
        topics.produce(topic, values)
        command("run", "walk", "--json").ok()
    (a, b) = command("state", "show", "walk", "walkers", "--json").ok().json
    assert (a["total"], a["last"]) == (1 + 3 + 4 + 6, {"who": "a", "n": -6})
    assert (b["total"], b["last"]) == (2 + 5, {"who": "b", "n": -5})
    rows = command("sink", "show", "walk", "far", "--json").ok().json
    assert [(r["who"], r["total"], r["_partition"], r["_offset"]) for r in rows] == [
        ("a", 8, 0, 2),
        ("a", 14, 0, 3),
        ("b", 7, 1, 1),
    ]
    assert command("sink", "show", "walk", "far", "--checkpoint", "chk-1", "--json").ok().json == []
    settings = load_settings(home=str(tmp_path / "home"), warehouse=str(command.warehouse))
    frame = tidemark.read_sink(spark, "walk", "far", settings=settings)
    assert {(r["who"], r["total"], r["_uid"], *r["_path"], r["_checkpoint"]) for r in frame.collect()} == {
        ("a", 8, "walkers", 0, 2),
        ("a", 14, "walkers", 0, 2),
        ("b", 7, "walkers", 0, 2),
    }
    command("savepoint", "create", "walk", "before", "--checkpoint", "1").ok()
    then = tidemark.read_state(spark, "walk", "walkers", by="spark", savepoint="before", settings=settings).collect()
    assert {(r["who"], r["total"]) for r in then} == {("a", 1 + 3), ("b", 2)}
    in_workers = tidemark.read_state(spark, "walk", "walkers", by="duckdb", checkpoint=1, settings=settings)
    assert sorted(in_workers.collect()) == sorted(then)
    assert in_workers.where("who = 'b'").count() == 1
    by_default = tidemark.read_state(spark, "walk", "walkers", checkpoint=1, settings=settings)
    assert sorted(by_default.collect()) == sorted(then)
    assert tidemark.read_sink(spark, "walk", "far", savepoint="before", settings=settings).collect() == []
