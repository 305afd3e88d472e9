"""Gives up a checkpoint whose manifest is damaged and not in any backup: from then on it is never read.

It becomes a released checkpoint, by the tombstone of every release: the tombstone is raised, all references are
collected again, and then it is withdrawn or confirmed. The manifest stays as it is. A timeline that ended with it
continues from the checkpoint before; later checkpoints have manifests of their own and lose nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.records.hold_records import Holds
from tidemark.coordinator.records.tombstones import Tombstones, read_release
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.coordinator.retention.pins import pins_of_jobs, pins_of_timelines
from tidemark.coordinator.retention.root_set import Survey, collect_roots
from tidemark.errors import ConflictError, NotFoundError, UsageError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.offsets import OffsetRange, TopicPartition
from tidemark.model.retention.deletion import DamagedManifest
from tidemark.model.retention.savepoint import TombstoneKind

_SAFE = "nothing was given up."


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """The effect of giving up a checkpoint.

    Attributes:
        manifest: the damaged manifest.
        timeline: its timeline.
        is_newest: whether the timeline ends with it.
        goes_on_from: the checkpoint before it, from which a timeline that ended with it continues; None = none.
        stops_at: that checkpoint if it was released, so that the timeline continues only by a restore of another one.
        read_again: offsets that it had read and that are read again; empty if later checkpoints exist.
        savepoints: savepoints that name it; they become useless.
        sinks: Kafka sinks that it may have emitted to. If its offsets are read again, rows that were sent may be sent
            again under other ids; if they are not, rows that were not sent are never sent.
        done: whether it is given up.
    """

    manifest: DamagedManifest
    timeline: str
    is_newest: bool
    goes_on_from: str | None
    stops_at: str | None
    read_again: Mapping[TopicPartition, OffsetRange]
    savepoints: tuple[str, ...]
    sinks: tuple[str, ...]
    done: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GivingUp:
    """Gives up checkpoints.

    Attributes:
        coordinator: of the pipeline; its listener is called at steps `give_up.tombstone` and `.decision`.
    """

    coordinator: CheckpointCoordinator

    def outlook(self, number: int) -> GivenUp:
        """Returns the effect of giving up a checkpoint; writes nothing.

        Raises:
            NotFoundError: there is no such checkpoint.
            UsageError: its manifest can be read, or it was released: there is nothing to give up.
            ConflictError: something needs it and has no alternative.
            CorruptObjectError: something else is damaged too, or it is not certain that the entry was a manifest.
            StoreError: the store could not be read.
        """
        plan = self._plan(number)
        return self._outlook(plan, self._pinned(plan))

    def give_up(self, number: int) -> GivenUp:
        """Gives up a checkpoint for good.

        Raises:
            TidemarkError: as in `outlook`; or a sweep decided otherwise at the same moment: try again.
        """
        c, plan = self.coordinator, self._plan(number)
        found = self._outlook(plan, self._pinned(plan))
        place, why = keys.slot_key(plan.slot.timeline, plan.slot.sequence), found.manifest.why
        tombstones = Tombstones(objects=c.objects, clock=c.clock, write_ids=c.write_ids)
        c.listener("give_up.tombstone", "before")
        standing, _ = tombstones.raise_for(TombstoneKind.CHECKPOINT, plan.name, why, place, given_up=True)
        c.listener("give_up.tombstone", "after")
        try:
            self._pinned(plan)
        except ConflictError:
            tombstones.withdraw(standing, "it is needed")
            raise
        c.listener("give_up.decision", "before")
        if not standing.given_up or not tombstones.confirm(standing):
            raise ConflictError(
                f"a sweep processed {plan.name} at the same moment",
                safe=_SAFE,
                next=f"tidemark checkpoint give-up {c.name} {plan.name} --execute    (once more).",
            )
        c.listener("give_up.decision", "after")
        return replace(found, done=True)

    def _plan(self, number: int) -> CheckpointPlan:
        c = self.coordinator
        plan = c.timelines.plan(number)
        if read_release(c.objects, plan.name) is not None:
            raise UsageError(f"{plan.name} was released, or given up, already", next=f"tidemark verify {c.name}")
        return plan

    def _pinned(self, plan: CheckpointPlan) -> Survey:
        """A survey in which nothing that has no alternative needs the checkpoint.

        A plan that reads it holds the files itself; so does every later checkpoint.
        """
        c, survey = self.coordinator, collect_roots(self.coordinator, None)
        if self._manifest(plan, survey) is None:
            raise self._whole(plan)
        held = [r.name for r in Savepoints(c).list() if r.checkpoint == plan.id and r.name in Holds(c.objects).all()]
        pins = [(plan.id, f"savepoint {name}, under a legal hold") for name in held]
        pins += [*pins_of_timelines(survey.lines, {}), *pins_of_jobs(survey.jobs)]
        why = [reason for number, reason in pins if number == plan.id]
        if why:
            raise ConflictError(
                f"{plan.name} is needed: {'; '.join(why)}",
                safe=_SAFE,
                next="end these first; or restore the manifest from a backup of the warehouse.",
            )
        return survey

    def _manifest(self, plan: CheckpointPlan, survey: Survey) -> DamagedManifest | None:
        place = (plan.slot.timeline, plan.slot.sequence)
        return next((m for m in survey.damage.manifests if keys.place_of(m.key) == place and m.name == plan.name), None)

    def _whole(self, plan: CheckpointPlan) -> NotFoundError | UsageError:
        c = self.coordinator
        if c.timelines.find(plan.id) is None:
            return NotFoundError(f"{plan.name} was never completed", next=f"tidemark checkpoint list {c.name}")
        return UsageError(
            f"the manifest of {plan.name} is whole: there is nothing to give up",
            safe=_SAFE,
            next=f"tidemark verify {c.name}    (lists damaged objects).",
        )

    def _outlook(self, plan: CheckpointPlan, survey: Survey) -> GivenUp:
        c, slot = self.coordinator, plan.slot
        manifest = self._manifest(plan, survey)
        assert manifest is not None  # noqa: S101  (for the type checker: `_pinned` has looked)
        last = keys.greatest(c.objects.list(f"timelines/{slot.timeline}/")) == slot.sequence
        before = c.timelines.entry_at(slot.timeline, slot.sequence - 1) if last else None
        number = before.id if isinstance(before, Checkpoint) else None if before is None else plan.parent
        parent = None if number is None else f"chk-{number}"
        gone = parent is not None and survey.is_released(int(parent.removeprefix("chk-")))
        return GivenUp(
            manifest=manifest,
            timeline=slot.timeline,
            is_newest=last,
            goes_on_from=None if gone else parent,
            stops_at=parent if gone else None,
            read_again={tp: r for tp, r in plan.ranges.items() if not r.is_empty} if last else {},
            savepoints=tuple(r.name for r in Savepoints(c).list() if r.checkpoint == plan.id),
            sinks=tuple(sorted(table.name for table in plan.sinks.values() if not table.is_transactional)),
        )
