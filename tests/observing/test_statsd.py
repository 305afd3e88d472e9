"""Gauges at a real UDP listener, and receivers that are down, slow or wrong."""

import socket
from typing import Any

import pytest

from tests.support.statsd import Statsd
from tests.support.trips import TripsPipeline
from tidemark.errors import UsageError
from tidemark.model.checkpoint.metrics import METRICS
from tidemark.operations import observability
from tidemark.settings import load_settings
from tidemark.telemetry.bounded import Bounded
from tidemark.telemetry.statsd import StatsdMetrics
from tidemark.testing.twin.memory import MemoryMetrics


def test_what_is_told_arrives(statsd: Statsd) -> None:
    """The same for the twin and the real one."""
    twin = MemoryMetrics()
    for sink in (twin, StatsdMetrics(statsd.address)):
        sink.tell("a.b", {"small": 0.25, "large": 1_900_000_000_123, "none": -1, "twice": 7})
        sink.tell("a.b", {"twice": -3})
    assert twin.told == {"a.b": {"small": 0.25, "large": 1_900_000_000_123, "none": -1, "twice": -3}}
    assert statsd.settled() == {f"tidemark.a__b.{name}": value for name, value in twin.told["a.b"].items()}


def test_a_pipeline_tells_every_metric_by_its_name(world: TripsPipeline, statsd: Statsd) -> None:
    world.checkpoint("a")
    observability.report_metrics(world.context(statsd=statsd.address), "trips")
    found = statsd.settled()
    assert set(found) == {f"tidemark.trips.{name}" for name in METRICS}
    assert found["tidemark.trips.lastCompletedCheckpointId"] == 1
    assert found["tidemark.trips.lastCheckpointRestoreTimestamp"] == -1


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere.invalid:8125"])
def test_a_server_that_is_down_costs_nothing_but_a_warning(
    world: TripsPipeline, logged: list[dict[str, Any]], waits: list[float], address: str
) -> None:
    world.checkpoint("a")
    context = world.context(statsd=address)
    for _ in range(3):
        observability.report_metrics(context, "trips")
    assert sum(waits) <= 2.0
    assert len([e for e in logged if e["event"] == "observer_given_up"]) <= 1


def test_a_sink_that_hangs_is_left_behind_and_not_asked_again(
    world: TripsPipeline, logged: list[dict[str, Any]], waits: list[float]
) -> None:
    class Hanging:
        asked = 0

        def tell(self, pipeline: str, gauges: object) -> None:
            self.asked += 1
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", 0))
                listener.listen()
                listener.accept()  # nobody calls

    sink = Hanging()
    world.checkpoint("a")
    context = world.context()
    for _ in range(3):
        observability.report_metrics(context, "trips", sink)
    assert waits == [2.0]
    assert sink.asked == 1
    (warning,) = (e for e in logged if e["event"] == "observer_given_up")
    assert (warning["what"], warning["why"]) == ("metrics", "no answer within 2 s")


def test_what_fails_is_told_once(logged: list[dict[str, Any]]) -> None:
    bounded = Bounded("lineage", 1.0)
    done: list[int] = []
    assert bounded.call(lambda: done.append(1))
    assert not bounded.call(lambda: done.append(1 // 0))
    assert not bounded.call(lambda: done.append(2))
    assert done == [1]
    assert [e["why"] for e in logged] == ["ZeroDivisionError: integer division or modulo by zero"]


def test_without_an_address_nothing_is_measured(world: TripsPipeline) -> None:
    observability.report_metrics(world.context(), "no-such-pipeline")


@pytest.mark.parametrize(
    ("name", "value"),
    [("statsd", "localhost"), ("statsd", "a b:1"), ("checkpoint_deadline", "soon"), ("openlineage", "ftp://x")],
)
def test_a_setting_that_does_not_fit_is_named(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"TIDEMARK_{name.upper()}"):
        load_settings(**{name: value})


def test_what_cannot_be_measured_is_told_and_fails_nothing(
    world: TripsPipeline, statsd: Statsd, logged: list[dict[str, Any]]
) -> None:
    world.checkpoint("a")
    (manifest,) = (world.folder / "timelines" / "t1").iterdir()
    manifest.write_bytes(manifest.read_bytes().replace(b'"t1"', b'"t2"', 1))
    context = world.context(statsd=statsd.address)
    observability.report_metrics(context, "trips")
    assert statsd.settled() == {}
    (warning,) = logged
    assert warning["event"] == "metrics_not_measured"
    assert warning["why"].startswith("CorruptObjectError")
