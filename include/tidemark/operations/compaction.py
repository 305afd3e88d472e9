"""Compacts the runs of the newest checkpoint into `base` while checkpoints continue; describes the levels."""

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from tidemark.context import Context
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.job import both_listeners, ignore_step
from tidemark.coordinator.checkpoints.jobs import refuse_doomed
from tidemark.coordinator.checkpoints.row_compactor import RowCompactor
from tidemark.coordinator.checkpoints.state_compactor import CompactionTask, StateCompactor
from tidemark.environment import random_id
from tidemark.errors import NotFoundError, StoreError
from tidemark.model.checkpoint.manifest import Checkpoint, WrittenRun
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.row_tables import row_tables
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.checkpoint.store_objects import CompactionRecord, JobRecord
from tidemark.model.core.names import operator_of
from tidemark.model.state.compaction import Group, LevelMerge, LevelPolicy, groups_of
from tidemark.model.state.row_compaction import RowPolicy
from tidemark.operations.reads import schema_of
from tidemark.ports import PutOutcome, StepListener

if TYPE_CHECKING:
    from tidemark.answers.checkpoint_details import AdoptedCompaction, RowsPerFile, StateLayers


_NICENESS = 10
"""How far the priority is lowered, of 19: this process gets a tenth of the time of another one, if both need it."""
_IN_PROCESS = 16 * 2**30
"""Bytes of files that this process merges itself, some 20 MB of them per second and processor; Spark merges more."""


def yield_processors() -> None:
    """Lets all other processes of this machine go first, for the rest of this one, which only compacts.

    Checkpoints continue meanwhile, and their client and Spark may need the processors.
    """
    with suppress(AttributeError, OSError):  # not on every system, or the priority is lower already
        os.nice(_NICENESS)


def compact(
    context: Context, name: str, uid: str | None = None, *, full: bool = False, listener: StepListener = ignore_step
) -> list[CompactionRecord]:
    """Compacts the tables that are due in the live timeline's newest checkpoint; the next plan adopts the records.

    These are the runs of the state, and the files of sinks and dead letters. Holds no lock: checkpoints continue in the
    meantime. Spark is needed only where it has to merge the state.

    Args:
        context: of this process.
        name: the pipeline.
        uid: one operator, with its sink and its dead letters; by default all of them.
        full: rewrite down to the deepest level, due or not.
        listener: called at every step.

    Raises:
        NotFoundError: no such pipeline or operator.
        ConflictError, StateOverflowError, StoreError, EngineError: as the steps raise them; no result changes.
    """
    newest = next(context.coordinator(context.require_pipeline(name)).checkpoints(), None)
    if newest is None:
        raise NotFoundError(f"{name} has no checkpoints yet", next=f"tidemark run {name}")
    uids = list(newest.plan.schemas) if uid is None else [schema_of(newest, uid).uid]
    # Rows first: they never need Spark, which may be away.
    compactor, policy = _row_compactor(context, name, listener), RowPolicy.everything() if full else RowPolicy()
    tables = [t for t in row_tables(newest) if operator_of(t.uid, newest.plan.schemas) in uids]
    rows = [compactor.compact(newest, table, policy) for table in tables]
    stateful = [one for one in uids if newest.plan.schemas[one].keeps_state]
    states = [_compact(context, name, newest, one, full, listener) for one in stateful]
    return [record for record in (*states, *rows) if record is not None]


def read_groups(context: Context, handle: StateHandle) -> list[Group]:
    """The groups of a handle, oldest first, read from the logs of its tables."""
    return groups_of(handle, context.tables.files_of)


def _put_job(coordinator: CheckpointCoordinator, key: str, record: JobRecord) -> PutOutcome:
    outcome = coordinator.objects.put(key, record)
    refuse_doomed(coordinator, record.checkpoint)
    return outcome


def _row_compactor(context: Context, name: str, listener: StepListener) -> RowCompactor:
    from tidemark.engine.write.parquet_writer import written_run
    from tidemark.tables.row_files import ParquetRowFiles

    coordinator = context.coordinator(name)
    return RowCompactor(
        tables=context.tables,
        files=ParquetRowFiles(warehouse=context.warehouse.root, footers=written_run),
        clock=context.clock,
        write_ids=random_id,
        listener=both_listeners(listener, context.listener),
        put_job=partial(_put_job, coordinator),
        put_record=coordinator.objects.put,
    )


def _compact(
    context: Context, name: str, newest: Checkpoint, uid: str, full: bool, listener: StepListener
) -> CompactionRecord | None:
    coordinator = context.coordinator(name)
    task = CompactionTask(
        pipeline=name,
        timeline=newest.plan.slot.timeline,
        checkpoint=newest.id,
        schema=schema_of(newest, uid),
        handle=newest.handles[uid],
        now=newest.now,
        table=newest.plan.tables[uid],
        policy=LevelPolicy.everything() if full else LevelPolicy(),
        revision=newest.revision,
    )
    compactor = StateCompactor(
        merge=partial(_merge, context, name),
        tables=context.tables,
        clock=context.clock,
        write_ids=random_id,
        listener=both_listeners(listener, context.listener),
        put_job=partial(_put_job, coordinator),
        put_record=coordinator.objects.put,
    )
    return compactor.compact(task)


def _merge(context: Context, name: str, merge: LevelMerge) -> WrittenRun:
    """Merges levels in this process; with Spark, if only it can, or if there is so much that a cluster is faster."""
    if merge.schema.is_portable and merge.bytes <= _IN_PROCESS:
        from tidemark.engine.write.parquet_writer import written_run
        from tidemark.transfer.level_files import merge_levels

        return merge_levels(context.warehouse.root, merge, written_run)
    from tidemark.engine.state.resolve_sql import merge_levels as merge_with_spark

    with context.session(f"{name}/compaction/{random_id()}", 1, merge.rows) as session:
        return merge_with_spark(context.warehouse_of(session), merge)


def describe_layers(context: Context, found: Checkpoint, uid: str) -> "StateLayers":
    """The layers of one operator's state."""
    from tidemark.answers.checkpoint_details import StateLayers

    handle = found.handles[uid]
    groups = _find_groups(context, handle)
    levels = None if groups is None else [group.level for group in groups]
    return StateLayers(
        live_runs=None if levels is None else levels.count(0),
        deepest_level=None if levels is None else max(levels, default=0),
        run_rows=None if groups is None else _spread(groups, found.id),
        compaction=_describe_adopted(context, found, uid),
    )


def list_committed(context: Context, plan: CheckpointPlan, attempt: int) -> list[str]:
    """Operators whose run an attempt has committed so far, without those that write nothing."""
    from tidemark.storage.local_store import join_path
    from tidemark.tables.delta_reader import newest, written_by

    found = []
    for uid, table in plan.tables.items():
        opened = newest(join_path(context.warehouse.root, f"{table}/runs"))
        if opened is not None and written_by(opened, plan.id, attempt):
            found.append(uid)
    return found


def _describe_adopted(context: Context, found: Checkpoint, uid: str) -> "AdoptedCompaction | None":
    from tidemark.answers.checkpoint_details import AdoptedCompaction

    key = found.plan.adopted.get(uid)
    if key is None:
        return None
    record = context.coordinator(found.plan.pipeline).objects.read(CompactionRecord, key)
    if record is None:
        return None
    after = _find_groups(context, record.output)
    return AdoptedCompaction(
        record=key,
        checkpoint=f"chk-{record.checkpoint}",
        # Merged rows are listed under the newest checkpoint that they contain.
        written_bytes=after[-1].bytes if after else None,
        bytes_before=record.input.bytes,
        bytes_after=record.output.bytes,
        rows_before=record.input.rows,
        rows_after=record.output.rows,
    )


def _find_groups(context: Context, handle: StateHandle) -> list[Group] | None:
    try:
        return groups_of(handle, context.tables.files_of)
    except StoreError:
        return None  # a released checkpoint may have lost its tables


def _spread(groups: Sequence[Group], checkpoint: int) -> "RowsPerFile | None":
    """Rows per file of the run that a checkpoint wrote; None if it wrote none."""
    from tidemark.answers.checkpoint_details import RowsPerFile

    rows = [f.file.rows for g in groups if g.level == 0 and g.checkpoint == checkpoint for f in g.files]
    if not rows:
        return None
    return RowsPerFile(files=len(rows), min=min(rows), avg=round(sum(rows) / len(rows), 1), max=max(rows))
