"""The verb that compacts: folds the runs of the newest checkpoint into `base`, beside whatever else goes on."""

from contextlib import ExitStack

from tidemark.coordinator.checkpoints.jobs import refuse_doomed
from tidemark.errors import NotFoundError
from tidemark.faults import no_crash
from tidemark.model.checkpoint import Checkpoint
from tidemark.model.compaction import Group, LevelPolicy, groups_of
from tidemark.model.records import CompactionRecord, JobRecord
from tidemark.model.segments import StateHandle
from tidemark.ports import CrashPoints, PutOutcome
from tidemark.wiring.core import Core, both
from tidemark.wiring.reads import schema_of
from tidemark.wiring.roots import random_id


class Compactions(Core):
    """Compacts completed checkpoints."""

    def compact(
        self, name: str, uid: str | None = None, *, full: bool = False, crash: CrashPoints = no_crash
    ) -> list[CompactionRecord]:
        """Compacts what is due in the newest checkpoint of the live timeline; the next plan adopts the records.

        Starts no Spark session where nothing is due. Holds no lock: checkpoints go on meanwhile.

        Args:
            name: the pipeline.
            uid: one operator; all of them without it.
            full: rewrite down to the deepest level, due or not.
            crash: told of every step.

        Raises:
            NotFoundError: no such pipeline or operator.
            ConflictError, StateOverflowError, StoreError, EngineError: as the steps raise them; no answer changes.
        """
        newest = next(self.coordinator(self.known(name)).checkpoints(), None)
        if newest is None:
            raise NotFoundError(f"{name} has no checkpoints yet", next=f"tidemark run {name}")
        uids = list(newest.plan.schemas) if uid is None else [schema_of(newest, uid).uid]
        made = (self._compact(name, newest, one, full, crash) for one in uids)
        return [record for record in made if record is not None]

    def groups(self, handle: StateHandle) -> list[Group]:
        """The groups of a handle, oldest first, read from the logs of its tables."""
        return groups_of(handle, self.tables.files_of)

    def _compact(
        self, name: str, newest: Checkpoint, uid: str, full: bool, crash: CrashPoints
    ) -> CompactionRecord | None:
        from tidemark.adapters.located import spark_root
        from tidemark.engine.compaction import CompactionTask, Compactor

        coordinator = self.coordinator(name)
        objects = coordinator.objects

        def put_job(key: str, record: JobRecord) -> PutOutcome:
            outcome = objects.put(key, record)
            refuse_doomed(coordinator, record.checkpoint)
            return outcome

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
        with ExitStack() as opened:
            compactor = Compactor(
                session=lambda: opened.enter_context(self.session(f"{name}/compaction/{random_id()}", 1)),
                warehouse=spark_root(self.root),
                arrow=self.arrow,
                tables=self.tables,
                clock=self.clock,
                write_ids=random_id,
                crash=both(crash, self.crash),
                put_job=put_job,
                put_record=objects.put,
            )
            return compactor.compact(task)
