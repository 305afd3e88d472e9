"""Brings one target to the newest checkpoint: a step is begun, made at the target, and recorded as done (adr/0039).

A job pins the checkpoint while `begun` is put, because `begun` cannot be taken back; from then on the newest `begun`
pins its checkpoints. Manifests are read after it: it says which erasures they reflect. If a publisher is killed at any
point, the next one makes the same step again, and the target has it once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.jobs import open_job
from tidemark.coordinator.records.publication_steps import PublicationSteps
from tidemark.coordinator.records.timelines import Erasures
from tidemark.coordinator.records.tombstones import read_release
from tidemark.declare.publications import Publication
from tidemark.errors import ConflictError, NotFoundError, ReleasedError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.retention.erasure import ErasureRecord
from tidemark.model.retention.publication_records import (
    PublicationBegun,
    PublicationDone,
    PublicationMode,
    Replaceable,
)
from tidemark.model.schema.key_groups import typed_key
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.ports import PutOutcome
from tidemark.ports.publishing import Difference, PublicationTarget, Published, PublishedStates, Step

_TRIES = 20
OpenTarget = Callable[[OperatorSchema], PublicationTarget]
"""Opens a target for the columns of a stored schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeStep:
    """A step that the target has.

    Attributes:
        begun: the step.
        done: its end.
    """

    begun: PublicationBegun
    done: PublicationDone


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePublisher:
    """Publishes the state of one operator to one target.

    Attributes:
        coordinator: of the pipeline; its listener is called at steps `publish.begun`, `.target` and `.done`.
        uid: the operator.
        publication: the declared target, with its name.
        open_target: opens the target.
        states: reads states of the operator.
    """

    coordinator: CheckpointCoordinator
    uid: str
    publication: Publication
    open_target: OpenTarget
    states: PublishedStates

    @property
    def steps(self) -> PublicationSteps:
        """The steps as the store has them."""
        return PublicationSteps(self.coordinator.objects)

    def publish(self) -> list[MadeStep]:
        """Finishes the step that an earlier call began, then makes the next one; empty if there is nothing to do.

        Checkpoints that are completed meanwhile are left to the next call.

        Raises:
            TargetChangedError: others have changed the target; a rebuild replaces their rows.
            ConflictError: other publishers were faster, again and again.
            StoreError, StateOverflowError: the target or the state cannot be read or written.
        """
        made, own, goal, tries = list[MadeStep](), 0, 0, _TRIES
        while tries:
            last = self.steps.newest(self.publication.name)
            if last is not None and self.steps.done(last) is None and self._is_ours(last):
                made.append(self._finish(last))
                if last.number == own:
                    if not self.publication.one_by_one or last.checkpoint >= goal:
                        return made
                    own, tries = 0, _TRIES
                continue
            head = self._head()
            begun = None if own or head is None else self._next(head, last)
            if begun is None or head is None:
                return made
            # If a rival has put the step of this number, that one is finished.
            own, goal, tries = begun.number, goal or head.id, tries - 1
            self._begin(begun)
        raise self._overtaken()

    def rebuild(self, *, replaces_others: bool = False) -> MadeStep:
        """Replaces all rows of the target by the newest state, including rows that others have changed.

        Args:
            replaces_others: replace rows, too, that this publication has not made.

        Raises:
            NotFoundError: there is no checkpoint with the operator.
            TidemarkError: as in `publish`.
        """
        replaces = Replaceable.ANY if replaces_others else Replaceable.OWN
        for _ in range(_TRIES):
            last, head = self.steps.newest(self.publication.name), self._head()
            if head is None:
                raise NotFoundError(
                    f"no checkpoint of {self.coordinator.name} has an operator {self.uid}",
                    next=f"tidemark run {self.coordinator.name}",
                )
            there = self.open_target(head.plan.schemas[self.uid]).newest_step()
            begun = self._rebuild(head, last, replaces, max(there, 0 if last is None else last.step) + 1)
            if self._begin(begun):
                return self._finish(begun)
        raise self._overtaken()

    def drop(self) -> MadeStep | None:
        """Ends the publication: its target keeps its rows, and its checkpoints are no longer pinned.

        Returns:
            The end; None if the publication was never begun.

        Raises:
            StoreError: the target cannot be read or written.
            TidemarkError: as in `publish`.
        """
        for _ in range(_TRIES):
            last = self.steps.newest(self.publication.name)
            if last is None:
                return None
            if last.mode is not PublicationMode.DROP:
                end = replace(last, number=last.number + 1, step=last.step + 1, mode=PublicationMode.DROP)
                end = replace(end, previous=last.step, previous_lineage=last.lineage, before=0)
                if not self._begin(self._stamped(end)):
                    continue
                last = self.steps.newest(self.publication.name) or end
            done = self.steps.done(last)
            return self._finish(last) if done is None else MadeStep(begun=last, done=done)
        raise self._overtaken()

    def _stamped(self, begun: PublicationBegun) -> PublicationBegun:
        c = self.coordinator
        return replace(begun, at_ms=c.clock.now_ms(), write_id=c.write_ids())

    def _is_ours(self, begun: PublicationBegun) -> bool:
        """Whether a step is for the target as it is declared now."""
        same = (begun.uid, begun.kind, dict(begun.options))
        return same == (self.uid, self.publication.kind, dict(self.publication.options))

    def _head(self) -> Checkpoint | None:
        """The newest checkpoint of the live timeline, if it has the operator."""
        found = next(self.coordinator.checkpoints(), None)
        return found if found is not None and self.uid in found.plan.schemas else None

    def _next(self, head: Checkpoint, last: PublicationBegun | None) -> PublicationBegun | None:
        """The step that brings the target to a checkpoint; None if it has it, or was dropped.

        The target does not return to an ancestor of its checkpoint, as a restored timeline first has no other one.
        """
        if last is None or not self._is_ours(last):
            if last is not None and last.mode is PublicationMode.DROP:
                return None
            return self._rebuild(head, last, Replaceable.UNTOUCHED, 1 if last is None else last.step + 1)
        if last.mode is PublicationMode.DROP:
            return None
        before = self._find(last.checkpoint)
        if before is None or self._has_other_columns(before, head):
            return self._rebuild(head, last, Replaceable.UNTOUCHED, last.step + 1)
        after = self._after(before, head)
        draft = self._draft(after, last)
        if after.id == before.id and draft.erasures == last.erasures:
            return None
        erased = self._erasures(self.uid, last.erasures, draft.erasures)
        if after.plan.schemas[self.uid].window is not None and any(erased):
            # An erased key names no window, and no state says any more which rows of the target were its.
            return self._rebuild(after, last, Replaceable.UNTOUCHED, last.step + 1)
        return replace(
            draft,
            mode=PublicationMode.DIFFERENCE,
            step=last.step + 1,
            previous=last.step,
            before=last.checkpoint,
            lineage=last.lineage,
            previous_lineage=last.lineage,
        )

    def _after(self, before: Checkpoint, head: Checkpoint) -> Checkpoint:
        """The checkpoint that the next step brings the target to; `before` itself if the head is an ancestor of it."""
        timelines = self.coordinator.timelines
        shared = timelines.shared_ancestor(head, before)
        if shared == head.id:
            return before
        found = head
        for between in timelines.ancestry(head) if self.publication.one_by_one and shared else ():
            if between.id == shared:
                break
            if read_release(self.coordinator.objects, between.plan.name) is None:
                found = between
        return found

    def _rebuild(
        self, head: Checkpoint, last: PublicationBegun | None, replaces: Replaceable, step: int
    ) -> PublicationBegun:
        return replace(self._draft(head, last), replaces=replaces, step=step)

    def _draft(self, head: Checkpoint, last: PublicationBegun | None) -> PublicationBegun:
        c = self.coordinator
        return PublicationBegun(
            name=self.publication.name,
            number=1 if last is None else last.number + 1,
            step=1,
            uid=self.uid,
            kind=self.publication.kind,
            options=self.publication.options,
            mode=PublicationMode.REBUILD,
            replaces=Replaceable.UNTOUCHED,
            previous=0 if last is None else last.step,
            before=0,
            checkpoint=head.id,
            timeline=head.plan.slot.timeline,
            lineage=c.write_ids(),
            previous_lineage="" if last is None else last.lineage,
            erasures=self._ended_erasures(0 if last is None else last.erasures),
            at_ms=c.clock.now_ms(),
            write_id=c.write_ids(),
        )

    def _has_other_columns(self, before: Checkpoint, after: Checkpoint) -> bool:
        """Whether keys that no record has touched may have other values, because the declaration has changed."""
        old, new = before.plan.schemas.get(self.uid), after.plan.schemas[self.uid]
        return old is None or replace(old, patched=new.patched, older=new.older) != new

    def _find(self, checkpoint: int) -> Checkpoint | None:
        """A checkpoint; None if its manifest was given up."""
        try:
            return self.coordinator.timelines.find(checkpoint)
        except ReleasedError:
            return None

    def _ended_erasures(self, since: int) -> int:
        """Number of the newest erasure that has ended, like all before it: manifests reflect these."""
        erasures = Erasures(self.coordinator.objects)
        for number in range(since + 1, erasures.newest() + 1):
            if erasures.get(number) is not None and not erasures.has_ended(number):
                return number - 1
        return max(since, erasures.newest())

    def _begin(self, begun: PublicationBegun) -> bool:
        """Puts a step while a job pins its checkpoint. Returns whether this call put it."""
        c = self.coordinator
        with open_job(c, "publication", begun.checkpoint):
            c.listener("publish.begun", "before")
            won = c.objects.put(keys.publication_key(begun.name, begun.number), begun) is PutOutcome.WON
            c.listener("publish.begun", "after")
        return won

    def _finish(self, begun: PublicationBegun) -> MadeStep:
        c = self.coordinator
        # The newest step pins its checkpoint; the end of a publication only needs its columns.
        after = c.timelines.checkpoint(begun.checkpoint)
        target = self.open_target(after.plan.schemas[begun.uid])
        c.listener("publish.target", "before")
        made = self._make(target, begun, after)
        c.listener("publish.target", "after")
        done = PublicationDone(
            name=begun.name,
            number=begun.number,
            version=made.version,
            inserted=made.inserted,
            deleted=made.deleted,
            bytes=made.bytes,
            at_ms=c.clock.now_ms(),
            write_id=c.write_ids(),
        )
        c.listener("publish.done", "before")
        c.objects.put(keys.publication_done_key(begun.name, begun.number), done)
        c.listener("publish.done", "after")
        return MadeStep(begun=begun, done=self.steps.done(begun) or done)

    def _make(self, target: PublicationTarget, begun: PublicationBegun, after: Checkpoint) -> Published:
        step = as_step(begun)
        if begun.mode is PublicationMode.DROP:
            return target.drop(step)
        if begun.mode is PublicationMode.REBUILD:
            return target.replace(step, self.states.parts(after), begun.replaces)
        return target.apply(step, lambda: self._difference(begun, after))

    def _difference(self, begun: PublicationBegun, after: Checkpoint) -> Difference:
        before = self.coordinator.timelines.checkpoint(begun.before)
        ancestor = self.coordinator.timelines.shared_ancestor(before, after)
        schema = after.plan.schemas[begun.uid]
        return self.states.difference(before, after, ancestor, list(self._erased(begun, schema)))

    def _erased(self, begun: PublicationBegun, schema: OperatorSchema) -> Iterator[tuple[object, ...]]:
        """Keys whose erasure the target does not reflect yet."""
        previous = self.steps.previous(begun)
        for record in self._erasures(begun.uid, 0 if previous is None else previous.erasures, begun.erasures):
            yield typed_key(schema, record.key)

    def _erasures(self, uid: str, since: int, until: int) -> Iterator[ErasureRecord]:
        """The erasures of an operator with numbers in `(since, until]`."""
        for record in Erasures(self.coordinator.objects).until(until):
            if record.number > since and uid in record.uids:
                yield record

    def _overtaken(self) -> ConflictError:
        name = self.publication.name
        return ConflictError(
            f"{_TRIES} other steps of {name} came first",
            safe="the target has one of them; every checkpoint is intact.",
            next=f"tidemark publication run {self.coordinator.name} {name}    (when the other publisher is done).",
        )


def as_step(begun: PublicationBegun) -> Step:
    """A step as a target gets it."""
    return Step(
        number=begun.step,
        previous=begun.previous,
        lineage=begun.lineage,
        previous_lineage=begun.previous_lineage,
        checkpoint=begun.checkpoint,
        timeline=begun.timeline,
    )
