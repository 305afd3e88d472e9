"""Callbacks for final failures: they abort the open plan, and record the reason in the log and on the task."""

import logging
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from tidemark.airflow.airflow_metrics import observe
from tidemark.airflow.task_names import FAILURE_COUNT, PLAN, TASK_ERROR
from tidemark.errors import CheckpointExpiredError, TidemarkError
from tidemark.redaction import redact

if TYPE_CHECKING:
    from tidemark.context import Context as TidemarkContext
    from tidemark.model.checkpoint.failure import FailureReason

_log = logging.getLogger(__name__)

PUBLISHED = "published"
"""The key under which task `plan` keeps the names of the checkpoints that it published."""
LONGEST = 4_000
"""Characters of a stored line of an error."""


def keep_error(context: Context) -> None:
    """Callback of every task for when a try has failed: stores the class and the three lines of the error."""
    store, error = context.get("task_state_store"), context.get("exception")
    if store is None or error is None:
        return
    what, safe, after = (line[:LONGEST] for line in three_lines(error))
    cause = cause_of(error)
    kind = type(cause).__name__ if isinstance(cause, BaseException) else None
    number = context["ti"].try_number
    store.set(TASK_ERROR, {"try": number, "error": kind, "what": what, "safe": safe, "next": after})


def cause_of(error: BaseException | str | None) -> BaseException | str | None:
    """The error itself, not the AirflowFailException that ends the tries of a task because of it."""
    return error.__cause__ if isinstance(error, AirflowFailException) and error.__cause__ else error


def three_lines(error: BaseException | str) -> tuple[str, str, str]:
    """The failure, the intact parts and the next step; the last two are empty if the error does not say.

    >>> three_lines(TidemarkError("the bucket is away", next="retry."))
    ('the bucket is away', 'nothing was written.', 'retry.')
    >>> three_lines(KeyError("bus"))
    ("KeyError: 'bus'", '', '')
    """
    text = redact(str(error))
    before, marked, after = text.rpartition("\nNext: ")
    if not marked:
        plain = isinstance(error, str | AirflowFailException)
        return (text if plain else f"{type(error).__name__}: {text}"), "", ""
    what, _, safe = before.rpartition("\nSafe: ")
    return what or safe, safe if what else "", after


def abort_after_last_try(pipeline: str, tolerable: int, context: Context) -> None:
    """Callback of the fold task for when its last try has failed: the next DAG run plans the same offsets again.

    A plan that waits for a person stays open, because a new plan would give its records other ids.

    Args:
        pipeline: the pipeline's name.
        tolerable: how many failed checkpoints in a row do not pause the DAG yet.
        context: the task's context.
    """
    from tidemark.coordinator.checkpoints.failure_policy import classify
    from tidemark.operations import checkpoints

    cause = cause_of(context.get("exception"))
    if not isinstance(cause, BaseException):
        cause = TidemarkError(str(cause or "the task was killed"), next="read the task's log.")
    opened = _open_tidemark()
    reason = classify(cause)
    slot = open_slot(opened, pipeline, context)
    if slot is not None and not reason.waits:
        reason = checkpoints.abort(opened, pipeline, slot, cause) or reason
    observe(opened, pipeline)
    _log.error("%s of %s failed for good with %s: %s", slot or "the plan", pipeline, reason.value, cause)
    keep_reason(context, reason)
    if slot is not None and reason.waits:
        keep_count(
            context, checkpoints.count_failures(opened, pipeline) + 1, tolerable
        )  # counts this failure, whose plan is not aborted
        return
    failed = failed_slot(opened, pipeline, context)
    keep_count(context, 0 if failed is None else checkpoints.count_failures(opened, pipeline, failed), tolerable)


def keep_reason(context: Context, reason: "FailureReason") -> None:
    """Stores the reason on the task, where Airflow shows it under "Storage"."""
    store = context.get("task_state_store")
    if store is not None:
        store.set("failure_reason", reason.value)


def keep_count(context: Context, in_a_row: int, tolerable: int) -> None:
    """Stores on the task how many checkpoints have failed in a row; the plugin uses the count to pause the DAG.

    A task cannot pause it, because only the scheduler may write to Airflow's database. 0 = the failure does not count.
    """
    store = context.get("task_state_store")
    if store is not None:
        store.set(FAILURE_COUNT, {"in_a_row": in_a_row, "tolerable": tolerable})


def keep_announced(pipeline: str, context: Context) -> None:
    """Callback of tasks that add events, for when they have succeeded: the next run does not add them again."""
    from tidemark.operations.runs import record_announced

    ti = context["ti"]
    names = ti.xcom_pull(task_ids=ti.task_id, key=PUBLISHED) or (ti.xcom_pull(task_ids=ti.task_id) or {}).get(
        "completed"
    )
    if names:
        record_announced(_open_tidemark(), pipeline, max(int(name[4:]) for name in names))


def abort_after_timeout(pipeline: str, context: Context) -> None:
    """Callback of the DAG for when a run fails: if the run timed out, the plan that it left open expires."""
    from tidemark.operations import checkpoints

    if context.get("reason") != "timed_out":
        return
    opened = _open_tidemark()
    pending = checkpoints.find_pending(opened, pipeline)
    if pending is None or pending.origin != context.get("run_id"):
        _log.info("%s: the run timed out and left no plan open", pipeline)
        return
    abort_expired(opened, pipeline, str(pending.slot))


def abort_expired(opened: "TidemarkContext", pipeline: str, slot: str) -> CheckpointExpiredError:
    """Aborts a plan with EXPIRED.

    Returns:
        The error to raise.
    """
    from tidemark.operations import checkpoints

    error = CheckpointExpiredError(
        f"checkpoint of {pipeline} at {slot} did not end within its timeout",
        safe="every completed checkpoint is intact; nothing was published.",
        next="raise checkpoint_timeout or lower max_records; the next run plans the same offsets again.",
    )
    reason = checkpoints.abort(opened, pipeline, slot, error)
    observe(opened, pipeline)
    _log.error("%s: %s", reason.value if reason else "too late to abort", error)
    return error


def open_slot(opened: "TidemarkContext", pipeline: str, context: Context) -> str | None:
    """Returns the slot of the plan in progress, if this DAG run made or adopted it."""
    from tidemark.operations import checkpoints

    pending = checkpoints.find_pending(opened, pipeline)
    if pending is None:
        return None
    planned: dict[str, Any] = context["ti"].xcom_pull(task_ids=PLAN) or {}
    ours = pending.origin == context["run_id"] or str(pending.slot) == planned.get("slot")
    return str(pending.slot) if ours else None


def failed_slot(opened: "TidemarkContext", pipeline: str, context: Context) -> str | None:
    """Returns the slot of the last aborted plan, if this DAG run made or adopted it."""
    from tidemark.operations import checkpoints

    slot = refused_slot(opened, pipeline)
    if slot is None:
        return None
    planned: dict[str, Any] = context["ti"].xcom_pull(task_ids=PLAN) or {}
    ours = checkpoints.get_plan(opened, pipeline, slot).origin == context["run_id"] or slot == planned.get("slot")
    return slot if ours else None


def refused_slot(opened: "TidemarkContext", pipeline: str) -> str | None:
    """Returns the slot of the last aborted plan, which the gate refused, unless a newer plan exists."""
    from tidemark.coordinator.records.states import NothingOpen

    found = opened.coordinator(pipeline).open_plan()
    return str(found.aborted[-1].slot) if isinstance(found, NothingOpen) and found.aborted else None


def _open_tidemark() -> "TidemarkContext":
    from tidemark.airflow.checkpoint_tasks import open_tidemark

    return open_tidemark()
