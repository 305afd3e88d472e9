"""The plan of a backfill on the pages is that of the command line, whatever timeline its checkpoint is on."""

import pytest

from tests.support.trips import TripsPipeline
from tidemark.coordinator.recovery.backfill import Backfill, BackfillRequest
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.errors import ConflictError, NotFoundError, UsageError
from tidemark.model.checkpoint.codec import body_of
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import backfill as backfill_operations
from tidemark.operations import savepoints, timelines
from tidemark.operations.backfill import describe_outlook
from tidemark.web import overview, previews
from tidemark.web.history_lines import HistoryQuery


def backfill(world: TripsPipeline, number: int, fork: str) -> Backfill:
    terms = BackfillRequest(begins=RestoreRequest(checkpoint=number), fork=fork)
    return backfill_operations.open_backfill(world.pages, "trips", terms)


def by_command(world: TripsPipeline, number: int) -> list[str]:
    """What the dry run of the command names, step by step."""
    left = body_of(describe_outlook(backfill(world, number, f"dry-{number}").outlook()))["left"]
    assert isinstance(left, list)
    return [name for step in left for name in step]


def by_page(world: TripsPipeline, number: int) -> list[str]:
    found: list[str] = body_of(previews.preview_backfill(world.pages, "trips", RestoreRequest(checkpoint=number)))[
        "repeats"
    ]
    return found


@pytest.fixture
def promoted(world: TripsPipeline) -> list[int]:
    """t1 has chk-1 to 4; a backfill repeats 2 to 4 as chk-5 to 7 and is promoted; chk-8 follows. t1 is closed."""
    for bus in "abcd":
        world.checkpoint(bus)
    one = backfill(world, 1, "corrected")
    context = world.pages
    one.begin()
    assert [c.plan.replays for c in backfill_operations.repeat(context, one)] == [(2,), (3,), (4,)]
    backfill_operations.promote(context, one)
    world.checkpoint("e", "f")
    return list(range(1, 9))


def test_a_checkpoint_of_a_closed_sibling_has_the_plan_of_the_command(
    world: TripsPipeline, promoted: list[int]
) -> None:
    assert by_page(world, 3) == by_command(world, 3) == ["chk-7", "chk-8"]
    left = body_of(previews.preview_restore(world.pages, "trips", RestoreRequest(checkpoint=3)))["left"]
    assert left == ["chk-8", "chk-7", "chk-6", "chk-5"], "a restore sets aside other ones"
    assert {n: by_page(world, n) for n in promoted} == {n: by_command(world, n) for n in promoted}
    assert by_page(world, 8) == []


def test_records_and_work_are_those_of_what_is_repeated(world: TripsPipeline, promoted: list[int]) -> None:
    told = body_of(previews.preview_backfill(world.pages, "trips", RestoreRequest(checkpoint=3)))
    assert (told["checkpoint"], told["to"], told["records"]) == ("chk-3", "chk-8", 3)
    lines = body_of(overview.get_overview(world.pages, "trips", HistoryQuery()))["history"]
    assert told["work_duration"] == sum(line["work_duration"] for line in lines if line["id"] in (7, 8))


def test_a_savepoint_is_its_checkpoint(world: TripsPipeline, promoted: list[int]) -> None:
    request = SavepointRequest(name="kept", owner="me", origin="test", checkpoint=6, note="")
    savepoints.open_savepoints(world.pages, "trips").create(request)
    told = body_of(previews.preview_backfill(world.pages, "trips", RestoreRequest(savepoint="kept")))
    assert (told["checkpoint"], told["savepoint"], told["repeats"]) == ("chk-6", "kept", ["chk-7", "chk-8"])


def test_what_cannot_be_repeated_is_refused_as_the_command_refuses_it(world: TripsPipeline) -> None:
    first, second = world.checkpoint("a"), world.checkpoint("b")
    timelines.restore(world.pages, "trips", RestoreRequest(checkpoint=first, request="r"))
    world.checkpoint("c")
    for ask in (by_page, by_command):
        with pytest.raises(ConflictError, match="is not an ancestor of"):
            ask(world, second)
    with pytest.raises(NotFoundError):
        by_page(world, 99)
    with pytest.raises(UsageError):
        body_of(previews.preview_backfill(world.pages, "trips", RestoreRequest()))
