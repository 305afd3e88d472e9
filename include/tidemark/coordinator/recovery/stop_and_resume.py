"""Stops and resumes a pipeline: last checkpoint → durable pin → stop record, which every plan obeys.

The pipeline runs until the stop record is in place, and every failure says so; from then on no plan is made. If a call
is interrupted, a repetition continues where it ended.

A drain closes all windows in one more checkpoint, behind which no plan is made either. The savepoint then pins the
checkpoint before it, from which a forced resume continues (adr/0061).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.records.states import OpenPlan, SealedPlan
from tidemark.coordinator.records.timelines import Stops
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.errors import ConflictError, StoreError, TidemarkError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import StopRecord
from tidemark.model.retention.savepoint import SavepointRecord, SavepointRequest
from tidemark.ports import PutOutcome

STOP = "stop"
"""Origin of savepoints that a stop makes."""
_RUNS_ON = "the pipeline is not stopped and runs on"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The result of a stop.

    Attributes:
        record: the stop record in effect.
        savepoint: the savepoint of the stop; None if it was stopped without one.
        in_progress: `chk-N` of a plan that was made before the stop and may still end; None = there is none.
        followed_by: `chk-N` of a checkpoint completed after the savepoint's; None = the savepoint's is the last one.
        drain: `chk-N` of the checkpoint that has closed all windows; None = there is none.
    """

    record: StopRecord
    savepoint: SavepointRecord | None = None
    in_progress: str | None = None
    followed_by: str | None = None
    drain: str | None = None


@dataclass(frozen=True, slots=True)
class Stopping:
    """Stops and resumes one pipeline."""

    coordinator: CheckpointCoordinator

    def plan(self, request: SavepointRequest | None = None) -> dict[str, object]:
        """Returns whether the pipeline is stopped, its newest checkpoint, and one in progress; writes nothing.

        Raises:
            ConflictError: it is stopped already without this savepoint, or the name is taken.
        """
        standing, newest = self._stops.current(), self._newest
        drain = self.drain
        if standing is not None and request is not None:
            self._repeat_stop(standing, request)
        taken = None if request is None else Savepoints(self.coordinator).find(request.name)
        last = None if newest is None else newest.id if drain is None else drain.plan.parent
        if standing is None and taken is not None and taken.checkpoint != last:
            raise _taken(taken, safe=_RUNS_ON)
        found = self.coordinator.open_plan()
        return {
            "stopped": standing is not None,
            "why": None if standing is None else standing.why,
            "drained": drain is not None or (standing is not None and standing.drained),
            "newest": None if newest is None else newest.plan.name,
            "in_progress": found.plan.name if isinstance(found, OpenPlan | SealedPlan) else None,
        }

    def stop(self, why: str) -> Stopped:
        """Stops without a savepoint; a pipeline that is stopped already stays as it is.

        Raises:
            StoreError: the stop was not recorded.
        """
        standing = self._stops.current()
        if standing is not None:
            return self._result(standing)
        with self._running_on():
            return self._result(self._put_record(self._record(why)))

    def stop_with_savepoint(
        self,
        request: SavepointRequest,
        why: str,
        complete: Callable[[], Checkpoint],
        close: Callable[[], Checkpoint] | None = None,
    ) -> Stopped:
        """Completes a last checkpoint, pins it, then stops.

        Args:
            request: the savepoint; it pins the checkpoint that is completed here.
            why: the reason, for people.
            complete: completes one checkpoint, as any run does.
            close: then completes checkpoints up to one that drains; None = no windows have to be closed.

        Raises:
            ConflictError: the name is taken, or the pipeline is stopped already without this savepoint.
            TidemarkError: as `complete` raises. In every case the pipeline continues to run, and the error says so.
        """
        standing = self._stops.current()
        if standing is not None:
            return self._repeat_stop(standing, request)
        with self._running_on():
            last = self._last_checkpoint(request, complete, close)
            pinned = Savepoints(self.coordinator).create(replace(request, origin=STOP, checkpoint=last))
            record = self._record(why, savepoint=pinned.name, drained=pinned.drained)
            return self._result(self._put_record(record))

    def resume(
        self, why: str, *, force: bool = False, go_back: Callable[[RestoreRequest], object] | None = None
    ) -> StopRecord | None:
        """Allows plans to be made again; None if the pipeline was not stopped.

        Args:
            why: the reason, for people.
            force: also if it was drained.
            go_back: restores the checkpoint before a drain; None = without the checks of `tidemark restore`.

        Raises:
            ConflictError: the pipeline was drained, and `force` is not given.
        """
        standing, drain = self._stops.current(), self.drain
        if standing is None and drain is None:
            return None
        if not force and (drain is not None or (standing is not None and standing.drained)):
            raise self._drained(None if standing is None else standing.savepoint)
        if drain is not None:
            wanted = RestoreRequest(checkpoint=drain.plan.parent, restore_sinks=True, note=why)
            (go_back or self._go_back)(wanted)
        return self._put_record(replace(self._record(why), stopped=False))

    def _go_back(self, wanted: RestoreRequest) -> None:
        Recovery(coordinator=self.coordinator).restore(wanted.find_restore_point(self.coordinator))

    @property
    def drain(self) -> Checkpoint | None:
        """The newest checkpoint, if it has closed all windows: then nothing is planned behind it."""
        newest = self._newest
        return newest if newest is not None and newest.plan.drains else None

    @property
    def _newest(self) -> Checkpoint | None:
        return next(self.coordinator.checkpoints(), None)

    @property
    def _stops(self) -> Stops:
        return Stops(self.coordinator.objects)

    def _last_checkpoint(
        self, request: SavepointRequest, complete: Callable[[], Checkpoint], close: Callable[[], Checkpoint] | None
    ) -> int | None:
        """Makes the last checkpoint, and returns the id of the one that the savepoint pins."""
        listener, drain = self.coordinator.listener, self.drain
        found = Savepoints(self.coordinator).find(request.name)
        if drain is not None and request.drained:
            return drain.plan.parent  # the drain of an earlier call that died before it could stop
        if found is not None and close is not None:
            raise _taken(found)
        if found is not None:
            # The pin of an earlier call that died before it could stop: still valid if nothing was completed since.
            newest = self._newest
            return None if newest is None else newest.id
        listener("last_checkpoint", "before")
        last: int | None = complete().id
        listener("last_checkpoint", "after")
        if close is not None:
            listener("drain", "before")
            last = close().plan.parent
            listener("drain", "after")
        return last

    def _record(self, why: str, *, savepoint: str | None = None, drained: bool = False) -> StopRecord:
        return StopRecord(
            stopped=True,
            why=why,
            at_ms=self.coordinator.clock.now_ms(),
            write_id=self.coordinator.write_ids(),
            savepoint=savepoint,
            drained=drained,
        )

    def _put_record(self, record: StopRecord) -> StopRecord:
        listener = self.coordinator.listener
        listener(STOP, "before")
        number, _ = self._stops.series.newest()
        if self._stops.series.put(number + 1, record) is PutOutcome.LOST:
            raise ConflictError(
                "another process stopped or resumed the pipeline at the same moment",
                safe="the other change is in effect.",
                next=f"tidemark checkpoint list {self.coordinator.name}, then try again.",
            )
        listener(STOP, "after")
        return record

    def _result(self, record: StopRecord) -> Stopped:
        found = self.coordinator.open_plan()
        pinned = None if record.savepoint is None else Savepoints(self.coordinator).find(record.savepoint)
        newest, drain = self._newest, self.drain
        later = pinned is not None and newest is not None and newest.id > pinned.checkpoint and drain is None
        return Stopped(
            record=record,
            savepoint=pinned,
            in_progress=found.plan.name if isinstance(found, OpenPlan | SealedPlan) else None,
            followed_by=newest.plan.name if newest is not None and later else None,
            drain=None if drain is None else drain.plan.name,
        )

    def _repeat_stop(self, standing: StopRecord, request: SavepointRequest) -> Stopped:
        if standing.savepoint == request.name:
            return self._result(standing)
        how = f"with savepoint {standing.savepoint}" if standing.savepoint else "without a savepoint"
        raise ConflictError(
            f"the pipeline is stopped already, {how}",
            safe="it stays stopped.",
            next=f"tidemark savepoint create {self.coordinator.name} NAME    (works on a stopped pipeline).",
        )

    def _drained(self, savepoint: str | None) -> ConflictError:
        into, drain = "" if savepoint is None else f" into savepoint {savepoint}", self.drain
        back = "" if drain is None else f"    (goes back to chk-{drain.plan.parent}, sinks included)"
        return ConflictError(
            f"the pipeline was drained{into}: it was meant to end",
            safe="it stays stopped.",
            next=f"to continue all the same: tidemark resume {self.coordinator.name} --force{back}",
        )

    @contextmanager
    def _running_on(self) -> Iterator[None]:
        """Adds to every failure inside the block whether the pipeline is still running."""
        try:
            yield
        except TidemarkError as error:
            error.safe = f"{self._whether_stopped()}; {error.safe}"
            raise

    def _whether_stopped(self) -> str:
        try:
            if self._stops.current() is not None:
                return "the pipeline is stopped"
            drain, found = self.drain, self.coordinator.open_plan()
        except StoreError:
            return "whether the pipeline is stopped is not known, because the store does not answer"
        if drain is not None:
            return f"{drain.plan.name} has drained the pipeline, so nothing is planned behind it"
        if isinstance(found, OpenPlan | SealedPlan) and found.plan.drains:
            abort = f"tidemark checkpoint abort {self.coordinator.name} {found.plan.name}"
            return f"{_RUNS_ON}, but the next run completes {found.plan.name}, which drains it, unless you type {abort}"
        return _RUNS_ON


def _taken(found: SavepointRecord, safe: str = "") -> ConflictError:
    return ConflictError(
        f"savepoint {found.name!r} exists already and pins {found.checkpoint_name}",
        safe=safe,
        next="choose another name.",
    )
