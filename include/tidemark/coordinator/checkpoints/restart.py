"""Flink's four restart strategies (I1) as small values, in the words of a scheduler's retries."""

from dataclasses import dataclass
from datetime import timedelta

from tidemark.errors import DeclarationError

ENDLESS = 10_000
"""Retries that stand for "until it works": weeks of them at the longest delay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """Plain data for a task: how often, how long apart.

    Attributes:
        retries: tries after the first one.
        delay_s: seconds before the first of them.
        multiplier: growth of the delay from retry to retry; 1.0 = none.
        max_delay_s: bound of the delay.
    """

    retries: int
    delay_s: float
    multiplier: float
    max_delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NoRestart:
    """`none`: the first failure is final."""

    def retries(self) -> Retries:
        """No retries."""
        return Retries(retries=0, delay_s=0.0, multiplier=1.0, max_delay_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedDelay:
    """`fixed-delay`: a number of retries, equally far apart (Flink's defaults: 1, 1 s)."""

    attempts: int = 1
    delay: timedelta = timedelta(seconds=1)

    def __post_init__(self) -> None:
        _check("FixedDelay", self.attempts, self.delay)

    def retries(self) -> Retries:
        """As declared."""
        seconds = self.delay.total_seconds()
        return Retries(retries=self.attempts, delay_s=seconds, multiplier=1.0, max_delay_s=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialDelay:
    """`exponential-delay`, Flink's default with checkpointing: 1 s, doubling up to 5 minutes, endless.

    Jitter and the reset after an hour are the scheduler's: each checkpoint begins with fresh retries.
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
        """As declared."""
        return Retries(
            retries=self.attempts,
            delay_s=self.initial.total_seconds(),
            multiplier=self.multiplier,
            max_delay_s=self.longest.total_seconds(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRate:
    """`failure-rate`: gives up after more than so many failures within an interval (Flink's: 1 per minute, 1 s apart).

    A scheduler counts tries, not rates, so this gives up after that many retries of one task, whenever they were:
    sooner than Flink where failures are rare, never later.
    """

    failures: int = 1
    interval: timedelta = timedelta(minutes=1)
    delay: timedelta = timedelta(seconds=1)

    def __post_init__(self) -> None:
        _check("FailureRate", self.failures, self.delay)

    def retries(self) -> Retries:
        """At most `failures` retries, `delay` apart."""
        seconds = self.delay.total_seconds()
        return Retries(retries=self.failures, delay_s=seconds, multiplier=1.0, max_delay_s=seconds)


RestartStrategy = NoRestart | FixedDelay | ExponentialDelay | FailureRate
"""The four of them."""


def _check(name: str, attempts: int, delay: timedelta) -> None:
    if attempts < 1 or delay < timedelta(0):
        raise DeclarationError(
            f"{name} with {attempts} attempts, {delay} apart",
            next="give at least 1 attempt and a delay of 0 or more; NoRestart() never retries.",
        )
