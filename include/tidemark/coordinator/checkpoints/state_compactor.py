"""Compaction of states: merges levels of one completed checkpoint's handle into `base`; see `compactor`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from tidemark.coordinator.checkpoints.compactor import Compactor, DueCompaction
from tidemark.model.checkpoint.manifest import WrittenRun
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.checkpoint.store_objects import CompactionRecord
from tidemark.model.core.ttl import Now
from tidemark.model.schema.operator_schema import OperatorSchema, run_columns
from tidemark.model.state.closed_files import closed_groups, open_groups
from tidemark.model.state.compaction import Compaction, LevelMerge, LevelPolicy, due, groups_of


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTask:
    """One operator's handle in one completed checkpoint.

    Attributes:
        pipeline: name of the pipeline.
        timeline: timeline of the checkpoint.
        checkpoint: id of the checkpoint.
        schema: the stored schema, as in the manifest.
        handle: the state, as in the manifest.
        now: the clocks of the checkpoint.
        table: `<pipeline>/state/<uid>/<timeline>-<n>`, the folder that the plans of the timeline write to.
        policy: which levels are merged, and when.
        revision: revision of the manifest.
    """

    pipeline: str
    timeline: str
    checkpoint: int
    schema: OperatorSchema
    handle: StateHandle
    now: Now
    table: str
    policy: LevelPolicy = LevelPolicy()
    revision: int = 0

    @property
    def base(self) -> str:
        """The table to which compactions commit."""
        return f"{self.table}/base"

    @property
    def frontier(self) -> int | None:
        """The frontier of the operator in the checkpoint."""
        return self.now.frontiers.get(self.schema.uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCompactor(Compactor):
    """Compacts operators that are due; the steps are `compact.job` and so on.

    Attributes:
        merge: writes the merged rows, durably; called only if something is due.
    """

    verb: ClassVar[str] = "compact"
    merge: Callable[[LevelMerge], WrittenRun]

    def compact(self, task: CompactionTask) -> CompactionRecord | None:
        """Compacts one operator; returns None if nothing is due.

        Raises:
            StateOverflowError: merged state does not fit; the message names the key.
            ConflictError: another compaction committed at the same time.
            StoreError, EngineError: raised by the steps. Nothing refers to the written files in that case.
        """
        groups = groups_of(task.handle, self.tables.files_of)
        closed = closed_groups(task.schema, groups, task.frontier)
        wanted = due(task.schema, task.handle, groups, task.policy, closed)
        if wanted is None:
            return None
        found = DueCompaction(
            pipeline=task.pipeline,
            timeline=task.timeline,
            checkpoint=task.checkpoint,
            revision=task.revision,
            owner=task.schema.uid,
            uid=task.schema.uid,
            base=task.base,
            columns=run_columns(task.schema),
            handle=task.handle,
            wanted=wanted,
            is_deepest=wanted.is_deepest,
            merge=lambda folder: self.merge(_merge_of(task, wanted, folder)),
        )
        return self._carry_out(found)


def _merge_of(task: CompactionTask, wanted: Compaction, folder: str) -> LevelMerge:
    # Files whose windows have closed are not read. The groups that are kept decide that, too, if rows of them merge.
    still = open_groups(task.schema, (*wanted.kept, *wanted.merged), task.frontier)
    return LevelMerge(
        schema=task.schema,
        groups=tuple(group for group in still if group.checkpoint > wanted.cut),
        now=task.now,
        deepest=wanted.is_deepest,
        folder=folder,
        files=task.policy.files_for(wanted.merged),
    )
