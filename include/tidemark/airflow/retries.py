"""Flink's restart strategies as Airflow's retries, and the errors that no retry can fix.

All retries of a task execute one plan: each makes the next attempt at the same fixed ranges, so no record is applied
twice.
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
    SchemaChangedError,
    StoppedError,
    TargetChangedError,
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
"""Flink's four restart strategies, with Flink's defaults."""

BUSY_DELAY = timedelta(seconds=10)
HOPELESS = (
    UsageError,
    NotFoundError,
    DataLostError,
    StoppedError,
    RecordRefusedError,
    SchemaChangedError,
    TargetChangedError,
)
"""Errors that a retry would meet again, whether or not there is a plan to abort."""


def restart_strategy(given: StrategyName | RestartStrategy) -> RestartStrategy:
    """Returns a strategy, given by name or as a value.

    Raises:
        DeclarationError: there is no strategy of this name.
    """
    if not isinstance(given, str):
        return given
    if given not in STRATEGIES:
        raise DeclarationError(f"no restart strategy {given!r}", next=f"use one of: {', '.join(STRATEGIES)}.")
    return STRATEGIES[given]


def retry_arguments(strategy: RestartStrategy) -> dict[str, Any]:
    """Returns the strategy as arguments of an operator."""
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
                    reason="another process holds the timeline or is ahead",
                )
            ]
        ),
    }


def is_final(error: TidemarkError) -> bool:
    """Whether no retry of the task can fix the error."""
    from tidemark.coordinator.checkpoints.failure_policy import classify

    return isinstance(error, HOPELESS) or classify(error).aborts


def as_airflow(error: TidemarkError) -> Exception:
    """Returns the exception to raise: the error, to be retried, or AirflowFailException with its three lines."""
    from tidemark.coordinator.checkpoints.failure_policy import classify

    if not is_final(error):
        return error
    # The error of an aborted plan already starts with its reason.
    return AirflowFailException(f"{classify(error).value}: {str(error).removeprefix(f'{classify(error).value}: ')}")
