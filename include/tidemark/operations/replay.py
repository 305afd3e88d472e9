"""Replays a checkpoint from its parent into a scratch folder, and compares the states."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidemark.context import Context
from tidemark.coordinator.checkpoints.job import both_listeners, ignore_step
from tidemark.coordinator.records.released_checkpoints import usable
from tidemark.coordinator.records.schema_book import StoredSchemas
from tidemark.coordinator.records.tombstones import read_release
from tidemark.declare.pipeline import Pipeline
from tidemark.declare.sources import KafkaSource
from tidemark.errors import DataLostError, ReleasedError, StoreError, UsageError
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.schema.operator_schema import with_state
from tidemark.operations import reads
from tidemark.ports import Attempt, StartedCheck, StepListener

if TYPE_CHECKING:
    from tidemark.readers.state_hash import StateHash

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedState:
    """One operator's state in the manifest and as it was replayed.

    Attributes:
        uid: the operator.
        recorded: hash of the manifest's state.
        replayed: hash of the replayed state.
        differing: the first keys whose exact fields differ, or that one of the states lacks; each as column → value.
    """

    uid: str
    recorded: "StateHash"
    replayed: "StateHash"
    differing: tuple[dict[str, object], ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether the hashes are equal."""
        return self.recorded.sha256 == self.replayed.sha256


class Rehearsal:
    """An attempt that cannot be revoked and seals nothing; implements `ports.Attempt`.

    Its plan is that of a completed checkpoint, except where it writes: everything goes below one scratch folder.
    """

    def __init__(self, plan: CheckpointPlan, scratch: str) -> None:
        tables = {uid: f"{scratch}/state/{uid}/{plan.slot.timeline}-1" for uid in plan.tables}
        # The pipeline's name is the root of dead letters; the plan names the sinks, and nothing is sent twice.
        self._plan = replace(plan, pipeline=scratch, tables=tables, sinks={})

    @property
    def plan(self) -> CheckpointPlan:
        """The replayed plan."""
        return self._plan

    @property
    def number(self) -> int:
        """Always the number of the first attempt."""
        return 1

    def check(self) -> None:
        """Never raises."""

    def start_check(self) -> StartedCheck:
        """Returns a check that is answered, see `settle`."""
        return self

    def is_answered(self) -> bool:
        """Always, because nothing is read."""
        return True

    def settle(self) -> None:
        """Never raises: no process revokes a replay."""

    def seal(self, sealed: Sealed) -> None:
        """Does nothing: no result is published."""


def replay(
    context: Context, name: str, checkpoint_id: int, *, force: bool = False, listener: StepListener = ignore_step
) -> list[ReplayedState]:
    """Repeats a checkpoint by its own plan and compares the resolved states, operator by operator.

    Ranges, input handles, logical time and watermark are those of the manifest; gate and sinks are skipped.

    Args:
        context: of this process.
        name: the pipeline.
        checkpoint_id: a completed checkpoint.
        force: replay it although the current code is not the code that planned it.
        listener: called at every step, for progress.

    Raises:
        NotFoundError: no such pipeline or checkpoint.
        UsageError: other code planned it.
        DataLostError: Kafka no longer has all of its records.
        TidemarkError: as the steps raise.
    """
    found, pipeline = reads.get_checkpoint(context, name, checkpoint_id), context.pipeline(name)
    _refuse_released_input(context, name, found)
    if found.plan.fingerprint != pipeline.fingerprint and not force:
        raise UsageError(
            f"other code planned {found.plan.name} (fingerprint {found.plan.fingerprint[:12]},"
            f" now {pipeline.fingerprint[:12]}), so a difference would prove nothing",
            next="check out the earlier code, or compare anyway with --force.",
        )
    ungated = _with_its_schemas(context, replace(pipeline, gate=None, max_dead_letters=1.0), found)
    try:
        with context.warehouse.scratch(name) as scratch:
            rehearsal = Rehearsal(found.plan, scratch)
            sealed = rehearse(context, ungated, rehearsal, both_listeners(listener, context.listener))
            again = replace(found, plan=rehearsal.plan, sealed=sealed)
            return [_compared(context, found, again, uid) for uid in with_state(found.plan.schemas)]
    except DataLostError as error:
        raise DataLostError(
            f"{found.plan.name} cannot be replayed: {error.what}",
            safe=f"{found.plan.name} itself is intact; nothing was written.",
            next=f"tidemark checkpoint list {name}    (replay a later one, whose records Kafka still has).",
        ) from error


def _with_its_schemas(context: Context, pipeline: Pipeline, found: Checkpoint) -> Pipeline:
    """Returns the pipeline with formats that decode by stored schemas; ids that were unknown then are still unknown."""
    if not any(source.format.needs_schemas_of for source in pipeline.inputs.values()):
        return pipeline
    stored = StoredSchemas(context.coordinator(pipeline.name).objects)

    def bound(source: KafkaSource) -> KafkaSource:
        return replace(source, format=stored.bind(source.format, found.sealed.facts))

    return replace(
        pipeline,
        source=None,
        sources={name: bound(source) for name, source in pipeline.sources.items()},
        broadcast=[
            replace(b, source=bound(b.source)) if isinstance(b.source, KafkaSource) else b for b in pipeline.broadcast
        ],
    )


def _refuse_released_input(context: Context, name: str, found: Checkpoint) -> None:
    """Refuses a replay whose input is gone: it reads the parent's state, whose files may be deleted with the parent.

    Raises:
        ReleasedError: the input is gone.
    """
    coordinator = context.coordinator(name)
    if found.plan.parent is None or not any(found.plan.handles.values()):
        return
    parent = coordinator.timelines.checkpoint(found.plan.parent)
    if read_release(coordinator.objects, parent.plan.name) is None:
        return
    try:
        whole = all(context.files_exist(handle) for handle in found.plan.handles.values())
    except StoreError:
        whole = False
    if whole:
        return
    try:
        usable(coordinator.timelines, parent)
    except ReleasedError as error:
        raise ReleasedError(
            f"{found.plan.name} cannot be replayed: its input state is gone: {error.what}",
            safe=f"{found.plan.name} itself is intact; nothing was written.",
            next=error.next,
        ) from error


def rehearse(context: Context, pipeline: Pipeline, attempt: Attempt, listener: StepListener) -> Sealed:
    """Executes an attempt in a Spark session of its own."""
    with context.session(f"{attempt.plan.pipeline}/replay", 1, attempt.plan.rows_at_most) as spark:
        return context.job(pipeline, spark, listener).execute(attempt)


def _compared(context: Context, found: Checkpoint, again: Checkpoint, uid: str) -> ReplayedState:
    from tidemark.readers.checkpoint_reader import read_checkpoint
    from tidemark.readers.state_hash import first_differences, hash_of

    schema, warehouse = found.plan.schemas[uid], context.warehouse.root
    rows, others = read_checkpoint(warehouse, found, uid), read_checkpoint(warehouse, again, uid)
    made = ReplayedState(uid=uid, recorded=hash_of(schema, rows), replayed=hash_of(schema, others))
    if made.is_equal:
        return made
    return replace(made, differing=tuple(first_differences(schema, rows, others, _SHOWN)))
