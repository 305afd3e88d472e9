"""Rows of timers that leave the warehouse: each is sent once, over restores that keep sinks or take them back."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.support.bank import BankPipeline
from tests.unit.coordinator.test_frontiers import DAY, HOUR_MS, Visit, visit
from tests.unit.coordinator.test_restoring import restored
from tests.unit.coordinator.test_sent import deliver
from tidemark import KafkaSink, KafkaSource, Pipeline, Process, state
from tidemark.testing.twin.memory import ManualClock


@dataclass(frozen=True)
class Alarm:
    """A timer that fired."""

    account: str
    at: datetime


class Account(state.Keyed):
    """Per account."""

    n: int = state.value(0)


def follow(account: str, visits: Iterator[Visit], remembered: Any, *, timers: Any) -> None:
    for each in visits:
        timers.set(each.at.isoformat(), each.at + timedelta(minutes=30))


def alarm(account: str, name: str, at: datetime, remembered: Any) -> Iterator[Alarm]:
    yield Alarm(account, at)


def sending() -> BankPipeline:
    """Half an hour behind each visit an alarm is sent."""
    process = Process(
        "alarms",
        key_by="account",
        state=Account,
        function=follow,
        on_timer=alarm,
        emits=Alarm,
        sink=KafkaSink("alarms", "out"),
    )
    source = KafkaSource("payments", Visit, event_time="at")
    declared = Pipeline(name="bank", source=source, operators=[process], max_dead_letters=1.0)
    made = BankPipeline(declared, clock=ManualClock(DAY + 100 * HOUR_MS))
    made.log.create("out", 1)
    for hour in (1.5, 2.5, 3.5, 4.5):
        visit(made, hour)
        made.complete()
    return made


def delivered(made: BankPipeline, count: int | None = None) -> list[int]:
    """Sends what is due; returns the hours of the timers."""
    return [at // HOUR_MS % 24 for at in deliver(made, count)]


def test_a_restore_sends_no_timer_again_and_those_that_wait() -> None:
    made = sending()
    assert delivered(made, 2) == [2, 3]
    restored(made, checkpoint=1)
    visit(made, 5.5)
    for _ in range(4):
        made.complete()
    assert delivered(made) == [4, 5]
    assert delivered(made) == []


def test_sinks_that_go_back_send_again_what_fires_again() -> None:
    made = sending()
    assert delivered(made) == [2, 3, 4]
    restored(made, checkpoint=2, restore_sinks=True)
    made.complete()
    assert delivered(made) == [3, 4], "the timer of 2:00 has fired at the checkpoint"
