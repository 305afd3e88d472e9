"""Lists and shows dead letters of the live timeline, and asks for their redrive (adr/0040)."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from tidemark.answers.checkpoint_facts import iso
from tidemark.answers.dead_letter_facts import (
    DeadLetter,
    DeadLetterOverview,
    DeadLetterTotals,
    RedrivePreview,
    RedriveStatus,
    RequestState,
)
from tidemark.answers.shown_bytes import text_of
from tidemark.context import Context
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.plans.inputs import Parent
from tidemark.coordinator.records.redrive_requests import RedriveHistory, RedriveRequests
from tidemark.declare.arrival import arrival_reasons, current_uid, refuse_late, sinks_behind, upstream_of
from tidemark.environment import random_id
from tidemark.errors import NotFoundError, UsageError
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.redrive import (
    LetterPlace,
    LetterRow,
    RedriveRecord,
    RedriveWithdrawal,
    group_rows,
    letter_place,
)
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.operations.dead_letters.letter_decoder import LetterDecoder

if TYPE_CHECKING:
    import pyarrow as pa

MOST_LETTERS = 20_000
"""Letters of one request, because a plan names each of them."""
_PLACE = ["topic", "partition", "offset", "path"]
_WHOLE = [*_PLACE, "timestamp", "reason", "key", "value", "headers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Which dead letters of an operator.

    Attributes:
        reason: the whole reason, or its first word (`missing_field`); empty = any.
        checkpoint: id of the checkpoint that refused them; None = any.
        partition: topic and partition, as in `flights-0`; empty = any.
        limit: at most so many, the oldest first; None = all.
    """

    reason: str = ""
    checkpoint: int | None = None
    partition: str = ""
    limit: int | None = None

    def takes(self, row: Mapping[str, Any]) -> bool:
        """Whether a row with a reason, topic and partition belongs to it."""
        if self.partition and self.partition != f"{row['topic']}-{row['partition']}":
            return False
        return not self.reason or self.reason in (row["reason"], row["reason"].partition(":")[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveRequest:
    """The dead letters to redrive, as the command line or a program asks for them.

    Attributes:
        uid: the operator.
        letters: which of its letters.
        out_of_order: accept that its answer depends on when records arrive.
        note: for people.
        origin: "cli", or the DAG run that asks.
    """

    uid: str
    letters: LetterFilter = LetterFilter()
    out_of_order: bool = False
    note: str = ""
    origin: str = "cli"


def list_letters(context: Context, name: str, uid: str | None = None) -> DeadLetterOverview:
    """Lists the dead letters of the live timeline by operator and reason, and the requests to redrive them.

    Raises:
        NotFoundError: no such pipeline or operator.
        StoreError: a dead-letter table is damaged.
    """
    line = _Letters.of(context, name)
    uids = sorted(line.parent.dead_letters) if uid is None else [line.checked(uid)]
    totals = [total for each in uids for total in line.totals(each)]
    requests = [_status(line, r) for r in RedriveRequests(line.coordinator.objects).after(0)]
    return DeadLetterOverview(letters=totals, requests=[r for r in reversed(requests) if uid in (None, r.uid)])


def show_letters(context: Context, name: str, uid: str, wanted: LetterFilter) -> list[DeadLetter]:
    """Returns dead letters as fields, oldest first, and what the current declaration would make of them.

    Raises:
        NotFoundError: no such pipeline or operator.
        StoreError: the dead-letter table is damaged.
    """
    line, pipeline = _Letters.of(context, name), context.pipeline(name)
    found = line.find(line.checked(uid), wanted)
    decoder = LetterDecoder.of(context, pipeline, uid)
    return [_shown(row, raw, decoder) for row, raw in found]


def list_newest_letters(
    context: Context, name: str, uid: str, reason: str | None, limit: int, offset: int = 0
) -> tuple[int, list[tuple[CheckpointPlan, dict[str, Any]]]]:
    """Returns the number of dead letters that were not redriven, and some raw ones with their plans, newest first.

    The pipeline's file is not read.

    Args:
        context: of this process.
        name: the pipeline.
        uid: the operator.
        reason: only letters of this reason; None = any.
        limit: the most letters to return.
        offset: the number of letters to pass over.

    Raises:
        NotFoundError: no such pipeline or operator.
        StoreError: the dead-letter table is damaged.
    """
    line = _Letters.of(context, name)
    return line.page(line.checked(uid), reason, limit, offset)


def plan_redrive(context: Context, name: str, request: RedriveRequest) -> RedrivePreview:
    """Returns the effect of a redrive; writes nothing.

    Raises:
        NotFoundError: no such pipeline or operator, or no such letters.
        UsageError: the operator cannot get records late, or not without `out_of_order`; or there are too many letters
            for one request.
        StoreError: the dead-letter table is damaged.
    """
    return _preview(context, name, request)[0]


def redrive(context: Context, name: str, request: RedriveRequest, owner: str) -> RedrivePreview:
    """Asks the next checkpoint of the live timeline to redrive dead letters.

    Raises:
        NotFoundError, UsageError, StoreError: as `plan_redrive`.
        ConflictError: the timeline has ended meanwhile.
    """
    preview, rows = _preview(context, name, request)
    draft = RedriveRecord(
        number=0,
        timeline=preview.timeline,
        uid=request.uid,
        rows=group_rows(rows),
        out_of_order=request.out_of_order,
        owner=owner,
        note=request.note,
        origin=request.origin,
        at_ms=context.clock.now_ms(),
        write_id=random_id(),
    )
    made = RedriveRequests(context.coordinator(name).objects).put(draft)
    return replace(preview, request=made.number)


def find_request(context: Context, name: str, number: int) -> RedriveStatus:
    """Returns a request to redrive dead letters.

    Raises:
        NotFoundError: no such pipeline or request.
    """
    line = _Letters.of(context, name)
    found = next(RedriveRequests(line.coordinator.objects).after(number - 1), None)
    if found is None:
        raise NotFoundError(
            f"no request {number} to redrive dead letters",
            next=f"tidemark dead-letters list {name}    (lists the requests).",
        )
    return _status(line, found)


def find_asked(context: Context, name: str, origin: str) -> RedriveStatus | None:
    """Returns the request that a DAG run has made; None if it has made none.

    Raises:
        NotFoundError: no such pipeline.
    """
    line = _Letters.of(context, name)
    asked = RedriveRequests(line.coordinator.objects).after(0)
    return next((_status(line, request) for request in asked if request.origin == origin), None)


def withdraw(context: Context, name: str, number: int, owner: str) -> RedriveStatus:
    """Withdraws a request: no plan that is made from now on takes it up.

    Returns:
        The request; `redriven` if a checkpoint was faster. A plan that is in progress may still redrive its letters.

    Raises:
        NotFoundError: no such pipeline or request.
        StoreError: the store could not be written.
    """
    find_request(context, name, number)
    draft = RedriveWithdrawal(number=number, owner=owner, at_ms=context.clock.now_ms(), write_id=random_id())
    RedriveRequests(context.coordinator(name).objects).withdraw(draft)
    return find_request(context, name, number)


def _preview(context: Context, name: str, request: RedriveRequest) -> tuple[RedrivePreview, list[LetterRow]]:
    line, pipeline = _Letters.of(context, name), context.pipeline(name)
    uid = current_uid(pipeline, line.checked(request.uid))
    refuse_late(pipeline, uid or request.uid, out_of_order=request.out_of_order)
    wanted = replace(request.letters, limit=request.letters.limit or MOST_LETTERS + 1)
    ids = line.parent.topic_ids if sinks_behind(pipeline, uid or request.uid) else None
    is_fed = upstream_of(pipeline, uid or request.uid) is not None
    found = line.find(request.uid, wanted, ids, is_fed=is_fed)
    if not found and line.find(request.uid, replace(wanted, limit=1), ids, is_fed=not is_fed):
        raise UsageError(
            f"{request.uid} got these records from another input than today, or a release that did not keep them",
            safe="nothing was written; the letters are kept.",
            next=f"repeat its checkpoints: tidemark backfill {name} --from-checkpoint ID",
        )
    if not found and ids is not None and line.find(request.uid, replace(wanted, limit=1)):
        raise UsageError(
            f"the topic was recreated since, and {request.uid} emits to a sink, which names records by offset",
            safe="nothing was written; the letters are kept.",
            next=f"look at them: tidemark dead-letters show {name} {request.uid}; send the records again.",
        )
    if not found:
        raise NotFoundError(
            f"{request.uid} has no such dead letters", next=f"tidemark dead-letters list {name}    (lists them)."
        )
    if len(found) > MOST_LETTERS:
        raise UsageError(
            f"more than {MOST_LETTERS} dead letters",
            next=f"redrive them in parts: add --limit {MOST_LETTERS}, and repeat it after the next checkpoint.",
        )
    decoder = LetterDecoder.of(context, pipeline, uid or request.uid)
    today = Counter(raw["reason"] if decoder is None else decoder.judge(raw)[0] for _, raw in found)
    preview = RedrivePreview(
        uid=request.uid,
        timeline=line.timeline,
        letters=len(found),
        reasons=dict(Counter(raw["reason"] for _, raw in found).most_common()),
        applied=today.pop(None, 0),
        refused={str(why): count for why, count in today.most_common()},
        arrival=arrival_reasons(pipeline, uid or request.uid),
    )
    return preview, [row for row, _ in found]


@dataclass(frozen=True, kw_only=True)
class _Letters:
    """The dead letters of the live timeline."""

    context: Context
    coordinator: CheckpointCoordinator
    timeline: str
    parent: Parent
    history: RedriveHistory

    @classmethod
    def of(cls, context: Context, name: str) -> "_Letters":
        coordinator = context.coordinator(context.require_pipeline(name))
        head = coordinator.timelines.live_head()
        return cls(
            context=context,
            coordinator=coordinator,
            timeline=head.timeline,
            parent=Parent.of(head),
            history=RedriveHistory.of(coordinator.timelines, head.timeline, 0, Parent.of(head).dead_letters),
        )

    def checked(self, uid: str) -> str:
        """Returns an operator that the newest checkpoint knows."""
        if uid not in self.parent.dead_letters:
            known = ", ".join(sorted(self.parent.dead_letters)) or "none: there is no checkpoint yet"
            raise NotFoundError(f"no operator {uid!r} in the newest checkpoint", next=f"name one of: {known}.")
        return uid

    def totals(self, uid: str) -> list[DeadLetterTotals]:
        """Counts rows by reason."""
        letters, redriven = Counter[str](), Counter[str]()
        made: dict[str, list[int]] = {}
        redriven_at = self._redriven(uid)
        for checkpoint, part in self._tables(uid, [*_PLACE, "reason"]):
            gone = redriven_at.get(checkpoint, set())
            for row in part.select(["reason"]).to_pylist() if not gone else part.to_pylist():
                is_gone = bool(gone) and letter_place(row) in gone
                (redriven if is_gone else letters)[row["reason"]] += 1
                made.setdefault(row["reason"], []).append(checkpoint)
        return [
            DeadLetterTotals(
                uid=uid,
                reason=reason,
                read=self.history.read.get(uid, 0),
                letters=letters[reason],
                redriven=redriven[reason],
                first=f"chk-{min(found)}",
                last=f"chk-{max(found)}",
            )
            for reason, found in sorted(made.items(), key=lambda item: (-letters[item[0]], item[0]))
        ]

    def find(
        self,
        uid: str,
        wanted: LetterFilter,
        topic_ids: Mapping[str, str] | None = None,
        *,
        is_fed: bool | None = None,
    ) -> list[tuple[LetterRow, dict[str, Any]]]:
        """Finds letters that were not redriven, with their raw rows, oldest first.

        Args:
            uid: the operator.
            wanted: which letters.
            topic_ids: only those of these topics.
            is_fed: only records that another operator emitted, or only those that the operator read itself.
        """
        found: list[tuple[LetterRow, dict[str, Any]]] = []
        redriven = self._redriven(uid)
        for checkpoint, part in self._tables(uid, _WHOLE, wanted.checkpoint):
            gone, ids = redriven.get(checkpoint, set()), self.history.plans[checkpoint].topic_ids
            for raw in part.to_pylist():
                place = letter_place(raw)
                is_there = topic_ids is None or topic_ids.get(place[0]) == ids.get(place[0])
                is_there = is_there and is_fed in (None, bool(place[3]))
                if is_there and place not in gone and wanted.takes(raw):
                    row = LetterRow(checkpoint, place[0], ids.get(place[0], ""), *place[1:])
                    found.append((row, raw))
                    if len(found) == wanted.limit:
                        return found
        return found

    def page(
        self, uid: str, reason: str | None, limit: int, offset: int
    ) -> tuple[int, list[tuple[CheckpointPlan, dict[str, Any]]]]:
        """Returns the number of letters that were not redriven, and some of them with their plans, newest first.

        Args:
            uid: the operator.
            reason: only letters of this reason; None = any.
            limit: the most letters to return.
            offset: the number of letters to pass over.
        """
        redriven, parts, at = self._redriven(uid), list[tuple[int, int, list[int]]](), Counter[int]()
        for made, part in self._tables(uid, [*_PLACE, "reason"]):
            gone = redriven.get(made, set())
            rows = part.to_pylist() if gone else part.select(["reason"]).to_pylist()
            fitting = (n for n, row in enumerate(rows) if reason in (None, row["reason"]))
            parts.append((made, at[made], [n for n in fitting if not gone or letter_place(rows[n]) not in gone]))
            at[made] += 1
        parts.sort(key=lambda x: (-x[0], x[1]))
        all_places = ((made, number, n) for made, number, taken in parts for n in taken)
        wanted = list(islice(all_places, offset, offset + limit))
        found: dict[tuple[int, int, int], dict[str, Any]] = {}
        for made in {made for made, _, _ in wanted}:
            for number, (_, part) in enumerate(self._tables(uid, _WHOLE, made)):
                here = [place for place in wanted if place[:2] == (made, number)]
                found |= zip(here, part.take([n for *_, n in here]).to_pylist() if here else (), strict=True)
        return sum(len(taken) for *_, taken in parts), [(self.history.plans[p[0]], found[p]) for p in wanted]

    def count_rejected(self, request: RedriveRecord) -> int | None:
        """Returns how many redriven letters of a request are letters of the checkpoints that redrove them."""
        if request.uid not in self.parent.dead_letters:
            return None
        rejected = 0
        for made, given in self.history.rows_given(request).items():
            places = {row.place for row in given}
            parts = self._tables(request.uid, _PLACE, made)
            rejected += sum(letter_place(row) in places for _, part in parts for row in part.to_pylist())
        return rejected

    def _tables(self, uid: str, columns: list[str], checkpoint: int | None = None) -> Iterator[tuple[int, "pa.Table"]]:
        from tidemark.tables.row_files import read_letters

        handle = self.parent.dead_letters.get(uid, StateHandle())
        for made, part in read_letters(self.context.warehouse.root, handle, columns, checkpoint):
            if made in self.history.plans:
                yield made, part

    def _redriven(self, uid: str) -> dict[int, set[LetterPlace]]:
        """The places of an operator's redriven letters, by the checkpoint that refused them."""
        found: dict[int, set[LetterPlace]] = {}
        for row in self.history.redriven.get(uid, ()):
            found.setdefault(row.checkpoint, set()).add(row.place)
        return found


def _shown(row: LetterRow, raw: Mapping[str, Any], decoder: LetterDecoder | None) -> DeadLetter:
    why, fields = (raw["reason"], None) if decoder is None else decoder.judge(raw)
    return DeadLetter(
        partition=f"{row.topic}-{row.partition}",
        offset=row.offset,
        path=row.path,
        checkpoint=f"chk-{row.checkpoint}",
        timestamp=raw["timestamp"].isoformat(),
        reason=raw["reason"],
        today=why,
        fields=fields,
        key=text_of(raw["key"]),
        value=text_of(raw["value"], None if decoder is None else decoder.format.render),
    )


def _status(line: _Letters, request: RedriveRecord) -> RedriveStatus:
    requests, taken = RedriveRequests(line.coordinator.objects), line.history.taken_up(request)
    state: RequestState
    if taken:
        state = "redriven"
    elif requests.withdrawal(request.number) is not None:
        state = "withdrawn"
    elif request.timeline != line.timeline:
        state = "void"
    else:
        state = "waiting" if request.number > line.parent.requests_seen else "unneeded"
    return RedriveStatus(
        number=request.number,
        uid=request.uid,
        letters=request.count,
        state=state,
        checkpoint=f"chk-{taken[-1]}" if taken else None,
        redriven=sum(len(rows) for rows in line.history.rows_given(request).values()),
        rejected=line.count_rejected(request),
        timeline=request.timeline,
        owner=request.owner,
        note=request.note,
        at=iso(request.at_ms),
    )
