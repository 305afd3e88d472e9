"""Stops and resumes a pipeline: last checkpoint → durable pin → stop record, which every plan obeys.

The pipeline runs until the stop record is in place, and every failure says so; from then on no plan is made. If a call
is interrupted, a repetition continues where it ended.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.records.states import OpenPlan, SealedPlan
from tidemark.coordinator.records.timelines import Stops
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
    """

    record: StopRecord
    savepoint: SavepointRecord | None = None
    in_progress: str | None = None
    followed_by: str | None = None


@dataclass(frozen=True, slots=True)
class Stopping:
    """Stops and resumes one pipeline."""

    coordinator: CheckpointCoordinator

    def plan(self, request: SavepointRequest | None = None) -> dict[str, object]:
        """Returns whether the pipeline is stopped, its newest checkpoint, and one in progress; writes nothing.

        Raises:
            ConflictError: it is stopped already without this savepoint, or the name is taken.
        """
        standing, newest = self._stops.current(), next(self.coordinator.checkpoints(), None)
        if standing is not None and request is not None:
            self._repeat_stop(standing, request)
        taken = None if request is None else Savepoints(self.coordinator).find(request.name)
        if standing is None and taken is not None and (newest is None or taken.checkpoint != newest.id):
            raise ConflictError(
                f"savepoint {taken.name!r} exists already and pins {taken.checkpoint_name}",
                safe=_RUNS_ON,
                next="choose another name.",
            )
        found = self.coordinator.open_plan()
        return {
            "stopped": standing is not None,
            "why": None if standing is None else standing.why,
            "drained": standing is not None and standing.drained,
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

    def stop_with_savepoint(self, request: SavepointRequest, why: str, complete: Callable[[], Checkpoint]) -> Stopped:
        """Completes a last checkpoint, pins it, then stops.

        Args:
            request: the savepoint; it pins the checkpoint that is completed here.
            why: the reason, for people.
            complete: completes one checkpoint, as any run does.

        Raises:
            ConflictError: the name is taken, or the pipeline is stopped already without this savepoint.
            TidemarkError: as `complete` raises. In every case the pipeline continues to run, and the error says so.
        """
        standing = self._stops.current()
        if standing is not None:
            return self._repeat_stop(standing, request)
        with self._running_on():
            pinned = self._make_savepoint(replace(request, origin=STOP), complete)
            record = self._record(why, savepoint=pinned.name, drained=pinned.drained)
            return self._result(self._put_record(record))

    def resume(self, why: str, *, force: bool = False) -> StopRecord | None:
        """Allows plans to be made again; None if the pipeline was not stopped.

        Raises:
            ConflictError: the pipeline was drained, and `force` is not given.
        """
        standing = self._stops.current()
        if standing is None:
            return None
        if standing.drained and not force:
            raise self._drained(standing.savepoint)
        return self._put_record(replace(self._record(why), stopped=False))

    @property
    def _stops(self) -> Stops:
        return Stops(self.coordinator.objects)

    def _make_savepoint(self, request: SavepointRequest, complete: Callable[[], Checkpoint]) -> SavepointRecord:
        savepoints, listener = Savepoints(self.coordinator), self.coordinator.listener
        found = savepoints.find(request.name)
        if found is None:
            listener("last_checkpoint", "before")
            last = complete()
            listener("last_checkpoint", "after")
            return savepoints.create(replace(request, checkpoint=last.id))
        newest = next(self.coordinator.checkpoints(), None)
        # The pin of an earlier call that died before it could stop: still valid if nothing was completed since.
        return savepoints.create(replace(request, checkpoint=None if newest is None else newest.id))

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
        newest = next(self.coordinator.checkpoints(), None)
        later = pinned is not None and newest is not None and newest.id > pinned.checkpoint
        return Stopped(
            record=record,
            savepoint=pinned,
            in_progress=found.plan.name if isinstance(found, OpenPlan | SealedPlan) else None,
            followed_by=newest.plan.name if newest is not None and later else None,
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
        into = "" if savepoint is None else f" into savepoint {savepoint}"
        return ConflictError(
            f"the pipeline was drained{into}: it was meant to end",
            safe="it stays stopped.",
            next=f"to continue all the same: tidemark resume {self.coordinator.name} --force",
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
            return _RUNS_ON if self._stops.current() is None else "the pipeline is stopped"
        except StoreError:
            return "whether the pipeline is stopped is not known, because the store does not answer"
