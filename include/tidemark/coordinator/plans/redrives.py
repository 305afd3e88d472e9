"""The dead letters that the next plan redrives: those of new requests, or those of the checkpoints that it repeats.

A row is frozen only if it is a letter on the line of the plan: an ancestor wrote it, and no ancestor has redriven it.
So a repeated request, an overlapping one and a repeated checkpoint apply nothing twice (adr/0040).
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidemark.coordinator.plans.sink_inputs import redriven_before
from tidemark.coordinator.records.objects import Objects
from tidemark.coordinator.records.redrive_requests import RedriveHistory, RedriveRequests
from tidemark.coordinator.records.timelines import Timelines
from tidemark.declare.arrival import current_uid, refuse_late, sinks_behind, upstream_of
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import TidemarkError, UsageError
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.redrive import LetterRow, Redrive, expand_rows, group_rows
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.core.offsets import Path

StoredPlace = tuple[int, str, int, int, Path]
"""A row of a dead-letter table: checkpoint, topic, partition, offset and path."""
FindLetters = Callable[[StateHandle, Collection[tuple[str, int, int]]], Iterable[StoredPlace]]
"""Finds the rows of a handle at positions (topic, partition, offset); answered by the tables."""
_log = logging.getLogger("tidemark")


def no_letters(handle: StateHandle, positions: Collection[tuple[str, int, int]]) -> Iterable[StoredPlace]:
    """Stands for the tables where none were given.

    Raises:
        UsageError: always.
    """
    raise UsageError(
        f"no access to dead letters: {len(positions)} positions of {handle.rows} rows",
        next="this is a defect of Tidemark: report it.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrivePlanner:
    """Adds redrives to the draft of a plan.

    Attributes:
        objects: the store.
        pipeline: the current declaration.
        find: finds rows of dead-letter tables. Only a plan with a redrive asks for them.
    """

    objects: Objects
    pipeline: Pipeline
    find: FindLetters

    def take_up(self, draft: CheckpointPlan) -> CheckpointPlan:
        """Returns a draft that has seen the requests of its parent with the letters of new ones."""
        requests = RedriveRequests(self.objects)
        new = list(requests.after(draft.requests_seen))
        if not new:
            return draft
        standing = (r for r in new if r.timeline == draft.slot.timeline and requests.withdrawal(r.number) is None)
        mine = [(self._uid(r.uid, draft, out_of_order=r.out_of_order), r) for r in standing]
        asked = [(uid, r) for uid, r in mine if uid is not None]
        wanted = {uid: {row for u, r in asked if u == uid for row in expand_rows(r.rows)} for uid, _ in asked}
        history = self._history(draft, wanted.values())
        redrives = [
            self._redrive(draft, uid, rows, tuple(r.number for u, r in asked if u == uid))
            for uid, found in sorted(wanted.items())
            if (rows := self._there(draft, uid, history.open_rows(uid, found)))
        ]
        return replace(draft, redrives=tuple(filter(None, redrives)), requests_seen=new[-1].number)

    def repeat(self, draft: CheckpointPlan, recorded: Sequence[CheckpointPlan]) -> CheckpointPlan:
        """Returns the draft with the letters that recorded checkpoints redrove and that are letters on its own line."""
        wanted: dict[str, set[tuple[str, str, int, int, Path]]] = {}
        for redrive in (r for plan in recorded for r in plan.redrives):
            uid = self._uid(redrive.uid, draft, out_of_order=True)
            if uid is not None:
                wanted.setdefault(uid, set()).update(row.record for row in expand_rows(redrive.rows))
        stored = {uid: list(self._stored(draft, uid, records)) for uid, records in wanted.items()}
        oldest = min((place[0] for found in stored.values() for place in found), default=None)
        if oldest is None:
            return draft
        history = RedriveHistory.of(Timelines(self.objects), draft.slot.timeline, oldest, draft.dead_letters)
        redrives = []
        for uid, found in sorted(stored.items()):
            there = {row for place in found if (row := _row(place, history)) and row.record in wanted[uid]}
            redrives.append(self._redrive(draft, uid, history.open_rows(uid, there), ()))
        return replace(draft, redrives=tuple(filter(None, redrives)))

    def _redrive(
        self, draft: CheckpointPlan, uid: str, rows: Iterable[LetterRow], requests: tuple[int, ...]
    ) -> Redrive | None:
        """Returns the redrive of some rows, with what the sinks behind it have; None if nothing is left."""
        sinks = {
            behind: redriven_before(Timelines(self.objects), table.coverage(draft.topic_ids), table.name)
            for behind in sinks_behind(self.pipeline, uid)
            if (table := draft.sinks.get(behind)) is not None
        }
        is_fed = upstream_of(self.pipeline, uid) is not None
        fit = [row for row in rows if bool(row.path) == is_fed]
        fit = [row for row in fit if not sinks or draft.topic_ids.get(row.topic) == row.topic_id]
        made = Redrive(uid=uid, requests=requests, rows=group_rows(fit), sinks=sinks)
        # Only what the records have in common with the redrive is of interest.
        return replace(made, sinks={n: had & made.coverage for n, had in sinks.items()}) if fit else None

    def _stored(
        self, draft: CheckpointPlan, uid: str, records: Collection[tuple[str, str, int, int, Path]]
    ) -> Iterable[StoredPlace]:
        handle = draft.dead_letters.get(uid, StateHandle())
        positions = {(topic, partition, offset) for topic, _, partition, offset, _ in records}
        return self.find(handle, positions) if handle else ()

    def _uid(self, uid: str, draft: CheckpointPlan, *, out_of_order: bool) -> str | None:
        """The current uid of an operator; None if the plan passes over it, so that its letters stay."""
        current = current_uid(self.pipeline, uid)
        why = f"{uid} is not declared"
        if current is not None:
            try:
                refuse_late(self.pipeline, current, out_of_order=out_of_order)
            except TidemarkError as error:
                why = error.what
            else:
                return current
        _log.warning("redrive_passed_over", extra={"plan": draft.name, "why": why})
        return None

    def _history(self, draft: CheckpointPlan, wanted: Iterable[set[LetterRow]]) -> RedriveHistory:
        oldest = min((row.checkpoint for rows in wanted for row in rows), default=None)
        if oldest is None:
            return RedriveHistory(letters={})
        return RedriveHistory.of(Timelines(self.objects), draft.slot.timeline, oldest, draft.dead_letters)

    def _there(self, draft: CheckpointPlan, uid: str, rows: set[LetterRow]) -> set[LetterRow]:
        """The rows that are there: others were erased since, or have expired, or another branch wrote them."""
        there = set(self._stored(draft, uid, [row.record for row in rows])) if rows else set()
        return {row for row in rows if (row.checkpoint, *row.place) in there}


def _row(place: StoredPlace, history: RedriveHistory) -> LetterRow | None:
    checkpoint, topic, partition, offset, path = place
    ids: Mapping[str, str] = history.plans[checkpoint].topic_ids if checkpoint in history.plans else {}
    return LetterRow(checkpoint, topic, ids[topic], partition, offset, path) if topic in ids else None
