"""A process without outputs runs in the query that reads a small batch; the long way, or the twin, is the oracle."""

import itertools
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.engine.kafka_spark_pipeline import KafkaSparkPipeline, folders, letters
from tests.engine.test_folding import bodies
from tests.support.readings import Device, Reading
from tests.support.spark import SparkPipeline, TwinPipeline
from tidemark import Fold, KafkaSource, Pipeline, Process, Watermark, state
from tidemark.engine.process import process_operator
from tidemark.engine.write.parquet_writer import Observed
from tidemark.errors import ProcessFunctionError
from tidemark.model.checkpoint.manifest import WrittenRun

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
GOOD = {"device": "d", "at": "2020-01-01T00:00:00Z", "count": 1}


class Seen(state.Keyed):
    """The counts of a device, singly and by group."""

    readings: int = state.value(0)
    counts: list[int] = state.list()
    groups: dict[int, int] = state.map()


def look(device: str, readings: Iterator[Reading], seen: Seen) -> None:
    for reading in readings:
        if reading.count == 13:
            raise ValueError(f"unlucky {device}")
        seen.readings += 1
        seen.counts.append(reading.count)
        seen.groups[reading.group or 0] = seen.groups.get(reading.group or 0, 0) + 1
        if reading.ok is False:
            seen.clear()


def looking(line: KafkaSparkPipeline, *more: str, **options: Any) -> KafkaSparkPipeline:
    operators: list[Any] = [Process("seen", key_by="device", state=Seen, function=look, **options)]
    operators += [Fold(uid, key_by="device", state=Device) for uid in more]
    source = KafkaSource(line.topic, Reading, event_time="at")
    line.pipeline = Pipeline(name="readings", source=source, operators=operators, max_dead_letters=1.0)
    return line


def rows_of(line: KafkaSparkPipeline, run: WrittenRun, below: str) -> list[dict[str, Any]]:
    tables = [pq.read_table(line.root / below / f.path, partitioning=None) for f in run.files]
    return pa.concat_tables(tables).drop_columns("_changed").to_pylist() if tables else []


@pytest.mark.parametrize("more", [(), ("devices",)], ids=["alone", "with another"])
def test_the_short_way_finds_what_the_long_one_finds(
    line: KafkaSparkPipeline, more: tuple[str, ...], counted: list[str]
) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED} pytest {__file__}")
    chance = random.Random(SEED)
    looking(line, *more, where=chance.choice([None, "count > 1 OR group IS NULL"]))
    for turn in range(3):
        sent: list[Any] = [body for body in bodies(chance, 60) if body["count"] != 13] + [b"{", None]
        chance.shuffle(sent)
        line.send(sent)
        plan = line.plan()
        counted.clear()
        short, long = line.compute().read(plan, folders(plan)), line.compute().read(replace(plan, id=100 + turn))
        assert counted == ["records"], "only the long way counts"
        assert (short.facts, short.counts) == (long.facts, long.counts)
        counts, found = [], []
        for batch, folder in ((short, folders(plan)["seen"]), (long, f"long/{turn}.1")):
            counts.append(batch.prepare("seen"))
            run = batch.write_run("seen", folder)
            found.append((run.rows, rows_of(line, run, folder.rpartition("/")[0])))
        assert counts[0] == counts[1]
        order = lambda row: (row["_key_group"], row["device"], str(row["_field"]), str(row["groups__key"]))  # noqa: E731
        assert sorted(found[0][1], key=order) == sorted(found[1][1], key=order)
        assert found[0][0] == found[1][0] == len(found[0][1]) > 1
        for batch in (short, long):
            batch.close()
        for path in (line.root / folders(plan)["seen"]).iterdir():
            path.unlink()
        (line.root / folders(plan)["seen"]).rmdir()
        line.checkpoint()


def test_a_failure_is_reported_by_the_long_way_and_leaves_no_run(line: KafkaSparkPipeline, counted: list[str]) -> None:
    looking(line)
    line.send([GOOD, {**GOOD, "count": 13}, GOOD])
    with pytest.raises(ProcessFunctionError, match="ValueError: unlucky d"):
        line.checkpoint()
    assert counted == ["records"]
    assert not list(line.root.rglob("*.parquet"))


def test_a_record_that_fails_is_a_dead_letter(line: KafkaSparkPipeline, counted: list[str]) -> None:
    looking(line, on_error="dead_letter")
    line.send([GOOD, {**GOOD, "count": 13}, GOOD, b"{"])
    (ack,) = line.checkpoint().acks
    assert counted == ["records"], "the long way counted"
    assert (ack.read, ack.applied, ack.dead_lettered) == (4, 2, 2)
    assert [row["readings"] for row in line.state("seen")] == [2]
    assert sorted(row["reason"].partition(":")[0] for row in letters(line, "seen").to_pylist()) == [
        "malformed_json", "process_failed"
    ]  # fmt: skip
    line.send([GOOD])
    line.checkpoint()
    assert counted == ["records"], "now in passing"
    assert [row["readings"] for row in line.state("seen")] == [3]


@pytest.mark.parametrize("told", [{}, {"rows": 5, "others": 0}], ids=["nothing", "too much"])
def test_an_observation_that_is_lost_or_wrong_is_not_trusted(
    line: KafkaSparkPipeline, counted: list[str], monkeypatch: pytest.MonkeyPatch, told: dict[str, int]
) -> None:
    looking(line)
    line.send([GOOD, {**GOOD, "device": "e"}])
    of = Observed.of
    unsure = lambda self, name: told if name == process_operator.RETURNED else of(self, name)  # noqa: E731
    monkeypatch.setattr(Observed, "of", unsure)
    (ack,) = line.checkpoint().acks
    assert counted == ["records"]
    assert (ack.applied, [(row["device"], row["readings"]) for row in line.state("seen")]) == (2, [("d", 1), ("e", 1)])


START = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Beat:
    """A device is heard."""

    device: str
    at: datetime


class Heard(state.Keyed):
    """How often a device was heard, and how often it was quiet for five minutes."""

    beats: int = state.value(0)
    quiet: int = state.value(0)


def hear(device: str, beats: Iterator[Beat], heard: Heard, *, timers: Any) -> None:
    for beat in beats:
        heard.beats += 1
        timers.set("quiet", beat.at + timedelta(minutes=5))


def miss(device: str, name: str, at: datetime, heard: Heard) -> None:
    heard.quiet += 1


def test_with_timers_the_query_of_the_function_writes_the_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = KafkaSource("beats", Beat, event_time="at", watermark=Watermark(delay="1m"))
    operator = Process("heard", key_by="device", state=Heard, function=hear, on_timer=miss)
    declared = Pipeline(name="beats", source=source, operators=[operator])
    twin, line = TwinPipeline(declared), SparkPipeline(declared, spark=spark, root=tmp_path)
    line.turns = itertools.repeat(0)
    kept: list[object] = []
    monkeypatch.setattr(process_operator, "keep_output", lambda *of: kept.append(of))
    fired = []
    for minutes in ([("a", 0), ("b", 1)], [("a", 4), ("c", 4)], [("c", 20), ("d", 20)], [("d", 21), ("d", 60)]):
        beats = [Beat(device, START + timedelta(minutes=at)) for device, at in minutes for _ in range(2)]
        one, other = twin.checkpoint(beats), line.checkpoint(beats)
        acks = [(a.applied, a.fired, a.keys) for found in (one, other) for a in found.sealed.acks]
        assert acks[0] == acks[1]
        fired.append(acks[0][1])
        assert line.state("heard", other) == twin.state("heard", one)
    assert fired == [0, 0, 3, 2], "without records, too"
    assert not kept
