"""Emits a span for each attempt at a checkpoint and for its steps, below the span of Airflow's task.

Spans need `[traces] otel_on` in Airflow; without it, nothing is read or created. The span is named Checkpoint as in
Flink, and attributes with the same meaning have Flink's names.
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
"""Nanoseconds per millisecond."""


@contextmanager
def attempts_traced(opened: "TidemarkContext", pipeline: str, slot: str) -> Iterator[list[int]]:
    """Emits a span for each attempt that the `with` block sealed, or one span for the attempt that failed.

    Args:
        opened: the context that reads the sealed attempts.
        pipeline: the pipeline's name.
        slot: slot of the block's first plan, such as `t1/3.1`.

    Yields:
        A list, to which the block adds the ids of sealed checkpoints.
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
        attributes = {"pipeline": pipeline, **_failed_attempt(opened, pipeline, slot)}
        _emit_failed(tracer, attributes, error, (begun, opened.clock.now_ms()))
        raise
    for number in sealed:
        try:
            _emit_completed(tracer, opened, pipeline, number)
        except TidemarkError as error:
            _log.warning("chk-%d is not traced: %s", number, error)


def _emit_completed(tracer: "Tracer", opened: "TidemarkContext", pipeline: str, number: int) -> None:
    from tidemark.coordinator.records.states import Completed, SealedPlan
    from tidemark.operations.observability import sealed_ms

    coordinator = opened.coordinator(pipeline)
    plan = coordinator.plan_of(number)
    state = coordinator.state(plan)
    if not isinstance(state, SealedPlan | Completed):
        return
    sealed = state.sealed if isinstance(state, SealedPlan) else state.checkpoint.sealed
    _span(tracer, plan, sealed, sealed_ms(coordinator, plan, sealed))


def _span(tracer: "Tracer", plan: "CheckpointPlan", sealed: "Sealed", end: int) -> None:
    """Emits the attempt and its steps. Only the steps' durations are recorded, so the spans follow one another."""
    from opentelemetry.trace import set_span_in_context

    from tidemark.model.checkpoint.object_keys import external_path

    at = end - sum(sealed.timings_ms.values())
    attributes: dict[str, str | int] = {
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
    span = tracer.start_span("Checkpoint", start_time=at * _NS, attributes=attributes)
    within = set_span_in_context(span)
    for name in _in_order(sealed):
        ms = sealed.timings_ms[name]
        step = tracer.start_span(name, context=within, start_time=at * _NS)
        at += ms
        step.end(end_time=at * _NS)
    span.end(end_time=end * _NS)


def _emit_failed(tracer: "Tracer", attributes: dict[str, str | int], error: Exception, times: tuple[int, int]) -> None:
    """Emits an attempt that was not sealed. The span has no error message, which may contain a key; the log has it."""
    from opentelemetry.trace import StatusCode

    from tidemark.coordinator.checkpoints.failure_policy import classify

    attributes |= {"checkpointStatus": "FAILED", "failureReason": classify(error).value}
    span = tracer.start_span("Checkpoint", start_time=times[0] * _NS, attributes=attributes)
    span.set_status(StatusCode.ERROR)
    span.end(end_time=times[1] * _NS)


def _failed_attempt(opened: "TidemarkContext", pipeline: str, slot: str) -> dict[str, str | int]:
    """Returns id, timeline and number of the failed attempt; an empty dict if the store cannot be read."""
    try:
        number, timeline, attempt = _current_attempt(opened, pipeline, slot)
    except TidemarkError as error:
        _log.warning("the attempt that failed has no id in its span: %s", error)
        return {}
    attributes: dict[str, str | int] = {"checkpointId": number, "timeline": timeline}
    return attributes | ({"attempt": attempt} if attempt else {})


def _current_attempt(opened: "TidemarkContext", pipeline: str, slot: str) -> tuple[int, str, int]:
    """Returns the block's current plan and attempt: the open plan, which a retry adopts, or the aborted plan.

    If there is neither, another process has continued: then it returns the block's first plan with attempt 0.

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
    """Returns the steps in their order: the read, then those of each operator, then the common ones."""
    uids = [ack.uid for ack in sealed.acks]

    def place(name: str) -> tuple[int, str]:
        uid = name.partition(".")[2]
        if uid in uids:
            return uids.index(uid), name
        return (-1 if name == "read" else len(uids)), name

    return sorted(sealed.timings_ms, key=place)
