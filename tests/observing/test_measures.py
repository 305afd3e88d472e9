"""The gauges of a pipeline: counts against the history, which reads every object; figures against the manifests."""

import random
from typing import Any

import pytest

from tests.support.trips import TripsPipeline
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.deadlines import parse_deadlines
from tidemark.errors import NameRefusedError, UsageError
from tidemark.model.checkpoint.codec import body_of
from tidemark.model.checkpoint.metrics import METRICS, DueRun, gauges
from tidemark.operations import observability, reads, stop, timelines
from tidemark.web import details, overview
from tidemark.web.history_lines import HistoryQuery

HOUR = 3_600_000
COUNTS = {
    "in_progress": "numberOfInProgressCheckpoints",
    "completed": "numberOfCompletedCheckpoints",
    "failed": "numberOfFailedCheckpoints",
    "total": "totalNumberOfCheckpoints",
}


def told(world: TripsPipeline, **settings: Any) -> dict[str, float]:
    """The gauges that a new process tells."""
    return gauges(observability.measure(world.context(**settings), "trips"))


def test_before_the_first_checkpoint_what_is_not_there_is_minus_one(world: TripsPipeline) -> None:
    world.plan()
    found = told(world)
    assert found["lastCompletedCheckpointId"] == found["lastCheckpointDuration"] == -1
    assert found["lastCheckpointCompletedTimestamp"] == found["lastCheckpointRestoreTimestamp"] == -1
    assert (found["numberOfInProgressCheckpoints"], found["totalNumberOfCheckpoints"]) == (1, 1)
    assert found["checkpointDeadline"] == -1
    assert found["checkpointLate"] == 0


def test_the_last_checkpoint_is_told_as_its_manifest_has_it(world: TripsPipeline) -> None:
    world.checkpoint("a", "b")
    number = world.checkpoint("c", None)
    sealed_at = world.line.clock.ms
    world.line.clock.advance(5000)
    (made, *_) = reads.list_checkpoints(world.context(), "trips")
    found = told(world)
    (ack,) = made.sealed.acks
    assert found["lastCompletedCheckpointId"] == number
    assert found["lastCheckpointSize"] == ack.run_bytes > 0
    assert found["lastCheckpointFullSize"] == found["fileMerging.physicalFileSize"] > ack.run_bytes
    assert found["fileMerging.physicalFileCount"] == 2
    assert (found["lastCheckpointRecords"], found["lastCheckpointDeadLetters"], found["deadLetterRows"]) == (2, 1, 1)
    assert found["lastCheckpointCompletedTimestamp"] == sealed_at
    assert found["lastCheckpointAge"] == 5000
    assert (
        observability.list_gauges(world.context(), "trips")["lastCheckpointExternalPath"]
        == "trips/timelines/t1/000000000002.json"
    )


def test_the_stats_are_the_gauges_and_the_path(world: TripsPipeline) -> None:
    world.checkpoint("a")
    assert set(observability.list_gauges(world.context(), "trips")) == {
        *METRICS,
        "pipeline",
        "lastCheckpointExternalPath",
    }


def test_a_restore_is_told_and_the_age_begins_with_it(world: TripsPipeline) -> None:
    first = world.checkpoint("a")
    world.checkpoint("b")
    world.line.clock.advance(10 * HOUR)
    timelines.restore(world.context(), "trips", RestoreRequest(checkpoint=first, request="r"))
    world.line.clock.advance(HOUR)
    found = told(world, checkpoint_deadline="2h")
    assert found["lastCompletedCheckpointId"] == first
    assert found["lastCheckpointRestoreTimestamp"] == world.line.clock.ms - HOUR
    assert (found["lastCheckpointAge"], found["checkpointLate"]) == (HOUR, 0)
    world.line.clock.advance(HOUR + 1)
    assert told(world, checkpoint_deadline="2h")["checkpointLate"] == 1


def test_a_restart_is_an_attempt_that_takes_over(world: TripsPipeline) -> None:
    world.checkpoint("a")
    assert told(world)["numRestarts"] == 0
    plan = world.plan()
    assert told(world)["numRestarts"] == 0, "planned, not begun"
    for taken in range(3):
        world.line.coordinator.begin(plan)
        assert told(world)["numRestarts"] == taken
    world.fail()
    assert told(world)["numRestarts"] == 2
    world.checkpoint("b")
    found = told(world)
    assert (found["numRestarts"], found["failuresInRow"]) == (2, 0)


@pytest.mark.parametrize("seed", range(12))
def test_counts_are_those_of_the_history_whatever_happened(world: TripsPipeline, seed: int) -> None:
    """The oracle reads every object; the gauges count names."""
    chance = random.Random(seed)
    print(f"seed {seed}")
    for _ in range(12):
        match chance.choice(("checkpoint", "checkpoint", "fail", "plan", "restore")):
            case "checkpoint":
                world.checkpoint("a")
            case "fail":
                world.fail()
            case "plan":
                world.plan()
            case "restore" if made := reads.list_checkpoints(world.context(), "trips", limit=50):
                point = chance.choice(made).id
                timelines.restore(
                    world.context(), "trips", RestoreRequest(checkpoint=point, request=str(chance.random()))
                )
        shown = (
            body_of(overview.get_overview(world.context(), "trips", HistoryQuery())) if world.folder.is_dir() else None
        )
        if shown is not None:
            found = told(world)
            assert {name: found[gauge] for name, gauge in COUNTS.items()} == {
                name: shown["counts"][name] for name in COUNTS
            }, f"seed {seed}"
            assert found["failuresInRow"] == shown["health"]["failures_in_row"], f"seed {seed}"


def test_it_is_late_past_the_deadline_and_never_while_it_is_stopped(world: TripsPipeline) -> None:
    world.checkpoint("a")
    world.line.clock.advance(2 * HOUR)
    assert told(world, checkpoint_deadline="2h")["checkpointLate"] == 0
    world.line.clock.advance(1)
    assert told(world, checkpoint_deadline="2h")["checkpointLate"] == 1
    assert told(world, checkpoint_deadline="trips=3h,2h")["checkpointLate"] == 0
    assert told(world, checkpoint_deadline="flights=1h")["checkpointDeadline"] == -1
    stop.stop(world.context(), "trips", "enough")
    assert told(world, checkpoint_deadline="2h")["checkpointLate"] == 0


def test_before_the_first_checkpoint_the_deadline_runs_from_the_first_plan(world: TripsPipeline) -> None:
    world.plan()
    world.line.clock.advance(HOUR + 1)
    assert told(world, checkpoint_deadline="1h")["checkpointLate"] == 1


def test_deadlines_are_read_as_people_write_them() -> None:
    assert parse_deadlines("") == {}
    assert parse_deadlines("26h") == {"": 26 * HOUR}
    assert parse_deadlines(" 2d, payments=30m ") == {"": 48 * HOUR, "payments": HOUR // 2}


@pytest.mark.parametrize("text", ["soon", "0", "a=", "a=1h,a=2h", "1h,2h", "a=1h=2h", "26"])
def test_a_deadline_that_is_none_is_refused(text: str) -> None:
    with pytest.raises((UsageError, NameRefusedError)):
        parse_deadlines(text)


def test_the_page_shows_the_deadline_and_whether_it_is_late(world: TripsPipeline) -> None:
    world.checkpoint("a")
    world.line.clock.advance(HOUR + 1)
    late = body_of(overview.get_overview(world.context(checkpoint_deadline="1h"), "trips", HistoryQuery()))["health"]
    assert (late["deadline"], late["late"], late["age"]) == (HOUR, True, HOUR + 1)
    health = body_of(overview.get_overview(world.context(), "trips", HistoryQuery()))["health"]
    assert (health["deadline"], health["late"]) == (None, False)


def test_what_is_told_of_a_late_pipeline_holds_still_while_it_is_the_same_delay(world: TripsPipeline) -> None:
    world.checkpoint("a")
    due = world.line.clock.ms + HOUR
    world.line.clock.advance(26 * HOUR)
    first = body_of(observability.check_deadline(world.context(checkpoint_deadline="1h"), "trips"))
    world.line.clock.advance(HOUR)
    second = body_of(observability.check_deadline(world.context(checkpoint_deadline="1h"), "trips"))
    assert first["late"]
    assert (first["age"], first["deadline"], first["newest"]) == ("1 day, 2:00:00", "1:00:00", "chk-1")
    assert first["late_since_ms"] == second["late_since_ms"] == due
    assert body_of(observability.check_deadline(world.context(), "trips"))["late_since_ms"] is None


def test_without_a_deadline_the_runs_of_the_schedule_decide(world: TripsPipeline) -> None:
    world.checkpoint("a")
    begun = world.line.clock.ms
    asked: list[int] = []

    def due_after(since: int) -> DueRun:
        asked.append(since)
        return DueRun(at_ms=begun + HOUR, following_ms=begun + 2 * HOUR, every_ms=HOUR)

    expected = observability.ExpectedRuns(due_after=due_after, usual_ms=5_000)
    for ahead, late in ((2 * HOUR + 5_000, False), (1, True)):
        world.line.clock.advance(ahead)
        facts = observability.check_deadline(world.context(), "trips", expected)
        assert (facts.late, facts.due_ms, facts.deadline_ms) == (late, begun + HOUR, None)
        assert facts.late_since_ms == (begun + 2 * HOUR + 5_000 if late else None)
    assert set(asked) == {begun}
    by_setting = observability.check_deadline(world.context(checkpoint_deadline="3h"), "trips", expected)
    assert (by_setting.late, by_setting.due_ms) == (False, None), "a deadline that is set counts alone"


def test_levels_runs_and_the_bytes_of_a_compaction_are_told(world: TripsPipeline) -> None:
    for _ in range(3):
        world.checkpoint("a", "b")
    found = told(world)
    assert (found["liveRuns"], found["deepestLevel"]) == (3, 0)
    before = reads.get_checkpoint(world.context(), "trips").handles["buses"]
    assert world.line.compact("buses", full=True)
    adopted = world.checkpoint("c")
    found = told(world)
    assert (found["liveRuns"], found["deepestLevel"]) == (1, 1)
    (task,) = body_of(details.get_details(world.context(), "trips", adopted))["tasks"]
    assert task["run_rows"] == {"files": 1, "min": 1, "avg": 1.0, "max": 1}
    made = task["compaction"]
    assert (made["checkpoint"], made["bytes_before"], made["rows_before"], made["rows_after"]) == (
        "chk-3", before.bytes, 6, 2,
    )  # fmt: skip
    (base,) = (s for s in reads.get_checkpoint(world.context(), "trips").handles["buses"] if s.path.endswith("/base"))
    on_disk = sum(p.stat().st_size for p in (world.line.root / base.path).rglob("*.parquet"))
    assert made["written_bytes"] == made["bytes_after"] == on_disk
    assert body_of(details.get_details(world.context(), "trips", 1))["tasks"][0]["compaction"] is None


def test_layers_of_tables_that_are_gone_are_not_known(world: TripsPipeline) -> None:
    number = world.checkpoint("a")
    made = reads.get_checkpoint(world.context(), "trips")
    for segment in made.handles["buses"]:
        (world.line.root / segment.path / "_delta_log").rename(world.root / "gone")
    (task,) = body_of(details.get_details(world.context(), "trips", number))["tasks"]
    assert (task["live_runs"], task["deepest_level"], task["run_rows"]) == (None, None, None)
    assert told(world)["liveRuns"] == -1
