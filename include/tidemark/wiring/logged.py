"""What the verbs log for whoever watches: state that is left behind, failures that were recorded."""

import structlog

from tidemark.coordinator.checkpoints.failures import FailureReport
from tidemark.model.plan import CheckpointPlan

_log = structlog.get_logger("tidemark")


def report_left_behind(plan: CheckpointPlan) -> None:
    """Logs the state that a plan leaves behind (G11); it stays readable at older checkpoints."""
    for uid, handle in plan.left_behind.items():
        _log.warning(
            "state_left_behind",
            pipeline=plan.pipeline,
            checkpoint=plan.name,
            uid=uid,
            tables=[f"{s.path} version {s.version}" for s in handle],
            rows=handle.rows,
        )


def report_failure(report: FailureReport) -> None:
    """Logs a recorded failure; at `error` with `exceeded=True` once the tolerable number is passed (D6)."""
    _log.error(
        "checkpoint_failed",
        reason=report.failure.reason.value,
        message=report.failure.message.splitlines()[0],
        in_a_row=report.in_a_row,
        tolerable=report.tolerable,
        exceeded=report.exceeded,
        retry=report.retry,
    )
