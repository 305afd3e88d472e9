"""Timers of a process: refused options, logical time, renames, and errors of the author's calls."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidemark import Broadcast, DeltaSink, KafkaSource, Pipeline, Process, state
from tidemark.errors import DeclarationError, ProcessFunctionError
from tidemark.testing import Barrier, Harness

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Visit:
    """One record."""

    shop: str
    at: datetime


@dataclass(frozen=True)
class Closing:
    """A timer that fired."""

    shop: str
    at: datetime
    tags: int


class Shop(state.Keyed):
    """Per shop."""

    visits: int = state.value(0)
    page: int | None = state.value(None, ttl=timedelta(minutes=10))


class Named(state.Keyed):
    """With a field that has the name of the column of timers."""

    timers: int = state.value(0)


def visit(shop: str, visits: Any, remembered: Shop, *, timers: Any) -> None:
    """Sets an alarm half an hour ahead."""
    for each in visits:
        remembered.visits += 1
        remembered.page = 1
        timers.set("close", each.at + timedelta(minutes=30))


def without_timers(shop: str, visits: Any, remembered: Shop) -> None:
    """Sets none."""


def close(shop: str, name: str, at: datetime, remembered: Shop) -> Any:
    """Says so."""
    yield Closing(shop, at, remembered.visits + 100 * (remembered.page or 0))


def pipeline(**options: Any) -> Pipeline:
    given: dict[str, Any] = {
        "key_by": "shop", "state": Shop, "function": visit, "on_timer": close, "emits": Closing,
        "sink": DeltaSink("closings"), **options,
    }  # fmt: skip
    process = Process(given.pop("uid", "shops"), **given)
    return Pipeline(name="visits", source=KafkaSource("visits", Visit, event_time="at"), operators=[process])


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"on_timer": None}, "a function that takes timers without on_timer"),
        ({"on_timer": None, "function": without_timers, "fires_by": "logical_time"}, "fires_by= without on_timer"),
        ({"on_timer": None, "function": without_timers, "lateness": "1m"}, "lateness= without on_timer"),
        ({"on_timer": "close"}, "on_timer='close'"),
        ({"function": without_timers}, "does not take timers"),
        ({"fires_by": "count"}, "fires_by='count'"),
        ({"lateness": "soon"}, "lateness='soon' is not a duration"),
        ({"on_error": "dead_letter"}, 'on_error="dead_letter" with on_timer'),
        ({"state": Named}, "a state field is called timers"),
    ],
)
def test_what_does_not_go_with_timers_is_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(DeclarationError, match=what):
        pipeline(**options)


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def test_records_come_by_event_time_whatever_the_order() -> None:
    (process,) = pipeline(order="offset").operators
    assert isinstance(process, Process) and process.order == "event_time"


def test_logical_time_fires_without_records() -> None:
    made = Harness(pipeline(fires_by="logical_time"))
    made.send(Visit("a", at(5)), Visit("b", at(50)))
    first = made.checkpoint(Barrier(until=at(60)))
    done = made.results
    assert [(r["shop"], r["at"]) for r in done.emitted("shops", first)] == [("a", at(35))]
    second = made.checkpoint(Barrier(until=at(120)))
    ack = second.ack("shops")
    assert ack is not None and (ack.read, ack.fired, ack.emitted) == (0, 1, 1)
    assert [(r["shop"], r["at"]) for r in made.results.emitted("shops", second)] == [("a", at(35)), ("b", at(80))]


def test_a_firing_accesses_state_at_its_own_time() -> None:
    made = Harness(pipeline())
    made.send(Visit("a", at(5)), Visit("b", at(36)))
    found = made.checkpoint()
    (row,) = made.results.emitted("shops", found)
    assert row["tags"] == 1, "the page expired ten minutes after the visit; the count did not"
    assert made.results.rows("shops", found)[("a",)]["timers"] == {}


def test_a_key_with_nothing_but_timers_keeps_them() -> None:
    def forget(shop: str, visits: Any, remembered: Shop, *, timers: Any) -> None:
        for each in visits:
            timers.set("close", each.at + timedelta(minutes=30))
        remembered.clear()

    made = Harness(pipeline(function=forget))
    made.send(Visit("a", at(5)))
    first = made.checkpoint()
    row = made.results.rows("shops", first)[("a",)]
    assert (row["visits"], row["timers"]) == (None, {"close": at(35)})
    made.send(Visit("b", at(35)))
    found = made.checkpoint()
    assert [r["shop"] for r in made.results.emitted("shops", found)] == ["a"]
    assert ("a",) not in made.results.rows("shops", found)


def test_a_renamed_process_keeps_its_frontier_and_its_timers() -> None:
    made = Harness(pipeline())
    made.send(Visit("a", at(5)))
    made.checkpoint()
    made.declare(pipeline(uid="stores", was="shops"))
    made.send(Visit("b", at(35)))
    found = made.checkpoint()
    assert [r["shop"] for r in made.results.emitted("stores", found)] == ["a"]
    clocks = found.sealed.facts.clocks
    assert clocks["stores"].watermark_ms == at(35).timestamp() * 1000 and "shops" not in clocks


def test_timers_begin_with_the_declaration_and_end_with_it() -> None:
    made = Harness(pipeline(function=without_timers, on_timer=None))
    made.send(Visit("a", at(5)))
    made.checkpoint()
    made.declare(pipeline())
    made.send(Visit("a", at(6)))
    made.checkpoint()
    made.declare(pipeline(function=without_timers, on_timer=None))
    made.send(Visit("b", at(7)))
    third = made.checkpoint()
    assert "timers" not in made.results.rows("shops", third)[("a",)]
    made.declare(pipeline())
    made.send(Visit("b", at(90)))
    found = made.checkpoint()
    ack = found.ack("shops")
    assert ack is not None and ack.fired == 0, "those of the earlier declaration are gone"
    assert made.results.rows("shops", found)[("a",)]["timers"] == {}


@dataclass(frozen=True)
class Wrong:
    """A call that is refused."""

    name: Any
    at: Any


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (Wrong("x", datetime(2024, 5, 1)), "give a datetime with a zone"),  # noqa: DTZ001
        (Wrong("x", 5), "give a datetime with a zone"),
        (Wrong(7, NOON), "7 is not of type str"),
    ],
)
def test_a_wrong_call_fails_with_the_key(wrong: Wrong, what: str) -> None:
    def mistaken(shop: str, visits: Any, remembered: Shop, *, timers: Any) -> None:
        for _ in visits:
            timers.set(wrong.name, wrong.at)

    made = Harness(pipeline(function=mistaken))
    made.send(Visit("a", at(5)))
    with pytest.raises(ProcessFunctionError, match=what) as caught:
        made.checkpoint()
    assert caught.value.key == "a"


def test_timers_show_themselves_to_the_author() -> None:
    seen: list[str] = []

    def show(shop: str, visits: Any, remembered: Shop, *, timers: Any) -> None:
        for each in visits:
            timers.set("close", each.at + timedelta(minutes=30, microseconds=1999))
            seen.append(repr(timers))

    made = Harness(pipeline(function=show))
    made.send(Visit("a", at(5)))
    made.checkpoint()
    assert seen == ["timers(close=2024-05-01T12:35:00.001000+00:00)"]


@dataclass(frozen=True)
class Hours:
    """A row to look up."""

    shop: str
    tags: int


def test_a_timer_sees_broadcast_state() -> None:
    def close_by(shop: str, name: str, at: datetime, remembered: Shop, hours: Any) -> Any:
        yield Closing(shop, at, hours["hours"][shop].tags)

    found = replace(
        pipeline(on_timer=close_by), broadcast=[Broadcast("hours", source=KafkaSource("hours", Hours), key_by="shop")]
    )
    made = Harness(found)
    made.send(Visit("a", at(5)), Visit("b", at(36)), Hours("a", 7))
    newest = made.checkpoint()
    assert [r["tags"] for r in made.results.emitted("shops", newest)] == [7]
