"""A consumer group's offsets follow completed checkpoints, for monitoring; nothing depends on them (J10)."""

from pathlib import Path

import pytest

from tests.airflow.world import PLACE, MemoryRuntime, World
from tidemark.adapters.memory import MemoryLog
from tidemark.errors import BrokerError
from tidemark.ports import PlanRequest
from tidemark.wiring import Runtime

ASK = PlanRequest(origin="test")
TRIPS = Path(__file__).parents[1] / "airflow/pipelines/trips.py"


class Reporting(MemoryRuntime):
    """Reports as the real runtime does, to the twin of Kafka."""

    report_offsets = Runtime.report_offsets


class Deaf(MemoryLog):
    """Takes no offsets."""

    def report_group_offsets(self, group: str, ends: object) -> None:
        raise BrokerError("Kafka did not answer", next="look at the broker.")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Three trips, and a pipeline whose source names a group."""
    folder = tmp_path / "pipelines"
    folder.mkdir()
    text = TRIPS.read_text().replace('event_time="ended_at"', 'event_time="ended_at", group="watchers"')
    assert "watchers" in text
    (folder / "trips.py").write_text(text)
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_PIPELINES", str(folder))
    made = World()
    monkeypatch.setattr("tidemark.wiring.core.LazyLog", lambda settings: made.log)
    return _driven(made)


def _driven(world: World) -> World:
    for miles in (1, 2, 3):
        world.drive("a", miles)
    return world


def _sealed(runtime: Reporting) -> str:
    slot = runtime.plan("trips", ASK).slot
    assert slot is not None
    runtime.fold("trips", slot, ASK)
    return slot


def test_the_groups_offsets_are_reported_once_the_checkpoint_is_complete_and_not_before(world: World) -> None:
    runtime = Reporting(world)
    slot = _sealed(runtime)
    assert world.log.group_offsets("watchers", [PLACE]) == {}
    runtime.complete("trips", slot)
    assert world.log.group_offsets("watchers", [PLACE]) == {PLACE: 3}


def test_a_report_that_fails_harms_nothing(world: World) -> None:
    world.log = Deaf()
    world.log.create(PLACE.topic, 1)
    runtime = Reporting(_driven(world))
    assert runtime.complete("trips", _sealed(runtime)).id == 1
    world.drive("a", 4)
    assert runtime.complete("trips", _sealed(runtime)).id == 2
    assert world.buses() == {"a": (4, 10)}
