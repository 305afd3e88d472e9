"""Numbers of the pages: what they measure, over which checkpoints, and how far a checkpoint under way is."""

import json
from collections.abc import Callable

import pytest

from tests.support.trips import TripsPipeline
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.model.checkpoint.codec import body_of
from tidemark.model.checkpoint.manifest import rejected_records
from tidemark.model.core import canonical
from tidemark.operations import checkpoints, timelines
from tidemark.ports import PlanRequest
from tidemark.web import details, history_cache, overview
from tidemark.web.history_lines import HistoryQuery

WAITED, WORKED = 60_000, 5_000


@pytest.fixture(autouse=True)
def one_clock(world: TripsPipeline) -> None:
    """The pages look at the clock that the line is moved by."""
    world.pages.clock = world.line.clock


def slow_checkpoint(world: TripsPipeline, *buses: str | None) -> int:
    """Waits between trigger and attempt, and works while it reads; its id."""

    def work(step: str, moment: str) -> None:
        # Between the two looks at the clock that the step before takes.
        if (step, moment) == ("commit.runs.buses", "before"):
            world.line.clock.advance(WORKED)

    world.drive(*buses)
    plan = world.plan()
    world.line.clock.advance(WAITED)
    before, world.line.crash = world.line.crash, work
    owned = world.line.coordinator.begin(plan)
    assert isinstance(owned, OwnedAttempt)
    world.line.execute(owned)
    world.line.crash = before
    world.line.coordinator.complete(plan)
    return plan.id


def test_end_to_end_is_from_the_trigger_to_the_last_acknowledgement(world: TripsPipeline) -> None:
    number = slow_checkpoint(world, "a")
    told = body_of(details.get_details(world.pages, "trips", number))
    assert told["latest_ack_timestamp"] - told["trigger_timestamp"] == told["end_to_end_duration"] == WAITED + WORKED
    assert told["work_duration"] == sum(told["timings"].values()) == WORKED
    (line,) = body_of(overview.get_overview(world.pages, "trips", HistoryQuery()))["history"]
    (point,) = body_of(overview.list_points(world.pages, "trips", 10))["points"]
    for one in (line, point):
        assert one["end_to_end_duration"] == told["end_to_end_duration"]
        assert one["work_duration"] == told["work_duration"] == WORKED


def test_the_age_counts_from_the_last_acknowledgement(world: TripsPipeline) -> None:
    slow_checkpoint(world, "a")
    world.line.clock.advance(1_000)
    assert body_of(overview.get_overview(world.pages, "trips", HistoryQuery()))["health"]["age"] == 1_000


def test_empty_checkpoints_stay_out_of_the_percentiles_and_are_counted(world: TripsPipeline) -> None:
    slow_checkpoint(world, "a", "b")
    for _ in range(3):
        world.checkpoint()
    summary = body_of(overview.get_overview(world.pages, "trips", HistoryQuery()))["summary"]
    assert (summary["measured"], summary["empty"]) == (1, 3)
    assert summary["records"]["min"] == summary["records"]["p50"] == 2
    assert summary["end_to_end_duration"]["min"] == WAITED + WORKED


def rewritten(world: TripsPipeline, sequence: int, without: tuple[str, ...]) -> None:
    """Takes fields out of a manifest and its outcome, as a release wrote it that had none."""
    for pattern in (f"timelines/t1/{sequence:012d}.json", f"plans/t1/{sequence:012d}.0001/*.outcome.json"):
        for path in world.folder.glob(pattern):
            kind = canonical.kind_of(path.name, path.read_bytes())
            body = canonical.decode(kind, path.name, path.read_bytes())
            for name in without:
                (body.get("sealed") or {}).pop(name, None)
            path.write_bytes(canonical.encode(kind, body))


def test_of_a_manifest_of_0_1_the_outcome_tells_when_it_was_sealed(
    world: TripsPipeline, trips_of: Callable[[], TripsPipeline]
) -> None:
    number = slow_checkpoint(world, "a")
    rewritten(world, 1, ("sealed_at_ms", "rejected"))
    assert "sealed_at_ms" not in json.loads((world.folder / "timelines/t1/000000000001.json").read_text())["body"]
    told = body_of(details.get_details(world.pages, "trips", number))
    assert told["latest_ack_timestamp"] - told["trigger_timestamp"] == told["end_to_end_duration"] == WAITED + WORKED
    for path in world.folder.glob("plans/t1/*/*.outcome.json"):
        path.unlink()
    history_cache._CACHES.clear()  # as a new process
    told = body_of(overview.get_overview(world.pages, "trips", HistoryQuery()))["history"][0]
    assert told["end_to_end_duration"] == told["work_duration"]


@pytest.mark.parametrize(
    ("rejected", "per_operator", "records", "told"),
    [
        (270, [270, 270, 0], 8_000, (270, False)),
        (0, [270, 270, 0], 8_000, (540, True)),
        (0, [270, 0, 0], 8_000, (270, False)),
        (0, [0, 0], 10, (0, False)),
        (0, [8, 9], 10, (10, True)),
        (0, [30], 10, (10, True)),
    ],
)
def test_a_total_of_dead_letters_is_of_records(
    rejected: int, per_operator: list[int], records: int, told: tuple[int, bool]
) -> None:
    assert rejected_records(rejected, per_operator, records) == told


def test_neighbours_are_by_id_over_all_timelines(world: TripsPipeline) -> None:
    first, second = world.checkpoint("a"), world.checkpoint("b")
    failed = world.fail()
    timelines.restore(world.pages, "trips", RestoreRequest(checkpoint=first, request="r"))
    last = world.checkpoint("c")
    found = {
        n: (t["previous"], t["next"])
        for n in range(first, last + 1)
        for t in [body_of(details.get_details(world.pages, "trips", n))]
    }
    assert found == {first: (None, second), second: (first, failed), failed: (second, last), last: (failed, None)}


def test_progress_goes_from_the_plan_to_the_manifest(world: TripsPipeline) -> None:
    world.drive("a", "b")
    plan = world.plan()
    world.line.clock.advance(2_000)

    def told() -> tuple[str, int, int, int]:
        found = body_of(details.get_details(world.pages, "trips", plan.id))
        progress = found["progress"]
        return progress["step"], progress["attempt"], found["num_acknowledged_subtasks"], progress["elapsed"]

    assert told() == ("planned", 0, 0, 2_000)
    first = world.line.coordinator.begin(plan)
    assert isinstance(first, OwnedAttempt) and told() == ("running", 1, 0, 2_000)
    seen = []

    def watch(step: str, moment: str) -> None:
        if (step, moment) == ("gate", "before"):
            seen.append(told())

    world.line.crash = watch
    world.line.execute(first)
    assert seen == [("running", 1, 1, 2_000)], "the run of buses is committed, the gate has not judged"
    assert told() == ("sealed", 1, 1, 2_000)
    world.line.coordinator.complete(plan)
    done = body_of(details.get_details(world.pages, "trips", plan.id))
    assert (done["status"], done["progress"], done["num_acknowledged_subtasks"]) == ("COMPLETED", None, 1)


def test_what_a_revoked_attempt_committed_does_not_count_for_the_next(world: TripsPipeline) -> None:
    world.drive("a")
    plan = world.plan()
    first = world.line.coordinator.begin(plan)

    def killed(step: str, moment: str) -> None:
        if (step, moment) == ("gate", "before"):
            raise KeyboardInterrupt

    world.line.crash = killed
    with pytest.raises(KeyboardInterrupt):
        world.line.execute(first)
    assert body_of(details.get_details(world.pages, "trips", plan.id))["progress"]["acknowledged"] == ["buses"]
    world.line.coordinator.begin(plan)
    assert body_of(details.get_details(world.pages, "trips", plan.id))["progress"] == {
        "step": "running", "attempt": 2, "elapsed": 0, "acknowledged": []
    }  # fmt: skip
    assert checkpoints.plan(world.pages, "trips", PlanRequest(origin="test")).adopted
