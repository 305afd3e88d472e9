"""Stopping and resuming a pipeline (G3, G4): last checkpoint → durable pin → stop record, which every plan obeys.

Until the stop record is there the pipeline runs, and every failure says so; from then on no plan is made. A repetition
of an interrupted call goes on where that one ended.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.records.states import OpenPlan, SealedPlan
from tidemark.coordinator.records.stop_records import Stops
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
    """What a stop came to.

    Attributes:
        record: the stop record that stands.
        savepoint: what it was stopped with; None where it was stopped without.
        in_progress: `chk-N` of a plan that was made before the stop and is still allowed to end; None = nothing is.
        followed_by: `chk-N` of a checkpoint that was completed after the savepoint's; None = that is the last one.
    """

    record: StopRecord
    savepoint: SavepointRecord | None = None
    in_progress: str | None = None
    followed_by: str | None = None


@dataclass(frozen=True, slots=True)
class Stopping:
    """Stops and resumes one pipeline."""

    coordinator: CheckpointCoordinator

    def stop(self, why: str) -> Stopped:
        """Stops without a savepoint; a pipeline that is stopped already stays as it is.

        Raises:
            StoreError: the stop was not recorded.
        """
        standing = self._stops.standing()
        if standing is not None:
            return self._told(standing)
        with self._running_on():
            return self._told(self._recorded(self._record(why)))

    def stop_with_savepoint(self, request: SavepointRequest, why: str, complete: Callable[[], Checkpoint]) -> Stopped:
        """Completes a last checkpoint, pins it, then stops.

        Args:
            request: the savepoint; its checkpoint is the one that is completed here.
            why: for people.
            complete: completes one checkpoint, as any run does.

        Raises:
            ConflictError: the name is taken, or the pipeline is stopped already, without this savepoint.
            TidemarkError: as `complete` raises. In every case the pipeline runs on, and the error says so.
        """
        standing = self._stops.standing()
        if standing is not None:
            return self._again(standing, request)
        with self._running_on():
            pinned = self._pinned(replace(request, origin=STOP), complete)
            record = self._record(why, savepoint=pinned.name, drained=pinned.drained)
            return self._told(self._recorded(record))

    def resume(self, why: str, *, force: bool = False) -> StopRecord | None:
        """Lets plans be made again; None where the pipeline was not stopped.

        Raises:
            ConflictError: it was drained, and `force` is not given (G3).
        """
        standing = self._stops.standing()
        if standing is None:
            return None
        if standing.drained and not force:
            raise self._drained(standing.savepoint)
        return self._recorded(replace(self._record(why), stopped=False))

    @property
    def _stops(self) -> Stops:
        return Stops(self.coordinator.objects)

    def _pinned(self, request: SavepointRequest, complete: Callable[[], Checkpoint]) -> SavepointRecord:
        savepoints, listener = Savepoints(self.coordinator), self.coordinator.listener
        found = savepoints.find(request.name)
        if found is None:
            listener("last_checkpoint", "before")
            last = complete()
            listener("last_checkpoint", "after")
            return savepoints.create(replace(request, checkpoint=last.id))
        newest = next(self.coordinator.checkpoints(), None)
        # Ours, of a call that died before it could stop: still good if nothing was completed since.
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

    def _recorded(self, record: StopRecord) -> StopRecord:
        listener = self.coordinator.listener
        listener(STOP, "before")
        number, _ = self._stops.series.newest()
        if self._stops.series.put(number + 1, record) is PutOutcome.LOST:
            raise ConflictError(
                "somebody else stopped or resumed the pipeline at the same moment",
                safe="their word stands.",
                next=f"tidemark checkpoint list {self.coordinator.name}, then ask again.",
            )
        listener(STOP, "after")
        return record

    def _told(self, record: StopRecord) -> Stopped:
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

    def _again(self, standing: StopRecord, request: SavepointRequest) -> Stopped:
        if standing.savepoint == request.name:
            return self._told(standing)
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
            next=f"tidemark resume {self.coordinator.name} --force, if it is to go on all the same.",
        )

    @contextmanager
    def _running_on(self) -> Iterator[None]:
        """Says of every failure inside whether the pipeline runs on."""
        try:
            yield
        except TidemarkError as error:
            error.safe = f"{self._whether_stopped()}; {error.safe}"
            raise

    def _whether_stopped(self) -> str:
        try:
            return _RUNS_ON if self._stops.standing() is None else "the pipeline is stopped"
        except StoreError:
            return "whether the pipeline is stopped is not known, because the store does not answer"
