"""Flink's restart strategies in the words of Airflow's retries (I1), and which errors no retry can help.

Retries of a task are tries of one plan: each takes the next attempt of the same frozen ranges, so none applies a record
twice (I1 of the invariants).
"""

from datetime import timedelta
from typing import Any, Literal

from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule
from airflow.sdk.exceptions import AirflowFailException

from tidemark.coordinator.checkpoints.restart import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartStrategy,
)
from tidemark.errors import (
    ConflictError,
    DataLostError,
    DeclarationError,
    NotFoundError,
    RecordRefusedError,
    StoppedError,
    TidemarkError,
    UsageError,
)

StrategyName = Literal["none", "fixed-delay", "exponential-delay", "failure-rate"]
STRATEGIES: dict[str, RestartStrategy] = {
    "none": NoRestart(),
    "fixed-delay": FixedDelay(),
    "exponential-delay": ExponentialDelay(),
    "failure-rate": FailureRate(),
}
"""Flink's four names, with Flink's defaults."""

BUSY_DELAY = timedelta(seconds=10)
HOPELESS = (UsageError, NotFoundError, DataLostError, StoppedError, RecordRefusedError)
"""What a retry of the same words will meet again, whether or not there is a plan to abort."""


def restart_strategy(given: StrategyName | RestartStrategy) -> RestartStrategy:
    """A strategy by its name or as a value.

    Raises:
        DeclarationError: no such name.
    """
    if not isinstance(given, str):
        return given
    if given not in STRATEGIES:
        raise DeclarationError(f"no restart strategy {given!r}", next=f"name one of: {', '.join(STRATEGIES)}.")
    return STRATEGIES[given]


def retry_arguments(strategy: RestartStrategy) -> dict[str, Any]:
    """The strategy as arguments of an operator."""
    wanted = strategy.retries()
    return {
        "retries": wanted.retries,
        "retry_delay": timedelta(seconds=wanted.delay_s),
        "retry_exponential_backoff": wanted.multiplier if wanted.multiplier > 1 else 0,
        "max_retry_delay": timedelta(seconds=wanted.max_delay_s) if wanted.max_delay_s else None,
        "retry_policy": ExceptionRetryPolicy(
            rules=[
                RetryRule(
                    exception=f"{ConflictError.__module__}.{ConflictError.__qualname__}",
                    action=RetryAction.RETRY,
                    retry_delay=BUSY_DELAY,
                    reason="another process holds the timeline or went ahead",
                )
            ]
        ),
    }


def is_final(error: TidemarkError) -> bool:
    """Whether a retry of the task cannot help."""
    from tidemark.coordinator.checkpoints.failure_policy import classify

    return isinstance(error, HOPELESS) or classify(error).aborts


def as_airflow(error: TidemarkError) -> Exception:
    """What to raise for an error: itself, to be retried, or Airflow's own failure with our three lines."""
    from tidemark.coordinator.checkpoints.failure_policy import classify

    if not is_final(error):
        return error
    # An error of an aborted plan has its reason in front already.
    return AirflowFailException(f"{classify(error).value}: {str(error).removeprefix(f'{classify(error).value}: ')}")
