"""A consumer group's offsets follow completed checkpoints, for monitoring; nothing depends on them (J10)."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.airflow import PLACE, AirflowPipeline, MemoryContext
from tidemark.answers.checkpoint_facts import checkpoint_facts
from tidemark.errors import BrokerError, NotFoundError, TidemarkError, UsageError
from tidemark.model.checkpoint.codec import body_of
from tidemark.operations import checkpoints, queries, reads
from tidemark.ports import PlanRequest
from tidemark.testing.twin.memory import MemoryLog

ASK = PlanRequest(origin="test")
TRIPS = Path(__file__).parents[1] / "airflow/pipelines/trips.py"


class Deaf(MemoryLog):
    """Takes no offsets."""

    error: type[TidemarkError] = BrokerError

    def report_group_offsets(self, group: str, ends: object) -> None:
        raise self.error("Kafka did not take them", next="look at the broker.")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AirflowPipeline:
    """Three trips, and a pipeline whose source names a group."""
    folder = tmp_path / "pipelines"
    folder.mkdir()
    text = TRIPS.read_text().replace('event_time="ended_at"', 'event_time="ended_at", group="watchers"')
    assert "watchers" in text
    (folder / "trips.py").write_text(text)
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_PIPELINES", str(folder))
    made = AirflowPipeline()
    return _driven(made)


def _driven(world: AirflowPipeline) -> AirflowPipeline:
    for miles in (1, 2, 3):
        world.drive("a", miles)
    return world


def _sealed(context: MemoryContext) -> str:
    slot = checkpoints.plan(context, "trips", ASK).slot
    assert slot is not None
    checkpoints.fold(context, "trips", slot, ASK)
    return slot


def test_the_groups_offsets_are_reported_once_the_checkpoint_is_complete_and_not_before(world: AirflowPipeline) -> None:
    context = MemoryContext(world)
    slot = _sealed(context)
    assert world.log.group_offsets("watchers", [PLACE]) == {}
    checkpoints.complete(context, "trips", slot)
    assert world.log.group_offsets("watchers", [PLACE]) == {PLACE: 3}


@pytest.mark.parametrize("error", [BrokerError, NotFoundError, UsageError])
def test_a_report_that_fails_harms_nothing(world: AirflowPipeline, error: type[TidemarkError]) -> None:
    """No answer; a topic that is gone since it was read; an option that librdkafka does not know."""
    world.log = Deaf()
    world.log.error = error
    world.log.create(PLACE.topic, 1)
    context = MemoryContext(_driven(world))
    assert checkpoints.complete(context, "trips", _sealed(context)).id == 1
    world.drive("a", 4)
    assert checkpoints.complete(context, "trips", _sealed(context)).id == 2
    assert world.buses() == {"a": (4, 10)}


def _metrics(context: MemoryContext) -> dict[tuple[int, str], int]:
    rows = queries.run_sql(
        context, "trips", "SELECT checkpoint, metric, value FROM metrics WHERE partition IS NULL"
    ).to_pylist()
    parted = queries.run_sql(context, "trips", "SELECT * FROM metrics WHERE partition IS NOT NULL").to_pylist()
    assert {(row["topic"], row["partition"]) for row in parted} == {(PLACE.topic, PLACE.partition)}
    return {(row["checkpoint"], row["metric"]): row["value"] for row in rows + parted}


def test_source_metrics_have_flinks_names_and_count_reports(world: AirflowPipeline) -> None:
    """J14. Three trips lie there; two are taken, then the third while Kafka takes no offsets, then a fourth."""
    context = MemoryContext(world)
    checkpoints.run_once(context, "trips", replace(ASK, max_records=2))
    heard = world.log
    world.log = Deaf()
    world.log.create(PLACE.topic, 1)
    _driven(world)
    checkpoints.run_once(context, "trips", ASK)
    world.log = heard
    world.drive("a", 4)
    checkpoints.run_once(context, "trips", ASK)
    found = _metrics(context)
    assert [found[n, "pendingRecords"] for n in (1, 2, 3)] == [1, 0, 0]
    assert [found[n, "currentOffsets"] for n in (1, 2, 3)] == [2, 3, 4]
    assert [found.get((n, "committedOffsets")) for n in (1, 2, 3)] == [2, None, 4]
    assert [found[n, "commitsSucceeded"] for n in (1, 2, 3)] == [1, 1, 2]
    assert [found[n, "commitsFailed"] for n in (1, 2, 3)] == [0, 1, 1]
    made = reads.list_checkpoints(context, "trips")[0]
    assert made.sealed.facts.watermark_ms is not None
    assert found[3, "watermarkLag"] == made.plan.logical_time_ms - made.sealed.facts.watermark_ms
    assert body_of(checkpoint_facts(reads.get_checkpoint(context, "trips", 1)))["pending_records"] == 1
