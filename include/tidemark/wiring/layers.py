"""How the state of an operator lies on disk at a checkpoint: runs, levels, the compaction that was adopted (K3, K4)."""

from collections.abc import Sequence
from typing import Any

from tidemark.errors import StoreError
from tidemark.model.checkpoint import Checkpoint
from tidemark.model.compaction import Group, groups_of
from tidemark.model.plan import CheckpointPlan
from tidemark.model.records import CompactionRecord
from tidemark.model.segments import StateHandle
from tidemark.wiring.core import Core


class Layers(Core):
    """Reads the logs of the tables that a manifest names."""

    def layers(self, found: Checkpoint, uid: str) -> dict[str, Any]:
        """The layers of one operator's state; each member is None where the tables' logs are gone.

        Returns:
            `live_runs`, not compacted so far; `deepest_level`, 0 where there are runs only; `run_rows`, of the run that
            this checkpoint wrote: `files`, and `min avg max` of the rows in one, which is what one task of Spark wrote;
            `compaction`, where this checkpoint adopted one: its record, the checkpoint that it read, the bytes that it
            wrote, and bytes and rows of the state before and after.
        """
        handle = found.handles[uid]
        groups = self._groups(handle)
        levels = None if groups is None else [group.level for group in groups]
        return {
            "live_runs": None if levels is None else levels.count(0),
            "deepest_level": None if levels is None else max(levels, default=0),
            "run_rows": None if groups is None else _spread(groups, found.id),
            "compaction": self._compaction(found, uid),
        }

    def committed(self, plan: CheckpointPlan, attempt: int) -> list[str]:
        """Operators whose run an attempt has committed so far; one that writes nothing is not among them."""
        from tidemark.adapters.delta_reading import newest, written_by
        from tidemark.adapters.located import located

        found = []
        for uid, table in plan.tables.items():
            opened = newest(located(self.root, f"{table}/runs"))
            if opened is not None and written_by(opened, plan.id, attempt):
                found.append(uid)
        return found

    def _compaction(self, found: Checkpoint, uid: str) -> dict[str, Any] | None:
        key = found.plan.adopted.get(uid)
        record = None
        if key is not None:
            record = self.coordinator(found.plan.pipeline).objects.read(CompactionRecord, key)
        if record is None:
            return None
        after = self._groups(record.output)
        return {
            "record": key,
            "checkpoint": f"chk-{record.checkpoint}",
            # What is merged lies under the newest checkpoint that it contains.
            "written_bytes": after[-1].bytes if after else None,
            "bytes_before": record.input.bytes,
            "bytes_after": record.output.bytes,
            "rows_before": record.input.rows,
            "rows_after": record.output.rows,
        }

    def _groups(self, handle: StateHandle) -> list[Group] | None:
        try:
            return groups_of(handle, self.tables.files_of)
        except StoreError:
            return None  # a released checkpoint may have lost its tables


def _spread(groups: Sequence[Group], checkpoint: int) -> dict[str, Any] | None:
    """Rows per file of the run that a checkpoint wrote; None where it wrote none."""
    rows = [f.file.rows for g in groups if g.level == 0 and g.checkpoint == checkpoint for f in g.files]
    if not rows:
        return None
    return {"files": len(rows), "min": min(rows), "avg": round(sum(rows) / len(rows), 1), "max": max(rows)}
