"""A span for every attempt of a checkpoint, with its steps, below the span of Airflow's task (K9).

Only where `[traces] otel_on` is set in Airflow; nothing is read or made otherwise. As in Flink the span is called
Checkpoint, and so are its attributes where they mean the same.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.sdk.configuration import conf

from tidemark.errors import TidemarkError

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from tidemark.context import Context as TidemarkContext
    from tidemark.model.checkpoint.manifest import Sealed
    from tidemark.model.checkpoint.plan import CheckpointPlan

_log = logging.getLogger(__name__)
_NS = 1_000_000
"""Nanoseconds of a millisecond."""


@contextmanager
def attempts_traced(opened: "TidemarkContext", pipeline: str, slot: str) -> Iterator[list[int]]:
    """Leaves a span for every attempt that the block sealed, or one for the attempt that failed.

    Args:
        opened: reads what was sealed.
        pipeline: its name.
        slot: of the plan that the block begins with, as in `t1/3.1`.

    Yields:
        Ids of checkpoints that were sealed; the block adds them.
    """
    sealed: list[int] = []
    if not conf.getboolean("traces", "otel_on", fallback=False):
        yield sealed
        return
    from opentelemetry import trace

    tracer, begun = trace.get_tracer("tidemark"), opened.clock.now_ms()
    try:
        yield sealed
    except Exception as error:
        told = {"pipeline": pipeline, **_failing(opened, pipeline, slot)}
        _failed(tracer, told, error, (begun, opened.clock.now_ms()))
        raise
    for number in sealed:
        try:
            _completed(tracer, opened, pipeline, number)
        except TidemarkError as error:
            _log.warning("chk-%d is not traced: %s", number, error)


def _completed(tracer: "Tracer", opened: "TidemarkContext", pipeline: str, number: int) -> None:
    from tidemark.coordinator.records.states import Completed, SealedPlan
    from tidemark.operations.metrics import sealed_ms

    coordinator = opened.coordinator(pipeline)
    plan = coordinator.plan_of(number)
    state = coordinator.state(plan)
    if not isinstance(state, SealedPlan | Completed):
        return
    sealed = state.sealed if isinstance(state, SealedPlan) else state.checkpoint.sealed
    _span(tracer, plan, sealed, sealed_ms(coordinator, plan, sealed))


def _span(tracer: "Tracer", plan: "CheckpointPlan", sealed: "Sealed", end: int) -> None:
    """The attempt, and below it its steps: only their lengths are recorded, so they are laid end to end."""
    from opentelemetry.trace import set_span_in_context

    from tidemark.model.checkpoint.object_keys import external_path

    at = end - sum(sealed.timings_ms.values())
    told: dict[str, str | int] = {
        "pipeline": plan.pipeline,
        "checkpointId": plan.id,
        "checkpointStatus": "COMPLETED",
        "checkpointedSize": sealed.run_bytes,
        "fullSize": sealed.full_bytes,
        "externalPath": external_path(plan.pipeline, plan.slot),
        "timeline": plan.slot.timeline,
        "attempt": sealed.attempt,
        "records": sealed.facts.records,
    }
    span = tracer.start_span("Checkpoint", start_time=at * _NS, attributes=told)
    within = set_span_in_context(span)
    for name in _in_order(sealed):
        ms = sealed.timings_ms[name]
        step = tracer.start_span(name, context=within, start_time=at * _NS)
        at += ms
        step.end(end_time=at * _NS)
    span.end(end_time=end * _NS)


def _failed(tracer: "Tracer", told: dict[str, str | int], error: Exception, times: tuple[int, int]) -> None:
    """An attempt that was not sealed. Its message is in the log: it may hold a key."""
    from opentelemetry.trace import StatusCode

    from tidemark.coordinator.checkpoints.failure_policy import classify

    told |= {"checkpointStatus": "FAILED", "failureReason": classify(error).value}
    span = tracer.start_span("Checkpoint", start_time=times[0] * _NS, attributes=told)
    span.set_status(StatusCode.ERROR)
    span.end(end_time=times[1] * _NS)


def _failing(opened: "TidemarkContext", pipeline: str, slot: str) -> dict[str, str | int]:
    """Id, timeline and number of the attempt that has just failed; nothing where the store cannot tell."""
    try:
        number, timeline, attempt = _standing(opened, pipeline, slot)
    except TidemarkError as error:
        _log.warning("the attempt that failed has no id in its span: %s", error)
        return {}
    told: dict[str, str | int] = {"checkpointId": number, "timeline": timeline}
    return told | ({"attempt": attempt} if attempt else {})


def _standing(opened: "TidemarkContext", pipeline: str, slot: str) -> tuple[int, str, int]:
    """Of the plan that the block was at: the open one, which a retry takes up, or the one that was aborted.

    Where neither stands there, another process has gone on: then it is the plan that the block began with, attempt 0.

    Raises:
        TidemarkError: the store could not be read.
    """
    from tidemark.coordinator.records.states import NothingOpen, OpenPlan
    from tidemark.operations import checkpoints

    first = checkpoints.get_plan(opened, pipeline, slot)
    found = opened.coordinator(pipeline).open_plan(first.slot.timeline)
    if isinstance(found, OpenPlan):
        return found.plan.id, found.plan.slot.timeline, found.attempt
    if isinstance(found, NothingOpen) and found.aborted:
        last = found.aborted[-1]
        return last.id, last.slot.timeline, last.attempts
    return first.id, first.slot.timeline, 0


def _in_order(sealed: "Sealed") -> list[str]:
    """Steps as they were taken: the read, then operator by operator, then those of all together."""
    uids = [ack.uid for ack in sealed.acks]

    def place(name: str) -> tuple[int, str]:
        uid = name.partition(".")[2]
        if uid in uids:
            return uids.index(uid), name
        return (-1 if name == "read" else len(uids)), name

    return sorted(sealed.timings_ms, key=place)
