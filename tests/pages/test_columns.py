"""The answers about the lineage of columns: as checkpoints recorded it, for columns, and where nothing is recorded."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.trips import TripsPipeline
from tidemark.coordinator.records.timelines import Timelines
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.errors import NotFoundError
from tidemark.model.checkpoint.codec import body_of
from tidemark.operations import timelines
from tidemark.web.columns import recorded_columns


def asked(world: TripsPipeline, checkpoint: int | None = None, column: str | None = None) -> Any:
    return body_of(recorded_columns(world.pages, "trips", checkpoint).answer(column))


def test_the_newest_completed_checkpoint_answers_unless_one_is_named(world: TripsPipeline) -> None:
    world.checkpoint("b1")
    world.checkpoint("b2")
    world.plan()
    assert [asked(world)["as_of"], asked(world, 1)["as_of"], asked(world, 3)["as_of"]] == ["chk-2", "chk-1", "chk-3"]
    datasets = {f"{d['kind']}:{d['name']}": d for d in asked(world)["datasets"]}
    assert list(datasets) == ["source:records", "state:buses"]
    assert datasets["source:records"]["topics"] == ["trips"]
    assert [(c["id"], c["made"]) for c in datasets["state:buses"]["columns"]] == [
        ("buses.bus", ""), ("buses.trips", "count()"), ("buses.miles", "sum(miles)"),
    ]  # fmt: skip


def test_a_newer_checkpoint_of_a_timeline_that_was_left_does_not_answer(world: TripsPipeline) -> None:
    world.checkpoint("b1")
    world.checkpoint("b2")
    timelines.restore(world.pages, "trips", RestoreRequest(checkpoint=1, request="back"))
    assert asked(world)["as_of"] == "chk-1", "the live timeline began there, and has none of its own"
    world.checkpoint("b3")
    assert (asked(world)["as_of"], asked(world, 2)["as_of"]) == ("chk-3", "chk-2")


def test_a_damaged_timeline_leaves_the_newest_of_all(world: TripsPipeline) -> None:
    world.checkpoint("b1")
    world.checkpoint("b2")
    timelines.restore(world.pages, "trips", RestoreRequest(checkpoint=1, request="back"))
    world.checkpoint("b3")
    head = max((world.folder / "timelines" / "t1").glob("*.json"))
    head.write_bytes(head.read_bytes()[:-40])
    assert asked(world)["as_of"] == "chk-3"


def test_a_column_is_followed_in_both_directions(world: TripsPipeline) -> None:
    world.checkpoint("b1")
    miles = asked(world, column="buses.miles")["column"]
    assert {one["id"]: [t["subtype"] for t in one["transformations"]] for one in miles["upstream"]} == {
        "records.bus": ["GROUP_BY"],
        "records.miles": ["AGGREGATION"],
    }
    assert miles["downstream"] == []
    bus = asked(world, column="records.bus")["column"]
    assert [one["id"] for one in bus["downstream"]] == ["buses.bus", "buses.trips", "buses.miles"]
    assert bus["upstream"] == []


def test_a_plan_before_the_first_checkpoint_answers_too(world: TripsPipeline) -> None:
    world.drive("b1")
    world.plan()
    assert (asked(world)["as_of"], asked(world)["recorded"]) == ("chk-1", True)


def test_a_plan_of_an_earlier_release_says_that_it_recorded_nothing(
    world: TripsPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.checkpoint("b1")
    found = Timelines.find

    def older(self: Timelines, number: int) -> Any:
        made = found(self, number)
        return None if made is None else replace(made, plan=replace(made.plan, columns=None))

    monkeypatch.setattr(Timelines, "find", older)
    reported = asked(world, column="buses.miles")
    assert (reported["recorded"], reported["datasets"], reported["column"]) == (False, [], None)
    assert recorded_columns(world.pages, "trips").list_origins() == []


def test_unknown_names_are_not_found(world: TripsPipeline) -> None:
    with pytest.raises(NotFoundError):
        asked(world)
    world.checkpoint("b1")
    for checkpoint, column in ((9, None), (None, "buses.kilometres")):
        with pytest.raises(NotFoundError):
            asked(world, checkpoint, column)
