"""Imports rows from outside a timeline, for an import or a patch, into a `base` table of their own.

They take the path of a compaction, because there is no third writer: files, one commit, and a record of it. The table
is named by an allocated id, so no other process writes to it and no fence is needed.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.commits import CommitRequest
from tidemark.model.checkpoint.manifest import WrittenRun
from tidemark.model.checkpoint.segments import Segment, StateHandle
from tidemark.model.checkpoint.store_objects import CompactionRecord
from tidemark.model.schema.operator_schema import OperatorSchema, run_columns
from tidemark.ports import StateTables


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentImport:
    """One operator's rows to import.

    Attributes:
        kind: kind of the job that imports them, which names the steps: `import`, `patch`.
        pipeline: its name.
        timeline: the timeline that the rows begin or continue.
        uid: their uid at the source.
        number: the checkpoint id that their table is named by.
        job: the job that imports them.
        folder: folder of the operator's tables, relative to the warehouse.
        schema: schema of the rows.
        level: level of the segment that they become.
        after: id of the checkpoint after which they are ordered.
    """

    kind: str
    pipeline: str
    timeline: str
    uid: str
    number: int
    job: str
    folder: str
    schema: OperatorSchema
    level: int
    after: int

    @property
    def table(self) -> str:
        """The table of the rows, relative to the warehouse."""
        return f"{self.folder}/base"

    @property
    def files(self) -> str:
        """The folder of the rows' files, relative to the warehouse."""
        return f"{self.table}/{self.job}"

    def request(self, run: WrittenRun, write_id: str) -> CommitRequest:
        """The commit of the table's first version."""
        return CommitRequest(
            table=self.table,
            parent=None,
            files=run.files,
            rows=run.rows,
            level=self.level,
            checkpoint=self.number,
            after=self.after,
            schema=run_columns(self.schema),
            write_id=write_id,
            metadata={
                "tidemark_pipeline": self.pipeline,
                "tidemark_timeline": self.timeline,
                "tidemark_uid": self.uid,
                "tidemark_job": self.job,
            },
            app=(f"{self.pipeline}/{self.timeline}/{self.uid}/base", self.number * 2**20),
        )


@dataclass(frozen=True, kw_only=True)
class SegmentImporter:
    """Imports rows.

    Attributes:
        coordinator: of the pipeline; its listener is called at steps `<kind>.files`, `.commit` and `.record`.
        tables: commits to tables.
    """

    coordinator: CheckpointCoordinator
    tables: StateTables

    def import_segment(self, rows: SegmentImport, write: Callable[[str], WrittenRun]) -> Segment:
        """Writes, commits and records an operator's rows.

        Args:
            rows: the rows.
            write: writes the files, given their folder relative to the warehouse.

        Raises:
            TidemarkError: as `write`, the tables and the store raise; no object names the written files.
        """
        c, kind = self.coordinator, rows.kind
        c.listener(f"{kind}.files", "before")
        run = write(rows.files)
        c.listener(f"{kind}.files", "after")
        request = rows.request(run, c.write_ids())
        c.listener(f"{kind}.commit", "before")
        done = self.tables.commit(request, _Unfenced())
        self.tables.make_durable([done.commit], [rows.files])
        c.listener(f"{kind}.commit", "after")
        job = f"{rows.uid}.{rows.number}.{request.write_id}"
        record = CompactionRecord(
            uid=rows.uid,
            job=job,
            checkpoint=rows.number,
            timeline=rows.timeline,
            input=StateHandle(),
            output=StateHandle((done.segment,)),
            commits=(done.commit,),
            write_id=request.write_id,
        )
        c.listener(f"{kind}.record", "before")
        c.objects.put(keys.compaction_key(rows.uid, job), record)
        c.listener(f"{kind}.record", "after")
        return done.segment


class _Unfenced:
    """The fence of a table that no other process writes to."""

    def check(self) -> None:
        """Never raises."""
