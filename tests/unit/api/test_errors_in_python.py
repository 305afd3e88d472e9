"""Errors say what to type in Python, and a dry run writes nothing."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.unit.api.warehouses import Flights
from tidemark.api import PipelineHistory, RestoreRequest, Warehouse
from tidemark.errors import (
    ConflictError,
    NameRefusedError,
    NotFoundError,
    ReleasedError,
    StoppedError,
    TidemarkError,
    UsageError,
)

WRONG: list[tuple[Callable[[Warehouse], Any], type[TidemarkError], str, str]] = [
    (lambda w: w["trains"], NotFoundError, "no pipeline 'trains'", ".pipelines() lists"),
    (lambda w: w["../etc"], NameRefusedError, "name refused", "use letters"),
    (lambda w: w["flights"].state("crews"), NotFoundError, "no operator 'crews'", "aircraft"),
    (lambda w: w["flights"].state("aircraft", at=99), NotFoundError, "chk-99", ".checkpoints() lists them"),
    (lambda w: w["flights"].state("aircraft", at="july"), NotFoundError, "no savepoint 'july'", ".savepoints.list()"),
    (
        lambda w: w["flights"].state("aircraft", at=datetime(2012, 1, 1, tzinfo=UTC)),
        NotFoundError,
        "no checkpoint as of",
        ".checkpoints()",
    ),
    (lambda w: w["flights"].state("aircraft", at=datetime(2013, 4, 1)), UsageError, "no time zone", "aware datetime"),
    (lambda w: w["flights"].restore(datetime(2013, 4, 1)), UsageError, "no time zone", "aware datetime"),
    (lambda w: w["flights"].state("routes").get("EWR"), UsageError, "origin, destination", "one value for each"),
    (lambda w: w["flights"].sink("alerts"), NotFoundError, "no sink 'alerts'", "knock_on_delays"),
    (lambda w: w["flights"].savepoints.get("july"), NotFoundError, "no savepoint 'july'", ".savepoints.list()"),
    (lambda w: w["flights"].savepoints.dispose("july"), NotFoundError, "no savepoint 'july'", ".savepoints.list()"),
    (lambda w: w["flights"].savepoints.create("x", expires="soon"), UsageError, "not an expiry", "30d"),
    (lambda w: w["flights"].timelines.get("t9"), NotFoundError, "t9", ".timelines.list()"),
    (lambda w: w["flights"].timelines.close("t9"), NotFoundError, "t9", ".timelines.list()"),
    (lambda w: w["flights"].promote("t9"), NotFoundError, "t9", ".timelines.list()"),
    (lambda w: w["flights"].stop(drain=True), UsageError, "drain without a savepoint", "name the savepoint"),
    (lambda w: w["flights"].retention.apply(grace="soon"), UsageError, "not a span", "90m"),
]


@pytest.mark.parametrize(("ask", "kind", "what", "advice"), WRONG, ids=[what for _, _, what, _ in WRONG])
def test_an_error_names_its_cause_and_the_next_step(
    template: Flights, ask: Callable[[Warehouse], Any], kind: type[TidemarkError], what: str, advice: str
) -> None:
    before = template.command.objects("flights")
    with pytest.raises(kind) as raised:
        ask(template.warehouse)
    assert what in raised.value.what
    assert advice in raised.value.next
    assert template.command.objects("flights") == before


DRY: list[Callable[[PipelineHistory], Any]] = [
    lambda f: f.restore("winter"),
    lambda f: f.restore(RestoreRequest(newest_whole=True)),
    lambda f: f.backfill("winter"),
    lambda f: f.erase("aircraft", "N14228"),
    lambda f: f.savepoints.dispose("winter"),
    lambda f: f.retention.apply("keep_last(1)", grace="0"),
]


@pytest.mark.parametrize("plan", DRY)
def test_a_dry_run_writes_nothing_and_says_so(template: Flights, plan: Callable[[PipelineHistory], Any]) -> None:
    before = template.command.objects("flights")
    found = plan(template.warehouse["flights"])
    assert "nothing was written" in repr(found)
    assert template.command.objects("flights") == before


def test_a_second_commit_executes_nothing(flights: Flights) -> None:
    back = flights.warehouse["flights"].restore("winter")
    first = back.commit()
    assert back.commit() is first
    assert repr(back) == "<restore: committed>"
    assert [t.name for t in flights.warehouse["flights"].timelines.list()] == ["t1", "t2"]


def test_a_savepoint_that_is_held_cannot_be_disposed_of_until_its_release(flights: Flights) -> None:
    savepoints = flights.warehouse["flights"].savepoints
    savepoints.hold("winter", why="case 4711", owner="legal")
    end = savepoints.dispose("winter")
    assert "hold" in " ".join(end.plan["needed_by"])
    with pytest.raises(ConflictError, match="winter"):
        end.commit()
    savepoints.release("winter")
    assert end.commit()["disposed"]
    assert [s.disposed for s in savepoints.list(disposed=True)] == [True]
    assert savepoints.list() == []


def test_what_was_got_from_a_released_checkpoint_says_where_to_look(flights: Flights) -> None:
    f = flights.warehouse["flights"]
    aircraft = f.state("aircraft", at=1)
    f.retention.apply("keep_last(1)", grace="0").commit()
    with pytest.raises(ReleasedError):
        aircraft.to_arrow()
    with pytest.raises(ReleasedError):
        f.state("aircraft", at=1)
    assert [c.status for c in f.checkpoints()] == ["completed", "completed", "released"]


def test_a_stopped_pipeline_plans_nothing_until_it_is_resumed(flights: Flights) -> None:
    f = flights.warehouse["flights"]
    assert f.stop("last", note="new disks")["savepoint"] == "last"
    with pytest.raises(StoppedError):
        f.run()
    assert f.resume()
    assert not f.resume()


def test_the_newest_checkpoint_of_a_pipeline_without_any_is_none(flights: Flights) -> None:
    flights.command.declare(
        (flights.command.pipelines / "flights.py").read_text().replace('name="flights"', 'name="trains"'),
        file="trains.py",
    )
    trains = flights.warehouse["trains"]
    assert trains.latest() is None
    assert "trains" not in flights.warehouse
    with pytest.raises(NotFoundError, match="no checkpoints yet") as raised:
        trains.state("aircraft")
    assert raised.value.next == ".run() makes the first one."


def test_state_read_earlier_stays_as_it_was(flights: Flights) -> None:
    f = flights.warehouse["flights"]
    aircraft = f.state("aircraft")
    flights.fly("N14228", "IAH", "EWR", 1400)
    made = f.run()
    assert made is not None
    assert aircraft.get("N14228") != f.state("aircraft", at=made).get("N14228")
    assert aircraft.checkpoint == "chk-3"
