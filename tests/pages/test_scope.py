"""The scope of an overview: every panel is about the same checkpoints, of one timeline or of all."""

from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.trips import TripsPipeline
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.errors import NotFoundError, UsageError
from tidemark.model.checkpoint.codec import body_of
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import savepoints, timelines
from tidemark.web import overview
from tidemark.web.history_lines import HistoryQuery


@dataclass(frozen=True)
class Story:
    """What each scope has, as the steps of `shown` made it: ids of completed and failed checkpoints, newest first."""

    completed: dict[str, list[int]]
    failed: dict[str, list[int]]
    restored: dict[str, int]


@pytest.fixture
def story(world: TripsPipeline) -> Story:
    """t1: 1, 2, 3 failed, 4; a fork from 2; t2 restored from the savepoint at 1: 5, 6 failed, 7."""
    world.pages.clock = world.line.clock
    for buses in ("a", "b"):
        world.checkpoint(buses)
    assert world.fail() == 3
    assert world.checkpoint("c") == 4
    world.line.clock.advance(1000)
    timelines.fork(world.pages, "trips", "live", RestoreRequest(checkpoint=2))
    request = SavepointRequest(name="kept", owner="me", origin="test", checkpoint=1)
    savepoints.open_savepoints(world.pages, "trips").create(request)
    world.line.clock.advance(1000)
    timelines.restore(world.pages, "trips", RestoreRequest(savepoint="kept", request="r"))
    world.line.clock.advance(1000)
    assert world.checkpoint("a") == 5
    assert world.fail() == 6
    world.line.clock.advance(1000)
    assert world.checkpoint("b") == 7
    return Story(
        completed={"live": [7, 5, 1], "all": [7, 5, 4, 2, 1], "timeline:t1": [4, 2, 1], "timeline:t2": [7, 5, 1],
                   "timeline:live": [2, 1]},
        failed={"live": [6], "all": [6, 3], "timeline:t1": [3], "timeline:t2": [6], "timeline:live": []},
        restored={"live": 1, "all": 1, "timeline:t1": 0, "timeline:t2": 1, "timeline:live": 0},
    )  # fmt: skip


SCOPES = ("live", "all", "timeline:t1", "timeline:t2", "timeline:live")


@pytest.mark.parametrize("scope", SCOPES)
def test_counts_latest_summary_and_charts_are_about_the_same_checkpoints(
    world: TripsPipeline, story: Story, scope: str
) -> None:
    found = body_of(overview.get_overview(world.pages, "trips", HistoryQuery(), scope))
    completed, failed = story.completed[scope], story.failed[scope]
    counts = {name: found["counts"][name] for name in ("total", "completed", "failed", "restored", "in_progress")}
    assert counts == {"total": len(completed) + len(failed), "completed": len(completed), "failed": len(failed),
                      "restored": story.restored[scope], "in_progress": 0}  # fmt: skip
    assert found["summary"]["measured"] + found["summary"]["empty"] == len(completed)
    assert found["latest"]["completed"]["id"] == completed[0]
    assert (found["latest"]["failed"] or {}).get("id") == (failed[0] if failed else None)
    assert bool(found["latest"]["restored"]) == bool(story.restored[scope])
    assert found["latest"]["savepoint"]["id"] == 1
    drawn = body_of(overview.list_points(world.pages, "trips", 100, scope))
    assert [p["id"] for p in drawn["points"]] == completed[::-1]
    assert [m["checkpoint"] for m in drawn["marks"] if m["kind"] == "failed"] == failed[::-1]
    assert drawn["scope"] == found["scope"]
    assert [p["savepoints"] for p in drawn["points"]] == [["kept"] if p["id"] == 1 else [] for p in drawn["points"]]


@pytest.mark.parametrize("scope", SCOPES)
def test_verdict_health_and_history_do_not_depend_on_the_scope(world: TripsPipeline, story: Story, scope: str) -> None:
    world.pages.clock = world.line.clock

    def parts(wanted: str) -> Any:
        found = body_of(overview.get_overview(world.pages, "trips", HistoryQuery(), wanted))
        return {name: found[name] for name in ("verdict", "health", "history", "matching", "indexed", "run")}

    assert parts(scope) == parts("all")
    assert parts(scope)["health"]["live"] == "t2"


def test_the_scope_names_its_timeline(world: TripsPipeline, story: Story) -> None:
    named = {s: body_of(overview.get_overview(world.pages, "trips", HistoryQuery(), s))["scope"] for s in SCOPES}
    assert named == {
        "live": {"timeline": "t2", "is_live": True},
        "all": {"timeline": None, "is_live": False},
        "timeline:t1": {"timeline": "t1", "is_live": False},
        "timeline:t2": {"timeline": "t2", "is_live": True},
        "timeline:live": {"timeline": "live", "is_live": False},
    }


def test_an_overview_is_about_all_and_charts_are_about_the_live_timeline_by_default(
    world: TripsPipeline, story: Story
) -> None:
    assert body_of(overview.get_overview(world.pages, "trips", HistoryQuery()))["counts"]["completed"] == 5
    assert [p["id"] for p in body_of(overview.list_points(world.pages, "trips", 100))["points"]] == [1, 5, 7]


def test_marks_are_the_events_since_the_first_point(world: TripsPipeline, story: Story) -> None:
    marks = body_of(overview.list_points(world.pages, "trips", 100, "all"))["marks"]
    assert [(m["kind"], m["checkpoint"], m["label"]) for m in marks] == [
        ("failed", 3, "ENGINE_ERROR"), ("fork", 2, "live"), ("restore", 1, "t2"), ("failed", 6, "ENGINE_ERROR"),
    ]  # fmt: skip
    assert [m["at"] for m in marks] == sorted(m["at"] for m in marks)
    last = body_of(overview.list_points(world.pages, "trips", 1, "all"))
    assert ([p["id"] for p in last["points"]], last["marks"], last["of"]) == ([7], [], 5)


def test_a_scope_that_does_not_exist_is_refused(world: TripsPipeline, story: Story) -> None:
    for ask in (lambda s: overview.get_overview(world.pages, "trips", HistoryQuery(), s),
                lambda s: overview.list_points(world.pages, "trips", 9, s)):  # fmt: skip
        with pytest.raises(NotFoundError):
            ask("timeline:nothing")
        for wrong in ("", "t2", "timeline", "LIVE"):
            with pytest.raises(UsageError):
                ask(wrong)


def test_without_readable_timelines_the_live_scope_has_all_checkpoints(world: TripsPipeline) -> None:
    world.checkpoint("a")
    world.checkpoint("b")
    (world.folder / "timelines/t1/000000000002.json").write_bytes(b"{}")
    found = body_of(overview.get_overview(world.pages, "trips", HistoryQuery(), "live"))
    assert (found["scope"]["timeline"], found["counts"]["completed"], found["counts"]["damaged"]) == (None, 1, 1)
