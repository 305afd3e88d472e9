"""The request to restore or fork: a checkpoint by its id, by a time, or by a savepoint."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.released_checkpoints import usable
from tidemark.coordinator.recovery.latest_valid import MAX_FALLBACK, SteppedBack
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.errors import ConflictError, NotFoundError, UsageError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.model.retention.savepoint import SavepointRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRequest:
    """The restore point to begin at, given in exactly one way, and the options.

    Attributes:
        checkpoint: an id, on any timeline.
        savepoint: a name.
        as_of_ms: the newest checkpoint of the live timeline whose logical time is not after it.
        newest_whole: the newest checkpoint of the live timeline that is not damaged; see `at`.
        max_fallback: the most damaged checkpoints that `newest_whole` may pass over.
        force: continue from a savepoint that the pipeline was drained with.
        claim, restore_sinks, allow_non_restored_state, renamed, note: see `RestorePoint`.
        accept_loss: restore although Kafka lacks records after the checkpoint.
        request: the caller's id of the request; see `Recovery.restore`.
    """

    checkpoint: int | None = None
    savepoint: str | None = None
    as_of_ms: int | None = None
    newest_whole: bool = False
    max_fallback: int = MAX_FALLBACK
    force: bool = False
    claim: bool = False
    restore_sinks: bool = False
    allow_non_restored_state: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)
    accept_loss: bool = False
    request: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        given = [x for x in (self.checkpoint, self.savepoint, self.as_of_ms) if x is not None]
        if len(given) + self.newest_whole != 1:
            raise UsageError(
                "name one restore point",
                next="give one of these: a savepoint, a checkpoint, a time, or the newest whole checkpoint.",
            )

    def at(self, found: SteppedBack) -> "RestoreRequest":
        """The request for the checkpoint that a fallback has reached."""
        return replace(self, checkpoint=found.checkpoint.id, newest_whole=False)

    def find_restore_point(self, coordinator: CheckpointCoordinator) -> RestorePoint:
        """Resolves where the timeline begins; a fallback has been resolved before, by `at`.

        Raises:
            NotFoundError: there is no such checkpoint or savepoint, or no checkpoint is that old.
            ReleasedError: retention has released it.
            ConflictError: the savepoint or the checkpoint is drained, or another timeline claimed the savepoint.
            UsageError: a claim without a savepoint.
        """
        found = self._checkpoint(coordinator)
        refuse_drained(coordinator.name, found)
        return RestorePoint(
            checkpoint=found,
            savepoint=self.savepoint or "",
            claim=self.claim,
            restore_sinks=self.restore_sinks,
            allow_non_restored_state=self.allow_non_restored_state,
            renamed=self.renamed,
            note=self.note,
        )

    def _checkpoint(self, coordinator: CheckpointCoordinator) -> Checkpoint:
        if self.checkpoint is not None:
            return coordinator.checkpoint(self.checkpoint)
        if self.savepoint is not None:
            return coordinator.checkpoint(self._record(Savepoints(coordinator), self.savepoint).checkpoint)
        timelines = coordinator.timelines
        found = timelines.as_of(timelines.live(), self.as_of_ms or 0)
        if found is None:
            raise NotFoundError(
                "no checkpoint is that old", next=f"tidemark checkpoint list {coordinator.name}    (lists them)."
            )
        return usable(timelines, found)

    def _record(self, savepoints: Savepoints, name: str) -> SavepointRecord:
        found = savepoints.find(name)
        if found is None or (found.disposed and not self._may_finish(savepoints, found)):
            if self.claim and found is not None and found.claimed_by is not None:
                raise ConflictError(
                    f"savepoint {name} was claimed by timeline {found.claimed_by}: it cannot be claimed again",
                    next=f"restore {found.checkpoint_name} itself.",
                )
            found = savepoints.get(name)
        if found.drained and not self.force:
            raise ConflictError(
                f"savepoint {name} is drained: the pipeline was stopped with it for good",
                next="to continue from it all the same, repeat with --force.",
            )
        return found

    def _may_finish(self, savepoints: Savepoints, found: SavepointRecord) -> bool:
        """Whether the timeline that claimed the savepoint is this request's own, or died before it became live."""
        c = savepoints.coordinator
        if not self.claim or found.claimed_by is None:
            return False
        genesis = c.objects.slot(found.claimed_by, 1)
        if not isinstance(genesis, Genesis):
            return False
        return genesis.request == self.request or genesis.closes == c.timelines.live()


def refuse_drained(pipeline: str, found: Checkpoint) -> None:
    """Refuses a checkpoint that has drained its pipeline.

    Raises:
        ConflictError: behind it every record would be late; the message names the checkpoint before it.
    """
    if found.plan.drains:
        parent = f"chk-{found.plan.parent}"
        raise ConflictError(
            f"{found.plan.name} has drained {pipeline}: all windows are closed, so every later record would be late",
            safe="nothing was written; it stays readable.",
            next=f"begin at {parent}, the one before it; on the live timeline: tidemark resume {pipeline} --force",
        )
