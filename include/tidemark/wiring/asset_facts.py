"""The facts of an asset after a checkpoint, for those that it changed: what an event of Airflow carries."""

from collections.abc import Iterator, Mapping

from tidemark.model.checkpoint import Ack, Checkpoint
from tidemark.model.operator_state import OperatorState
from tidemark.model.segments import StateHandle
from tidemark.wiring.facts import iso

Facts = Mapping[str, object]


def changed_assets(made: Checkpoint) -> dict[str, Facts]:
    """The assets that a checkpoint changed, by name, each with facts of its own; JSON values only.

    State changes where a key or a list was touched, dead letters where a record was rejected, a sink where it got rows.
    A compaction that was adopted changes files, not what readers see, and is no change here.
    """
    plan = made.plan
    shared: Facts = {
        "id": plan.name,
        "pipeline": plan.pipeline,
        "timeline": plan.slot.timeline,
        "logical_time": iso(plan.logical_time_ms),
    }
    return {
        f"{plan.pipeline}/{name}": {**shared, **facts} for ack in made.sealed.acks for name, facts in _of(made, ack)
    }


def _of(made: Checkpoint, ack: Ack) -> Iterator[tuple[str, Facts]]:
    plan, uid = made.plan, ack.uid
    if ack.keys or ack.operator_state != plan.operator_states.get(uid, OperatorState()):
        state = {"uid": uid, "read": ack.read, "applied": ack.applied, "keys": ack.keys, "run_bytes": ack.run_bytes}
        yield f"state/{uid}", {**state, **_table(ack.handle)}
    if ack.dead_lettered:
        letters = {"uid": uid, "read": ack.read, "dead_lettered": ack.dead_lettered}
        yield f"dead_letters/{uid}", {**letters, **_table(ack.dead_letters)}
    sink = made.sinks.get(uid)
    if sink is not None and ack.sink != plan.sinks[uid].handle:
        yield f"sinks/{sink.name}", {"uid": uid, "emitted": ack.emitted, **_table(ack.sink)}


def _table(handle: StateHandle) -> Facts:
    """All rows and bytes, and the version that readers open of each table."""
    return {"rows": handle.rows, "bytes": handle.bytes, "versions": {s.path: s.version for s in handle}}
