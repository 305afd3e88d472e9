"""A pipeline of a warehouse: all that can be read, and the verbs that change it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidemark.api.checkpoints import CompletedCheckpoint, get_completed
from tidemark.api.dead_letters import PipelineDeadLetters
from tidemark.api.dry_run import DryRun
from tidemark.api.lookups import At, add_advice, restore_request
from tidemark.api.pipeline_reader import PipelineReader
from tidemark.api.publications import PipelinePublications
from tidemark.api.retention import PipelineRetention
from tidemark.api.savepoints import PipelineSavepoints
from tidemark.api.timelines import PipelineTimelines, Timeline
from tidemark.coordinator.recovery.backfill import BackfillRequest
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.coordinator.recovery.stop_and_resume import STOP
from tidemark.coordinator.retention.key_erasure import ErasureRequest
from tidemark.environment import random_id, user_name
from tidemark.errors import UsageError
from tidemark.model.checkpoint.codec import body_of
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import backfill, checkpoints, erasure, observability, timelines
from tidemark.operations import stop as stopping
from tidemark.operations.backfill import describe_differences, describe_outlook, describe_sinks
from tidemark.operations.erasure import describe_erasure
from tidemark.operations.timelines import describe_promote, describe_restore
from tidemark.ports import PlanRequest


@dataclass(frozen=True, slots=True, repr=False)
class PipelineHistory(PipelineReader):
    """A pipeline of a warehouse. Verbs that could lose something return a `DryRun`.

    `restore`, `fork`, `run`, `backfill` and `erase` look at the pipeline's file; `restore` and `backfill` also ask
    Kafka. `run`, `stop` with a savepoint, and the `commit()` of a backfill need Spark.

    >>> w["flights"]
    <pipeline flights>
    >>> w["flights"].latest()
    <chk-3 on t1: 2 records, completed>
    """

    @property
    def savepoints(self) -> PipelineSavepoints:
        """Names that pin checkpoints."""
        return PipelineSavepoints(self.context, self.name)

    @property
    def timelines(self) -> PipelineTimelines:
        """The live timeline, the ones it came from, and forks."""
        return PipelineTimelines(self.context, self.name)

    @property
    def publications(self) -> PipelinePublications:
        """Where states are published, for others to read."""
        return PipelinePublications(self.context, self.name)

    @property
    def dead_letters(self) -> PipelineDeadLetters:
        """Records that operators could not use, and their redrive."""
        return PipelineDeadLetters(self.context, self.name)

    @property
    def retention(self) -> PipelineRetention:
        """What goes and what stays."""
        return PipelineRetention(self.context, self.name)

    def restore(self, at: At | RestoreRequest) -> DryRun:
        """Plans a restore: a new timeline becomes live that begins at an older checkpoint. Copies and deletes nothing.

        Args:
            at: where to begin, as in `checkpoint`; or a `tidemark.api.RestoreRequest`, which has all options of
                `tidemark restore`.

        Returns:
            A dry run; `plan` names the checkpoints that are left behind and the offsets that are read again.

        Raises:
            NotFoundError, ReleasedError: no such restore point any more.
            ConflictError: the pipeline was drained with the savepoint, or another timeline has claimed it.
            DamagedError: the checkpoint is damaged; each bad file is named.
            IncompatibleStateError: the state does not fit the pipeline's file.
            BrokerError: Kafka does not answer.

        `commit()` raises DataLostError if Kafka lacks records that come after the checkpoint and the request does not
        accept that, and ConflictError if another restore or promote was first.

        >>> back = w["flights"].restore("winter")
        >>> back.plan["checkpoint"], back.plan["left"], back.plan["read_again"]
        ('chk-2', ['chk-3'], {'flights-0': {'start': 5, 'end': 7}})
        >>> back.commit()["timeline"]
        't2'
        >>> w["flights"].timelines.live()
        <timeline t2: live, 0 checkpoints>
        """
        request = restore_request(at)
        planned = body_of(describe_restore(timelines.plan_restore(self.context, self.name, request)))

        def execute() -> Mapping[str, Any]:
            plan, done = timelines.restore(self.context, self.name, request)
            facts = body_of(describe_restore(plan, done))
            return {"executed": True, "timeline": done.genesis.timeline, **facts}

        return DryRun("restore", {"executed": False, "timeline": None, **planned}, execute)

    def fork(self, timeline: str, at: At | RestoreRequest, *, note: str = "") -> Timeline:
        """Begins a timeline next to the live one, at once. It sends nothing to Kafka.

        Args:
            timeline: its name.
            at: where it begins, as in `restore`.
            note: its purpose.

        Raises:
            ConflictError: the name is taken.
            TidemarkError: as `restore`.

        >>> w["flights"].fork("bugfix", "winter", note="with next year's fares")
        <timeline bugfix: fork, 0 checkpoints>
        """
        request = restore_request(at)
        timelines.fork(self.context, self.name, timeline, replace(request, note=note or request.note))
        return self.timelines.get(timeline)

    def promote(self, timeline: str, *, discard: bool = False, send: bool = False) -> DryRun:
        """Plans to make a fork the live timeline. The other one ends and stays readable.

        Args:
            timeline: the fork.
            discard: promote it although it lacks what the live timeline has applied.
            send: send what the fork left in outboxes and the live timeline has not sent.

        Returns:
            A dry run; `plan` names the checkpoints that the fork replaces, and those that it lacks (`left`).

        Raises:
            NotFoundError: no such timeline.
            ConflictError: it is live already, or closed.

        `commit()` raises ConflictError if the fork lacks checkpoints, without `discard`.
        """
        with add_advice(".timelines.list() lists them."):
            planned = timelines.plan_promote(self.context, self.name, timeline)

        def execute() -> Mapping[str, Any]:
            done = timelines.promote(self.context, self.name, timeline, discard=discard, send=send)
            return {"executed": True, **body_of(describe_promote(timeline, done))}

        return DryRun("promote", {"executed": False, **body_of(describe_promote(timeline, planned))}, execute)

    def run(self, request: PlanRequest | None = None, *, timeline: str | None = None) -> CompletedCheckpoint | None:
        """Makes a checkpoint in this process, at once: finishes the open one, or plans a new one. Needs Spark.

        If bounds divide the records that wait, it makes as many as they need.

        Args:
            request: a `tidemark.api.PlanRequest`, which bounds the records; all new records without it.
            timeline: a fork; the live timeline without it.

        Returns:
            The newest checkpoint; None if a checkpoint covers the request already.

        Raises:
            StoppedError: the pipeline is stopped.
            BusyError: another process works on the timeline.
            GateFailedError, DataLostError, DeadLettersExceededError: the checkpoint was refused; older ones are intact.
            TidemarkError: any other failure; the same call repairs it.
        """
        wanted = request or PlanRequest(origin="python")
        try:
            named = replace(wanted, run=wanted.run or f"python/{random_id()}")
            made = checkpoints.make_checkpoints(self.context, self.name, named, timeline=timeline).checkpoint
        finally:
            observability.report_metrics(self.context, self.name)
        return None if made is None else get_completed(self.context, self.name, made.id)

    def stop(self, savepoint: str | None = None, *, drain: bool = False, note: str = "") -> dict[str, Any]:
        """Stops the pipeline, at once: no plan is made until `resume`. Unlike the command, it pauses no DAG.

        Args:
            savepoint: make a last checkpoint and pin it under this name first, which needs Spark.
            drain: stop for good, and close all windows: continuing from the savepoint has to be forced.
            note: why.

        Returns:
            JSON values: `tidemark stop --json`, without the paused DAGs.

        Raises:
            UsageError: `drain` without a savepoint.
            ConflictError: the savepoint's name is taken, or another process works on the pipeline; it runs on.

        >>> w["flights"].stop(note="new disks")["stopped"]
        True
        """
        if drain and savepoint is None:
            raise UsageError("drain without a savepoint", next="name the savepoint to stop with.")
        why = note or f"stopped by {user_name()}"
        if savepoint is None:
            done = stopping.stop(self.context, self.name, why)
            return dict(body_of(stopping.describe_stop(self.name, done)))
        request = SavepointRequest(name=savepoint, owner=user_name(), origin=STOP, note=note, drained=drain)
        done = stopping.stop_with_savepoint(self.context, self.name, request, why)
        return dict(body_of(stopping.describe_stop(self.name, done)))

    def resume(self, *, force: bool = False, note: str = "") -> bool:
        """Lets a stopped pipeline continue, at once; returns whether it was stopped. It unpauses no DAG.

        Args:
            force: also if it was drained.
            note: why.

        Raises:
            ConflictError: it was drained, and `force` is not given.

        >>> w["flights"].resume()
        False
        """
        return stopping.resume(self.context, self.name, note or f"resumed by {user_name()}", force=force) is not None

    def backfill(self, begins: At | BackfillRequest) -> DryRun:
        """Plans a backfill: repeat the checkpoints since a restore point with the current code, on a fork; compare.

        Args:
            begins: where it begins, as in `restore`; or a `tidemark.api.BackfillRequest`, which has all options. With
                `promotes` the fork becomes live in the end.

        Returns:
            A dry run; `plan` has the steps that are left. `commit()` needs Spark, repeats them in this process, and
            returns the differences per operator and sink as well. An interrupted one continues if you plan and commit
            it again.

        Raises:
            TidemarkError: as `restore`; DataLostError if Kafka no longer has all records.

        >>> w["flights"].backfill("winter").plan["left"]
        [['chk-3']]
        """
        request = begins if isinstance(begins, BackfillRequest) else BackfillRequest(begins=restore_request(begins))
        one = backfill.open_backfill(self.context, self.name, request)

        def execute() -> Mapping[str, Any]:
            promoted = one.begin().promoted
            for _ in backfill.repeat(self.context, one):
                pass
            found = backfill.compare(self.context, one)
            if request.promotes and not promoted:
                promoted = bool(backfill.promote(self.context, one))
            done = {**body_of(describe_outlook(one.outlook())), "promoted": promoted}
            skipped = list(found.not_compared) if found else []
            told = {"differences": body_of(describe_differences(found)), "not_compared": skipped}
            return {"executed": True, **done, **told, "sinks": body_of(describe_sinks(found))}

        return DryRun("backfill", {"executed": False, **body_of(describe_outlook(one.outlook()))}, execute)

    def erase(
        self, uid: str, *key: object, forever: bool = False, now: bool = False, owner: str | None = None
    ) -> DryRun:
        """Plans to erase a key from the live state and from every restore point, and from operators behind this one.

        Args:
            uid: the operator.
            *key: a value for each key column, in the order of `key_by`.
            forever: block future records of the key, too; otherwise, records that are read later count.
            now: delete old files at once, instead of with the next sweep.
            owner: the person who requests it; the user of this process without it.

        Returns:
            A dry run; `plan` names the restore points and files that hold the key, and the copies that would stay.

        Raises:
            NotFoundError: no checkpoint has the operator.
            UsageError: another number of values, or a value that does not fit its column.
            ConflictError: a restore point that holds the key is under a legal hold.

        `commit()` raises BusyError if another process works on a timeline of the pipeline.

        >>> erasure = w["flights"].erase("aircraft", "N619AA")
        >>> sorted(erasure.plan["restore_points"])
        ['chk-2', 'chk-3']
        >>> done = erasure.commit()
        >>> w["flights"].state("aircraft", at="winter").get("N619AA") is None
        True
        """
        request = ErasureRequest(
            uid=uid, key=tuple(map(str, key)), forever=forever, now=now, owner=owner or user_name()
        )

        def execute() -> Mapping[str, Any]:
            return dict(body_of(describe_erasure(erasure.erase(self.context, self.name, request))))

        planned = body_of(describe_erasure(erasure.plan_erasure(self.context, self.name, request)))
        return DryRun("erase", planned, execute)
