"""Compaction of sinks and dead letters: merges the files of many checkpoints into large ones; see `compactor`."""

from dataclasses import dataclass
from typing import ClassVar

from tidemark.coordinator.checkpoints.compactor import Compactor, DueCompaction
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.row_tables import RowTable
from tidemark.model.checkpoint.store_objects import CompactionRecord
from tidemark.model.state.compaction import groups_of
from tidemark.model.state.row_compaction import RowPolicy, due_rows
from tidemark.ports import RowFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCompactor(Compactor):
    """Compacts sinks and dead letters that are due, without Spark; the steps are `compact_rows.job` and so on.

    Attributes:
        files: merges files.
    """

    verb: ClassVar[str] = "compact_rows"
    files: RowFiles

    def compact(self, found: Checkpoint, table: RowTable, policy: RowPolicy) -> CompactionRecord | None:
        """Compacts one sink, or the dead letters of one operator; returns None if nothing is due.

        Args:
            found: the completed checkpoint.
            table: one of its `row_tables`.
            policy: which files are merged, and when.

        Raises:
            ConflictError: another compaction committed at the same time.
            StoreError: raised by the steps. Nothing refers to the written files in that case.
        """
        wanted = due_rows(table.handle, groups_of(table.handle, self.tables.files_of), policy)
        if wanted is None:
            return None
        files = [(group.segment, file) for group in wanted.merged for file in group.files]
        rows_per_file = policy.rows_per_file(wanted.merged)
        due = DueCompaction(
            pipeline=found.plan.pipeline,
            timeline=found.plan.slot.timeline,
            checkpoint=found.id,
            revision=found.revision,
            owner=table.owner,
            uid=table.uid,
            base=table.base,
            columns=table.stored,
            handle=table.handle,
            wanted=wanted,
            merge=lambda folder: self.files.merge(table, files, folder, rows_per_file),
        )
        return self._carry_out(due)
