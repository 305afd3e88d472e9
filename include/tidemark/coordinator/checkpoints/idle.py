"""Completes a plan that reads nothing, without an engine: an import or a patch has already made its state.

The plan's ranges end where they begin, so every process that executes it writes the same manifest.
"""

from dataclasses import replace

from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.records.states import Completed
from tidemark.model.checkpoint.manifest import (
    Ack,
    BatchFacts,
    Checkpoint,
    OutputAck,
    PendingCheckpoint,
    Sealed,
    Verdict,
)
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.segments import OperatorState


def completed_idle(coordinator: CheckpointCoordinator, plan: CheckpointPlan) -> Checkpoint | None:
    """Seals and publishes such a plan, or finishes what an earlier call left. None if the plan was aborted.

    Raises:
        BusyError, ConflictError, StoreError: as the steps raise them.
    """
    owned = coordinator.begin(plan)
    if isinstance(owned, OwnedAttempt):
        owned.seal(replace(_sealed(plan, owned.number), sealed_at_ms=owned.clock.now_ms()))
    done = coordinator.complete(plan)
    return done.checkpoint if isinstance(done, Completed) else None


def _sealed(plan: CheckpointPlan, attempt: int) -> Sealed:
    """The sealed candidate of an attempt that reads nothing."""
    pending = PendingCheckpoint(plan)
    for uid, handle in plan.handles.items():
        outputs = {output: OutputAck(sink=table.handle) for output, table in plan.sinks_of(uid).items()}
        first = outputs.pop(uid, OutputAck())
        pending.acknowledge(
            Ack(
                uid=uid,
                handle=handle,
                dead_letters=plan.dead_letters[uid],
                commits=(),
                read=0,
                applied=0,
                dead_lettered=0,
                keys=0,
                run_bytes=0,
                timings_ms={},
                sink=first.sink,
                operator_state=plan.operator_states.get(uid, OperatorState()),
                outputs=outputs,
            )
        )
    facts = BatchFacts.after(plan, records=0, size=0, seen={})
    return pending.seal(attempt=attempt, facts=facts, verdict=Verdict(), timings_ms={})
