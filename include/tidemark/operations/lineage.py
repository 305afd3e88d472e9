"""Announces attempts and checkpoints as lineage: START before the work, FAIL after an error, COMPLETE when published.

A process that is killed announces no end; the attempt that takes over has a START of its own.
"""

from typing import TYPE_CHECKING

from tidemark.context import Context
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.failure_policy import classify
from tidemark.declare.pipeline import Pipeline
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed
from tidemark.model.checkpoint.openlineage_events import (
    EMBEDDED_BROKER,
    Attempted,
    Json,
    Naming,
    attempted,
    without_nulls,
)
from tidemark.ports import StepListener

if TYPE_CHECKING:
    pass


def execute_attempt(
    context: Context, pipeline: Pipeline, owned: OwnedAttempt, listener: StepListener | None = None
) -> Sealed:
    """As `execute`, announced.

    Raises:
        TidemarkError: as `execute`.
    """
    context.renew_lock(pipeline, owned.plan)
    if context.observers.lineage is None:
        return context.execute(pipeline, owned, listener)
    event = Attempted(plan=owned.plan, attempt=owned.number, naming=_naming(context))
    _announce(context, event.started(context.clock.now_ms()))
    try:
        return context.execute(pipeline, owned, listener)
    except BaseException as error:
        # Airflow's timeouts and Ctrl-C are no Exceptions, but end an attempt all the same.
        _announce(context, event.failed(context.clock.now_ms(), classify(error)))
        raise


def announce(context: Context, found: Checkpoint) -> None:
    """Announces a completed checkpoint; a repeated call announces the same event."""
    if context.observers.lineage is not None:
        _announce(context, attempted(found, _naming(context)).completed(context.clock.now_ms(), found))


def _naming(context: Context) -> Naming:
    server = (context.settings.kafka_bootstrap or EMBEDDED_BROKER).split(",")[0].strip()
    jobs = context.settings.openlineage_namespace
    return Naming(jobs=jobs, broker=server, warehouse=str(context.settings.warehouse))


def _announce(context: Context, event: Json) -> None:
    sink = context.observers.lineage
    if sink is not None:
        context.observers.lineage_calls.call(lambda: sink.announce(without_nulls(event)))
