"""Flink's four restart strategies as small values, translated to a scheduler's retries."""

from dataclasses import dataclass
from datetime import timedelta

from tidemark.errors import DeclarationError

ENDLESS = 10_000
"""A number of retries that means "until it works": it lasts for weeks at the longest delay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """The retries of a task, as plain data.

    Attributes:
        retries: attempts after the first one.
        delay_s: seconds before the first retry.
        multiplier: factor by which the delay grows from retry to retry; 1.0 = constant.
        max_delay_s: upper bound of the delay.
    """

    retries: int
    delay_s: float
    multiplier: float
    max_delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NoRestart:
    """`none`: the first failure is final."""

    def retries(self) -> Retries:
        """Returns zero retries."""
        return Retries(retries=0, delay_s=0.0, multiplier=1.0, max_delay_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedDelay:
    """`fixed-delay`: a number of retries at a constant delay (Flink's defaults: 1 retry, 1 s)."""

    attempts: int = 1
    delay: timedelta = timedelta(seconds=1)

    def __post_init__(self) -> None:
        _check("FixedDelay", self.attempts, self.delay)

    def retries(self) -> Retries:
        """Returns the declared retries."""
        seconds = self.delay.total_seconds()
        return Retries(retries=self.attempts, delay_s=seconds, multiplier=1.0, max_delay_s=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialDelay:
    """`exponential-delay`, Flink's default with checkpointing: 1 s, doubling up to 5 minutes, without end.

    Jitter and the reset after an hour are left to the scheduler: each checkpoint begins with fresh retries.
    """

    initial: timedelta = timedelta(seconds=1)
    longest: timedelta = timedelta(minutes=5)
    multiplier: float = 2.0
    attempts: int = ENDLESS

    def __post_init__(self) -> None:
        _check("ExponentialDelay", self.attempts, self.initial)
        if self.multiplier < 1 or self.longest < self.initial:
            raise DeclarationError(
                f"ExponentialDelay(multiplier={self.multiplier}, longest={self.longest})",
                next="give a multiplier of at least 1 and longest >= initial.",
            )

    def retries(self) -> Retries:
        """Returns the declared retries."""
        return Retries(
            retries=self.attempts,
            delay_s=self.initial.total_seconds(),
            multiplier=self.multiplier,
            max_delay_s=self.longest.total_seconds(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRate:
    """`failure-rate`: gives up after more than `failures` failures in an interval (Flink's: 1 per minute, 1 s apart).

    A scheduler counts attempts, not rates, so this strategy gives up after that many retries of one task, whenever they
    happened: sooner than Flink if failures are rare, never later.
    """

    failures: int = 1
    interval: timedelta = timedelta(minutes=1)
    delay: timedelta = timedelta(seconds=1)

    def __post_init__(self) -> None:
        _check("FailureRate", self.failures, self.delay)

    def retries(self) -> Retries:
        """Returns at most `failures` retries, `delay` apart."""
        seconds = self.delay.total_seconds()
        return Retries(retries=self.failures, delay_s=seconds, multiplier=1.0, max_delay_s=seconds)


RestartStrategy = NoRestart | FixedDelay | ExponentialDelay | FailureRate
"""The restart strategies."""


def _check(name: str, attempts: int, delay: timedelta) -> None:
    if attempts < 1 or delay < timedelta(0):
        raise DeclarationError(
            f"{name} with {attempts} attempts, {delay} apart",
            next="give at least 1 attempt and a delay of 0 or more; NoRestart() never retries.",
        )
