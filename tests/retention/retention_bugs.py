"""Bugs that the tests of retention must find: each switches one of its rules off."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from tests.support.simulation_bugs import promote_without_a_claim
from tidemark.coordinator.records.claim_records import PromotionClaims
from tidemark.coordinator.records.manifest_index import ManifestIndex
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.coordinator.retention import deletion_plan as planning
from tidemark.coordinator.retention import pins
from tidemark.coordinator.retention import root_set as survey
from tidemark.coordinator.retention import sweep as sweeping
from tidemark.coordinator.retention.deletion_plan import DeletionPlanner
from tidemark.coordinator.retention.open_jobs import open_jobs
from tidemark.coordinator.retention.root_set import collect_roots
from tidemark.coordinator.retention.stored_rule import Lines
from tidemark.coordinator.retention.sweep import Sweeper
from tidemark.model.checkpoint.object_keys import slot_key
from tidemark.model.retention.savepoint import TombstoneKind


@contextmanager
def ignore_forks() -> Iterator[None]:
    """The rule looks at the live timeline only, and what forks began at pins nothing."""
    with (
        patch.object(Lines, "forks", property(lambda self: [])),
        patch.object(survey, "pins_of_timelines", lambda lines, plans: iter(())),
        patch.object(survey, "is_newborn", lambda lines, name: False),
    ):
        yield


@contextmanager
def ignore_plans() -> Iterator[None]:
    """A plan that is under way holds nothing."""
    standing = survey._read_open_timelines

    def without(coordinator: Any) -> Any:
        return standing(coordinator)[0], {}, {}

    def why(self: DeletionPlanner, number: int, attempt: int) -> str:
        return f"orphan of {number}.{attempt}"

    with patch.object(survey, "_read_open_timelines", without), patch.object(DeletionPlanner, "_why_attempt", why):
        yield


@contextmanager
def ignore_jobs() -> Iterator[None]:
    """Nobody asks which jobs are open."""

    def none_open(*given: Any) -> Any:
        return replace(open_jobs(*given), open=frozenset())

    with patch.object(survey, "open_jobs", none_open):
        yield


@contextmanager
def delete_by_age() -> Iterator[None]:
    """What no checkpoint names that is kept by the rule is old, and goes; nobody asks who wrote it."""

    def why(self: DeletionPlanner, f: Any, place: Any, registry: Any) -> str:
        return "kept" if f.path in registry else "it is old"

    with patch.object(DeletionPlanner, "_why", why):
        yield


@contextmanager
def skip_the_second_look() -> Iterator[None]:
    """A tombstone is confirmed without another look for pins."""

    def decide(self: Sweeper, tombstone: Any, again: Any) -> bool:
        return self._tombstones.confirm(tombstone)

    with patch.object(Sweeper, "_decide", decide):
        yield


@contextmanager
def forget_the_tombstone() -> Iterator[None]:
    """Pins are looked at, then the checkpoint is released: a pin that comes in between sees nothing."""

    def release(self: Sweeper, seen: Any) -> tuple[str, ...]:
        for found in seen.subsumed:
            self.coordinator.listener("sweep.tombstones", "before")
            place = slot_key(found.timeline, found.sequence)
            standing, _ = self._tombstones.raise_for(TombstoneKind.CHECKPOINT, found.name, "x", place)
            self._tombstones.confirm(standing)
        return tuple(found.name for found in seen.subsumed)

    with patch.object(Sweeper, "_release", release):
        yield


@contextmanager
def judge_by_an_old_survey() -> Iterator[None]:
    """A sweep looks once, and judges by that what it lists later."""
    seen: dict[int, Any] = {}

    def once(coordinator: Any, rule: Any) -> Any:
        if id(coordinator) not in seen:
            seen[id(coordinator)] = (collect_roots(coordinator, rule), coordinator)
        return seen[id(coordinator)][0]

    with patch.object(sweeping, "collect_roots", once):
        yield


@contextmanager
def believe_the_index() -> Iterator[None]:
    """What an index has found once is all there is: nothing is listed anew."""
    entries = ManifestIndex.entries
    seen: dict[int, Any] = {}

    def once(self: ManifestIndex, *asked: Any) -> Any:
        if id(self) not in seen:
            seen[id(self)] = (entries(self, *asked), self)
        return seen[id(self)][0]

    with patch.object(ManifestIndex, "entries", once):
        yield


@contextmanager
def end_in_spite_of_a_claim() -> Iterator[None]:
    """An end does not wait until the places of all claims are taken."""
    with patch.object(PromotionClaims, "may_win", lambda self, claim: False):
        yield


@contextmanager
def restore_without_a_claim() -> Iterator[None]:
    """A restore does not say ahead which place it takes: an end of what it has begun sees nothing of it."""
    with patch.object(Recovery, "_claim", lambda self, genesis, closing: None):
        yield


@contextmanager
def forget_outboxes() -> Iterator[None]:
    """What waits to be sent to Kafka pins nothing."""
    with patch.object(survey, "pins_of_deliveries", lambda *_: iter(())):
        yield


@contextmanager
def keep_what_was_closed() -> Iterator[None]:
    """What a timeline without checkpoints began with is kept, whether it has ended or not."""

    def ever(lines: Lines, name: str) -> bool:
        return name in lines.geneses and not lines.checkpoints.get(name)

    with patch.object(survey, "is_newborn", ever), patch.object(pins, "is_newborn", ever):
        yield


@contextmanager
def keep_every_base() -> Iterator[None]:
    """Of what compactions made nothing ever goes."""
    why = DeletionPlanner._why_job

    def kept(self: DeletionPlanner, job: str) -> str:
        return planning.KEPT if job in self.survey.jobs.recorded else why(self, job)

    with patch.object(DeletionPlanner, "_why_job", kept):
        yield


BUGS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    bug.__name__.replace("_", "-"): bug
    for bug in (
        ignore_forks,
        ignore_plans,
        ignore_jobs,
        delete_by_age,
        skip_the_second_look,
        forget_the_tombstone,
        judge_by_an_old_survey,
        believe_the_index,
        promote_without_a_claim,
        end_in_spite_of_a_claim,
        restore_without_a_claim,
        forget_outboxes,
        keep_what_was_closed,
        keep_every_base,
    )
}
