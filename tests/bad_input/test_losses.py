"""Kafka takes records away, or does not answer: the exact gap or a clear reason, and nothing is written."""

import time
from collections.abc import Callable

import pytest

from tests.bad_input.conftest import BadInputPipeline, MakeLine

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def line(make_line: MakeLine) -> BadInputPipeline:
    """A line with one checkpoint over five sales; the tests of this module grow it, in order."""
    made = make_line("losses")
    made.send(1, 2, 3, 4, 5)
    assert made.run().ok().json["records"] == 5
    return made


def _refused(line: BadInputPipeline, act: Callable[[], object], *words: str) -> None:
    """`act` happens; the next run names the loss, changes nothing, and so does the one after it."""
    act()
    before = line.tidemark.objects(line.name)
    for _ in range(2):
        line.run().failed(6, "data lost", line.topic, *words)
        assert line.tidemark.objects(line.name) == before


def test_trimmed_records_are_named_exactly_and_recorded_when_they_are_accepted(line: BadInputPipeline) -> None:
    line.send(6, 7, 8)
    _refused(line, lambda: line.topics.trim(line.topic, 7), "partition 0", "[5, 7)", "--accept-loss")
    made = line.run("--accept-loss").ok().json
    assert made["accepted_losses"] == [
        {"partition": f"{line.topic}-0", "start": 5, "end": 7, "why": "were deleted before they were read"}
    ]
    assert made["ranges"] == {f"{line.topic}-0": {"start": 7, "end": 8}}
    [gap] = line.tidemark("checkpoint", "show", line.name, made["id"], "--json").ok().json["plan"]["losses"]
    assert gap["lost"] == {"start": 5, "end": 7}
    assert line.shops() == {"north": (6, 15 + 8)}
    line.send(9)
    assert line.run().ok().json["accepted_losses"] == []


def test_a_recreated_topic_is_refused_though_it_has_enough_records(line: BadInputPipeline) -> None:
    def recreate() -> None:
        line.topics.recreate(line.topic)
        line.send(*[1000] * 12, shop="south")

    before = line.shops()
    _refused(line, recreate, "partition 0", "offset 9", "recreated")
    made = line.run("--accept-loss").ok().json
    [loss] = made["accepted_losses"]
    assert "recreated" in loss["why"]
    assert made["ranges"] == {f"{line.topic}-0": {"start": 0, "end": 12}}
    assert line.shops() == before | {"south": (12, 12_000)}


def test_a_topic_recreated_after_the_plan_is_found_after_the_read(line: BadInputPipeline) -> None:
    line.send(1, 2)
    line.crash("plan:after")
    line.topics.recreate(line.topic)
    line.send(*[7] * 20, shop="imposter")
    shops = line.shops()
    line.run().failed(6, "data lost", line.topic)
    assert line.last_abort()["reason"] == "OFFSET_LOST"
    assert line.shops() == shops
    line.run().failed(6, "offset 12", "recreated")
    assert line.run("--accept-loss").ok().json["records"] == 20


def test_records_trimmed_after_the_plan_fail_the_attempt_and_the_next_plan_names_the_gap(
    line: BadInputPipeline,
) -> None:
    line.send(1, 2, 3)
    line.crash("plan:after")
    line.topics.trim(line.topic, 22)
    line.run().failed(6, "data lost")
    assert line.last_abort()["reason"] == "OFFSET_LOST"
    line.run().failed(6, "[20, 22)")
    assert line.run("--accept-loss").ok().json["records"] == 1


def test_a_deleted_topic_is_an_error_and_no_empty_success(line: BadInputPipeline) -> None:
    _refused(line, lambda: line.topics.delete(line.topic), "was deleted")
    line.run("--accept-loss").failed(6, "was deleted", "create the topic again")
    line.topics.make(line.topic)
    line.send(5)
    assert line.run("--accept-loss").ok().json["records"] == 1


def test_a_topic_that_never_was_is_not_found(make_line: MakeLine) -> None:
    line = make_line("nowhere")
    line.topics.delete(line.topic)
    line.run().failed(3, line.topic)
    assert line.tidemark.objects(line.name) == {}


def test_a_broker_that_is_down_is_told_within_15_seconds(line: BadInputPipeline) -> None:
    before = line.tidemark.objects(line.name)
    began = time.monotonic()
    line.run(TIDEMARK_KAFKA_BOOTSTRAP="127.0.0.1:9").failed(1, "Kafka", "127.0.0.1:9")
    assert time.monotonic() - began < 15
    assert line.tidemark.objects(line.name) == before


def test_no_broker_at_all_is_a_matter_of_settings(line: BadInputPipeline) -> None:
    line.run(TIDEMARK_KAFKA_BOOTSTRAP="").failed(2, "TIDEMARK_KAFKA_BOOTSTRAP", "tidemark up")


def test_a_spark_that_is_down_fails_the_attempt_and_leaves_the_plan_open(line: BadInputPipeline) -> None:
    line.send(6)
    manifests = line.manifests()
    began = time.monotonic()
    line.run(TIDEMARK_SPARK="sc://127.0.0.1:9").failed(1, "Spark does not answer at 127.0.0.1:9")
    assert time.monotonic() - began < 15
    assert line.manifests() == manifests
    made = line.run().ok().json
    assert (made["records"], made["attempt"]) == (1, 2)
