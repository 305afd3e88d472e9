"""The bug of the demo, from July to September, mended by a redrive: every flight counts, as the oracle computes."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from devstack.demo.flights_data import read_flights
from devstack.demo.oracle import KEYS, Oracle, differences
from devstack.demo.reference_data import read_airlines, read_planes
from devstack.demo.releases import RIGHT, WRONG
from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import commands_over
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.core.offsets import TopicPartition
from tidemark.readers.checkpoint_reader import read_checkpoint

SOURCE = (Path(__file__).parents[2] / "include" / "pipelines" / "flights.py").read_text()
MONTHS = [datetime(2013, month, 1, tzinfo=UTC) for month in (7, 8, 9, 10)]
FOLDS = tuple(KEYS)


@pytest.mark.slow
def test_flights_that_a_bug_refused_for_three_months_are_redriven(tmp_path: Path) -> None:
    tidemark = Command(tmp_path, "127.0.0.1:1", "sc://127.0.0.1:1")

    def deploy(line: str) -> Any:
        tidemark.declare(SOURCE.replace(RIGHT, line).replace("max_dead_letters=", "max_dead_letters=1.0 or "))
        return tidemark.context.pipeline("flights")

    line = DiskPipeline(tidemark.warehouse, deploy(WRONG), "flights", partitions=4)
    for topic, records in (("planes", read_planes()), ("airlines", read_airlines())):
        line.log.create(topic, 1)
        for record in records:
            line.log.append(TopicPartition(topic, 0), record.value, timestamp_ms=0)
    whole = Oracle()
    flights, place = read_flights(), dict(zip(whole.flights["number"], whole.flights["place"], strict=True))
    for first, end in zip(MONTHS, MONTHS[1:], strict=False):
        low, high = first.timestamp() * 1000, end.timestamp() * 1000
        line.send([(int(place[f.row]), f.value, f.timestamp_ms) for f in flights if low <= f.timestamp_ms < high])
        made = line.checkpoint()
    whole = Oracle(whole.flights[whole.flights["scheduled"] >= MONTHS[0].timestamp() * 1e6])
    blind = whole.blind(MONTHS[0], MONTHS[-1])
    refused, keyless = (
        of_all - seen for of_all, seen in zip(whole.counts(MONTHS[-1]), blind.counts(MONTHS[-1]), strict=True)
    )
    assert refused > 1000
    for uid in FOLDS:
        assert differences(_rounded(blind.expected(uid, MONTHS[-1])), _rows(line, made, uid)) == []
    line.pipeline = deploy(RIGHT)
    with commands_over(line):
        asked = {
            uid: tidemark("dead-letters", "redrive", "flights", uid, "--execute", "--json").ok().json["letters"]
            for uid in FOLDS
        }
    assert asked["routes"] == refused
    made = line.checkpoint()
    for uid in FOLDS:
        assert differences(_rounded(whole.expected(uid, MONTHS[-1])), _rows(line, made, uid)) == []
        ack = made.ack(uid)
        assert ack is not None
        assert (ack.read, ack.redriven) == (0, asked[uid])
        assert ack.dead_lettered == (keyless if uid == "aircraft" else 0), "flights without a tail number stay letters"


def _rows(line: DiskPipeline, made: Checkpoint, uid: str) -> dict[Any, dict[str, Any]]:
    rows = read_checkpoint(str(line.root), made, uid).to_pylist()
    shown = [{name: value for name, value in row.items() if not name.startswith("_")} for row in rows]
    return _rounded({tuple(row[name] for name in KEYS[uid]): row for row in shown})


def _rounded(rows: dict[Any, dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    return {
        key: {name: round(value, 6) if isinstance(value, float) else value for name, value in row.items()}
        for key, row in rows.items()
    }
