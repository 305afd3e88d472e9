"""Rows that come from outside of a timeline, as an import's or a patch's: a `base` table of their own (design §5).

They take the path of a compaction, because there is no third writer: files, one commit, a record of it. The table is
named by an id that was taken, so nobody else writes there and no fence is needed.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.segments import Segment, StateHandle
from tidemark.model.checkpoint.store_objects import CompactionRecord
from tidemark.model.checkpoint.table_writes import CommitRequest, WrittenRun
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.ports import StateTables
from tidemark.sql.resolve import run_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """One operator's rows on their way.

    Attributes:
        kind: of the job that brings them, which names the steps: `import`, `patch`.
        pipeline: its name.
        timeline: which the rows begin, or go on.
        uid: that they had where they come from.
        number: the checkpoint id that their table is named by.
        job: that brings them.
        folder: of the operator's tables, relative to the warehouse.
        schema: of the rows.
        level: of the segment that they become.
        after: id of the checkpoint behind which they lie.
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
        """Of the rows, relative to the warehouse."""
        return f"{self.folder}/base"

    @property
    def files(self) -> str:
        """Folder of the rows' files, relative to the warehouse."""
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
class Bringer:
    """Brings rows in.

    Attributes:
        coordinator: of the pipeline; its listener is called at steps `<kind>.files`, `.commit` and `.record`.
        tables: where commits go.
    """

    coordinator: CheckpointCoordinator
    tables: StateTables

    def bring(self, brought: Brought, write: Callable[[str], WrittenRun]) -> Segment:
        """Writes, commits and records an operator's rows.

        Args:
            brought: which.
            write: writes the files, given their folder relative to the warehouse.

        Raises:
            TidemarkError: as `write`, the tables and the store raise; nothing names what was written.
        """
        c, kind = self.coordinator, brought.kind
        c.listener(f"{kind}.files", "before")
        run = write(brought.files)
        c.listener(f"{kind}.files", "after")
        request = brought.request(run, c.write_ids())
        c.listener(f"{kind}.commit", "before")
        done = self.tables.commit(request, _Unfenced())
        self.tables.make_durable([done.commit], [brought.files])
        c.listener(f"{kind}.commit", "after")
        job = f"{brought.uid}.{brought.number}.{request.write_id}"
        record = CompactionRecord(
            uid=brought.uid,
            job=job,
            checkpoint=brought.number,
            timeline=brought.timeline,
            input=StateHandle(),
            output=StateHandle((done.segment,)),
            commits=(done.commit,),
            write_id=request.write_id,
        )
        c.listener(f"{kind}.record", "before")
        c.objects.put(keys.compaction_key(brought.uid, job), record)
        c.listener(f"{kind}.record", "after")
        return done.segment


class _Unfenced:
    """The fence of a table that is nobody else's."""

    def check(self) -> None:
        """Never raises."""
