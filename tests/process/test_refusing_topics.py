"""Outboxes to a real broker: a topic that refuses one record, one that is gone, and one that takes everything."""

import json
from pathlib import Path

import pytest

from tests.process.test_refused_records import noting
from tests.support.disk_context import DiskContext
from tests.support.kafka import Topics
from tests.support.sender_drivers import KafkaSenderDriver
from tidemark.model.checkpoint.codec import body_of
from tidemark.operations import sinks
from tidemark.settings import load_settings


def ids(uid: str, *places: tuple[int, int]) -> list[str]:
    return [f"notes/t1/chk-{checkpoint}/{uid}/ticks-0-{offset}-0" for checkpoint, offset in places]


def test_one_topic_refuses_a_record_one_is_gone_and_the_third_gets_everything(
    topics: Topics, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.kafka.producer.MISSING", 1.0)
    driver = KafkaSenderDriver(topics)
    small, gone, large = driver.make(largest=3_000), driver.make(), driver.make()
    line = noting(tmp_path / "w", {"small": small, "gone": gone, "large": large})
    settings = load_settings(home=str(tmp_path / "home"), warehouse=str(tmp_path / "w"), kafka_bootstrap=broker)
    context = DiskContext(line, settings)
    driver.delete(gone)
    for sizes in ((1, 900, 2, 3), (4,)):
        line.send([(0, json.dumps({"who": "w", "n": n}).encode(), 0) for n in sizes])
        line.checkpoint()
        sinks.deliver(context, "notes")
    everything = [(1, 0), (1, 1), (1, 2), (1, 3), (2, 4)]
    assert [record for *_, record in driver.arrived(large)] == ids("large", *everything)
    assert [record for *_, record in driver.arrived(small)] == ids("small", (1, 0))
    told = {s["sink"]: s for s in body_of(sinks.list_sinks(context, "notes"))}
    (record,) = ids("small", (1, 1))
    assert told["small"]["failure"]["record"] == record
    assert told["gone"]["failure"]["record"] is None and gone in told["gone"]["failure"]["what"]
    assert told["large"]["failure"] is None and told["large"]["waiting"]["records"] == 0
    body_of(sinks.skip_record(context, "notes", "small", record, "me"))
    topics.make(gone)
    assert sinks.deliver(context, "notes") == 4 + 5
    left = [place for place in everything if place != (1, 1)]
    assert [record for *_, record in driver.arrived(small)] == ids("small", *left), "once, in order"
    assert [record for *_, record in driver.arrived(gone)] == ids("gone", *everything)
    assert sinks.deliver(context, "notes") == 0
