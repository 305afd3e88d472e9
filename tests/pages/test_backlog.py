"""The backlog: what each partition has left, and how far a run of several checkpoints is."""

from datetime import UTC, datetime
from typing import Any

from tests.support.trips import TripsPipeline
from tidemark.model.checkpoint.codec import body_of
from tidemark.operations import checkpoints
from tidemark.ports import PlanRequest
from tidemark.web import overview


def backlog(world: TripsPipeline) -> Any:
    return body_of(overview.get_backlog(world.pages, "trips"))


def test_the_progress_of_a_run_is_that_of_its_partitions(world: TripsPipeline) -> None:
    world.pages.clock = world.line.clock
    world.checkpoint("before")
    for partition, number in ((0, 8), (1, 5)):
        for n in range(number):
            world.drive(f"b{n}", partition=partition)
    request = PlanRequest(origin="test", max_records=3, run="trips/monday")
    checkpoints.run_once(world.pages, "trips", request)
    world.line.clock.advance(4000)
    checkpoints.run_once(world.pages, "trips", request)
    # Records that come later are no part of the run.
    world.drive("late", "later")
    found = backlog(world)
    run, partitions = found["run"], {p["partition"]: p for p in found["partitions"]}
    assert (run["run"], run["total"], found["checkpoints"]) == ("trips/monday", 13, 2)
    read = {tp: p["position"] - p["run_start"] for tp, p in partitions.items()}
    assert sum(read.values()) == run["done"] and 4 <= run["done"] <= 6
    assert {tp: (p["run_start"], p["run_end"]) for tp, p in partitions.items()} == {
        "trips-0": (1, 9), "trips-1": (0, 5),
    }  # fmt: skip
    assert {tp: p["lag"] for tp, p in partitions.items()} == {
        tp: p["run_end"] - p["position"] for tp, p in partitions.items()
    }
    assert found["lag"] == sum(p["lag"] for p in partitions.values()) == 13 - run["done"]
    assert found["checkpoints_left"] == -(-(13 - run["done"]) * 2 // run["done"])
    size = sum(len(value) for value in values(world)[1 : 1 + run["done"]]) / run["done"]
    assert abs(found["bytes_left"] - (13 - run["done"]) * size) <= 13
    sealed = world.line.clock.now_ms() / 1000
    ends = datetime.fromisoformat(found["ends_at"])
    assert abs((ends - datetime.fromtimestamp(sealed, UTC)).total_seconds() - run["seconds_left"]) < 0.01
    checkpoints.make_checkpoints(world.pages, "trips", request)
    ended = backlog(world)
    assert (ended["run"], ended["ends_at"], ended["checkpoints_left"], ended["checkpoints"]) == (None, None, None, 0)
    assert all(p["run_start"] is None and p["run_end"] is None for p in ended["partitions"])
    assert ended["lag"] == 2, "the records that came later wait for the next run"


def values(world: TripsPipeline) -> list[bytes]:
    """The values that were sent; they differ by the name of the bus alone."""
    return [
        f'{{"bus": "{bus}", "miles": 1, "ended_at": "2024-05-01T00:00:00+00:00"}}'.encode() for bus, _ in world.sent
    ]


def test_without_a_run_the_partitions_are_listed(world: TripsPipeline) -> None:
    world.checkpoint("a", "b")
    found = backlog(world)
    assert (found["checkpoint"], found["run"], found["lag"]) == ("chk-1", None, 0)
    assert [(p["partition"], p["position"], p["lag"], p["run_end"]) for p in found["partitions"]] == [
        ("trips-0", 2, 0, None), ("trips-1", 0, 0, None),
    ]  # fmt: skip


def test_before_the_first_checkpoint_there_is_nothing(world: TripsPipeline) -> None:
    world.drive("a")
    world.plan()
    found = backlog(world)
    assert (found["checkpoint"], found["planned_at"], found["partitions"]) == (None, None, [])
