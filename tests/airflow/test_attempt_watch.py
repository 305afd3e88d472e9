"""A task ends once its attempt takes too long: its own, not an earlier one, and never behind its end."""

import signal
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.bank import ASK, BankPipeline

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("airflow_home")]


def _now_ms() -> int:
    return int(time.time() * 1000)


def _opened(coordinator: Callable[[str], object]) -> Any:
    return SimpleNamespace(coordinator=coordinator, clock=SimpleNamespace(now_ms=_now_ms))


def _begun(ago_ms: int) -> BankPipeline:
    """A bank whose attempt began so long ago."""
    bank = BankPipeline()
    bank.send(1)
    bank.clock.ms = _now_ms() - ago_ms
    plan = bank.plan(replace(ASK, run="dag/1"))
    bank.coordinator.begin(plan)
    return bank


def _ended_after(opened: Any, timeout: float, body: Callable[[], object]) -> float | None:
    """Seconds until the watch ended the body; None if it let the body end."""
    from airflow.sdk.exceptions import AirflowTaskTimeout

    from tidemark.airflow.attempt_watch import attempts_watched

    began, before = time.monotonic(), signal.getsignal(signal.SIGALRM)
    try:
        with attempts_watched(opened, "bank", timedelta(seconds=timeout)):
            body()
    except AirflowTaskTimeout:
        return time.monotonic() - began
    finally:
        assert signal.getsignal(signal.SIGALRM) is before
    return None


def test_an_attempt_that_takes_too_long_ends_the_task() -> None:
    opened = _opened(lambda name: _begun(0).coordinator)
    bank = _begun(-50)  # it begins a moment after the watch
    opened.coordinator = lambda name: bank.coordinator
    after = _ended_after(opened, 0.4, lambda: time.sleep(5))
    assert after is not None
    assert 0.4 <= after < 2


def test_an_attempt_of_an_earlier_try_does_not() -> None:
    bank = _begun(3_600_000)
    assert _ended_after(_opened(lambda name: bank.coordinator), 0.3, lambda: time.sleep(0.6)) is None


def test_without_any_attempt_the_task_has_three_times_as_long() -> None:
    bank = BankPipeline()
    after = _ended_after(_opened(lambda name: bank.coordinator), 0.3, lambda: time.sleep(5))
    assert after is not None
    assert 0.9 <= after < 2.5


def test_an_error_of_the_store_does_not_end_the_watch() -> None:
    def broken(name: str) -> object:
        raise RuntimeError("no answer")

    assert _ended_after(_opened(broken), 0.1, lambda: time.sleep(5)) is not None


def test_a_block_that_has_ended_is_left_alone() -> None:
    bank = _begun(-50)

    def slow(name: str) -> object:
        time.sleep(0.4)
        return bank.coordinator

    assert _ended_after(_opened(slow), 0.3, lambda: time.sleep(0.35)) is None
