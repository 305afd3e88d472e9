"""What somebody asks to be restored or forked: a checkpoint by its id, by a time, or by a savepoint (I3, L4)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.plans.restore_point import Beginning
from tidemark.coordinator.records.released_checkpoints import usable
from tidemark.coordinator.recovery.latest_valid import MAX_FALLBACK, SteppedBack
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.errors import ConflictError, NotFoundError, UsageError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.model.retention.savepoint import SavepointRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRequest:
    """Where to begin, which is said in exactly one way, and on which terms.

    Attributes:
        checkpoint: an id, on whichever timeline.
        savepoint: a name.
        as_of_ms: the newest checkpoint of the live timeline whose logical time is not after it.
        newest_whole: the newest checkpoint of the live timeline of which nothing is damaged (I4); see `at`.
        max_fallback: how many damaged ones that may pass over.
        force: go on from a savepoint that the pipeline was drained with (G3).
        claim, restore_sinks, allow_non_restored_state, renamed, note: see `Beginning`.
        accept_loss: restore although Kafka lacks records that come after the checkpoint.
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
                next="give a savepoint, a checkpoint or a time, or ask for the newest whole one: one of them.",
            )

    def at(self, found: SteppedBack) -> "RestoreRequest":
        """The request for the checkpoint at which a step back has ended."""
        return replace(self, checkpoint=found.checkpoint.id, newest_whole=False)

    def beginning(self, coordinator: CheckpointCoordinator) -> Beginning:
        """What the timeline begins with; a step back has been taken before (`at`).

        Raises:
            NotFoundError: no such checkpoint, savepoint, or none as old as that.
            ReleasedError: retention has let it go.
            ConflictError: the savepoint is drained, or was claimed by another timeline.
            UsageError: a claim without a savepoint.
        """
        return Beginning(
            checkpoint=self._checkpoint(coordinator),
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
                "no checkpoint is as old as that", next=f"tidemark checkpoint list {coordinator.name}    (lists them)."
            )
        return usable(timelines, found)

    def _record(self, savepoints: Savepoints, name: str) -> SavepointRecord:
        found = savepoints.find(name)
        if found is None or (found.disposed and not self._may_finish(savepoints, found)):
            if self.claim and found is not None and found.claimed_by is not None:
                raise ConflictError(
                    f"savepoint {name} was claimed by timeline {found.claimed_by}: there is no second claim",
                    next=f"restore {found.checkpoint_name} itself.",
                )
            found = savepoints.get(name)
        if found.drained and not self.force:
            raise ConflictError(
                f"savepoint {name} is drained: the pipeline was stopped with it for good",
                next="repeat with --force to go on from it all the same.",
            )
        return found

    def _may_finish(self, savepoints: Savepoints, found: SavepointRecord) -> bool:
        """Whether the timeline that has claimed it is this very request's, or not live yet: then it died halfway."""
        c = savepoints.coordinator
        if not self.claim or found.claimed_by is None:
            return False
        genesis = c.objects.slot(found.claimed_by, 1)
        if not isinstance(genesis, Genesis):
            return False
        return genesis.request == self.request or genesis.closes == c.timelines.live()
