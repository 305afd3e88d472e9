"""Two restore points, operator by operator and sink by sink: how many keys and rows differ, and the first of them.

Memory, time and rows of an answer are bounded, because the API server serves other requests, too. Checkpoints never
change, apart from an erasure, which raises their revision: so answers are remembered by id and revision.
"""

import json
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from threading import BoundedSemaphore, Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from tidemark.answers.checkpoint_comparison import (
    CheckpointComparison,
    ColumnChange,
    ComparedCheckpoint,
    KeyChange,
    OperatorComparison,
    SinkComparison,
    SinkRowChange,
)
from tidemark.answers.checkpoint_facts import iso
from tidemark.answers.checkpoint_overview import AnswerTrouble
from tidemark.context import Context
from tidemark.coordinator.records.released_checkpoints import usable
from tidemark.coordinator.records.timelines import Timelines
from tidemark.errors import BusyError, NotFoundError, TidemarkError, UsageError
from tidemark.glance import glance_at, lasting
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.core.names import parse_id
from tidemark.model.schema.operator_schema import with_state
from tidemark.operations import reads, savepoints
from tidemark.web import history_cache
from tidemark.web.history import CheckpointStatus
from tidemark.web.row_origin import plain

if TYPE_CHECKING:
    from tidemark.readers.sink_changes import SinkChange
    from tidemark.readers.value_diff import DiffBounds, ShownKey, ValueDiff

LIVE = "live"
"""Names the head of the live timeline."""
BUDGET_MS = 20_000
"""No operator is begun, and no portion of one is read, after this time."""
PATIENCE = 10.0
"""Seconds that a comparison waits for another one."""
REMEMBERED = 16
"""Answers that a process remembers."""
LONGEST = 2_000
"""Characters shown of a value."""
_TURNS = BoundedSemaphore(1)
_KINDS = ("savepoint:", "timeline:")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonQuery:
    """Selects two restore points.

    Attributes:
        left: a restore point; None = the checkpoint before the right one.
        right: another one.
        uid: only this operator and its sinks; None = all.
        limit: the most keys to return of an operator, and rows of a sink.
    """

    left: str | None = None
    right: str = LIVE
    uid: str | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    """Both checkpoints, and the id of their newest common ancestor; 0 = unknown."""

    left: Checkpoint
    right: Checkpoint
    ancestor: int

    @property
    def both(self) -> tuple[Checkpoint, Checkpoint]:
        return self.left, self.right


@dataclass(frozen=True, slots=True, kw_only=True)
class _Differences:
    """The part of an answer that is remembered."""

    operators: tuple[OperatorComparison, ...]
    sinks: tuple[SinkComparison, ...]

    @property
    def is_final(self) -> bool:
        """Whether another comparison would have the same result."""
        troubles = [*(o.trouble for o in self.operators), *(s.trouble for s in self.sinks)]
        return not any(troubles) and not any(o.unread for o in self.operators)


def compare_restore_points(context: Context, name: str, query: ComparisonQuery) -> CheckpointComparison:
    """Compares two restore points of a pipeline.

    Args:
        context: of this process.
        name: the pipeline.
        query: the restore points; see `find_restore_point`.

    Raises:
        NotFoundError: no such pipeline, restore point or operator; or retention has released one of them.
        UsageError: a name is ambiguous.
        BusyError: another comparison is running.
        StoreError: the store could not be read.
    """
    context = glance_at(context)
    timelines = reads.timelines_of(context, history_cache.require_planned(context, name))
    right = find_restore_point(context, timelines, query.right)
    left = _before(timelines, right) if query.left is None else find_restore_point(context, timelines, query.left)
    known = {*left.plan.schemas, *right.plan.schemas}
    if query.uid is not None and query.uid not in known:
        both = f"{left.plan.name} and {right.plan.name}"
        raise NotFoundError(f"{both} have no operator {query.uid!r}", next=f"name one of: {', '.join(sorted(known))}.")
    sides = _Sides(left=left, right=right, ancestor=_shared_ancestor(context, name, timelines, (left, right)))
    found = _remembered(context, name, sides, query)
    return CheckpointComparison(
        left=_describe_side(left.plan.name if query.left is None else query.left, left),
        right=_describe_side(query.right, right),
        ancestor=sides.ancestor or None,
        operators=found.operators,
        sinks=found.sinks,
    )


def without_payloads(found: CheckpointComparison) -> CheckpointComparison:
    """Returns the comparison with its counts only: without keys, rows, and sums of values."""
    operators = [
        replace(o, rows=(), columns=[replace(c, sum=None, largest=None) for c in o.columns]) for o in found.operators
    ]
    return replace(found, operators=operators, sinks=[replace(s, rows=()) for s in found.sinks])


def find_restore_point(context: Context, timelines: Timelines, text: str) -> Checkpoint:
    """Returns the checkpoint that a text names.

    Args:
        context: of this process.
        timelines: of the pipeline.
        text: `live`; a checkpoint, as in `chk-16`; the name of a savepoint or of a timeline, whose head it is. If both
            have the name, `savepoint:june` or `timeline:june`.

    Raises:
        NotFoundError: there is none, or retention has released it.
        UsageError: the name is ambiguous.
    """
    if text == LIVE:
        return usable(timelines, _head(timelines, timelines.live()))
    if text.removeprefix("chk-").isdecimal():
        return usable(timelines, timelines.checkpoint(parse_id(text)))
    kind = next((kind for kind in _KINDS if text.startswith(kind)), "")
    named, pipeline = text.removeprefix(kind), timelines.objects.pipeline
    pin = None if kind == "timeline:" else savepoints.open_savepoints(context, pipeline).find(named)
    is_pin = pin is not None and not pin.disposed
    is_timeline = kind != "savepoint:" and named in timelines.names()
    if is_pin and is_timeline:
        raise UsageError(
            f"{named!r} is a savepoint and a timeline", next=f"name savepoint:{named} or timeline:{named}."
        )
    if pin is not None and is_pin:
        return usable(timelines, timelines.checkpoint(pin.checkpoint))
    if is_timeline:
        return usable(timelines, _head(timelines, named))
    raise NotFoundError(
        f"{pipeline} has no restore point {text!r}",
        next="name a checkpoint as in chk-16, a savepoint, a timeline, or live.",
    )


def _head(timelines: Timelines, timeline: str) -> Checkpoint:
    for newest in timelines.chain(timeline):
        return newest
    raise NotFoundError(f"timeline {timeline} has no checkpoint yet", next="name another restore point.")


def _before(timelines: Timelines, right: Checkpoint) -> Checkpoint:
    if right.plan.parent is None:
        raise NotFoundError(f"{right.plan.name} is the first checkpoint", next="name another restore point.")
    return usable(timelines, timelines.checkpoint(right.plan.parent))


def _shared_ancestor(context: Context, name: str, timelines: Timelines, sides: tuple[Checkpoint, Checkpoint]) -> int:
    """`Timelines.shared_ancestor`, by the parents that the history has read: manifests of thousands take time."""
    entries = history_cache.list_entries(context, name)
    parents = {e.id: e.parent for e in entries if e.status is CheckpointStatus.COMPLETED}
    older, newer = sorted(side.id for side in sides)
    while older != newer:
        if newer not in parents:
            return timelines.shared_ancestor(*sides)
        parent = parents[newer]
        if parent is None:
            return 0
        older, newer = sorted((older, parent))
    return older


def _describe_side(asked: str, found: Checkpoint) -> ComparedCheckpoint:
    return ComparedCheckpoint(
        asked=asked,
        id=found.id,
        name=found.plan.name,
        timeline=found.plan.slot.timeline,
        logical_time=iso(found.plan.logical_time_ms),
        trigger_timestamp=found.plan.planned_at_ms,
        parent=found.plan.parent,
        replays=list(found.plan.replays),
    )


class _Cache:
    """The answers of one process, the latest ones. Thread-safe."""

    def __init__(self) -> None:
        self._found: OrderedDict[tuple[object, ...], tuple[tuple[int, ...], _Differences]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: tuple[object, ...], revisions: tuple[int, ...]) -> _Differences | None:
        """An answer; None if a manifest was revised since, because a key was erased."""
        with self._lock:
            of, found = self._found.get(key, ((), None))
            if of != revisions:
                self._found.pop(key, None)
                return None
            self._found.move_to_end(key)
            return found

    def put(self, key: tuple[object, ...], revisions: tuple[int, ...], found: _Differences) -> None:
        """Remembers an answer, in place of the one that was used least recently."""
        with self._lock:
            self._found[key] = revisions, found
            while len(self._found) > REMEMBERED:
                self._found.popitem(last=False)


_CACHES: "WeakKeyDictionary[Context, _Cache]" = WeakKeyDictionary()


def _remembered(context: Context, name: str, sides: _Sides, query: ComparisonQuery) -> _Differences:
    cache = _CACHES.setdefault(lasting(context), _Cache())
    key = (name, sides.left.id, sides.right.id, query.uid, query.limit)
    revisions = tuple(side.revision for side in sides.both)
    found = cache.get(key, revisions)
    if found is not None:
        return found
    if not _TURNS.acquire(timeout=PATIENCE):
        raise BusyError("another comparison is running", safe="nothing was changed.", next="try again.")
    try:
        found = cache.get(key, revisions) or _compare(context, sides, query)
    finally:
        _TURNS.release()
    if found.is_final:
        cache.put(key, revisions, found)
    return found


def _compare(context: Context, sides: _Sides, query: ComparisonQuery) -> _Differences:
    from tidemark.readers.value_diff import DiffBounds

    end = context.clock.now_ms() + BUDGET_MS
    bounds = DiffBounds(shown=query.limit, is_over=lambda: context.clock.now_ms() >= end)
    uids = dict.fromkeys(uid for side in reversed(sides.both) for uid in with_state(side.plan.schemas))
    outputs = dict.fromkeys(output for side in reversed(sides.both) for output in side.sinks)
    if query.uid is not None:
        uids = {uid: None for uid in uids if uid == query.uid}
        of = {output for side in sides.both for output in side.plan.sinks_of(query.uid)}
        outputs = {output: None for output in outputs if output in of}
    return _Differences(
        operators=tuple(_compare_state(context, sides, uid, bounds) for uid in uids),
        sinks=tuple(_compare_sink(context, sides, output, bounds) for output in outputs),
    )


def _refuse_late(uid: str, bounds: "DiffBounds") -> None:
    if bounds.is_over():
        raise UsageError(
            f"{uid} was not compared: the answer took {BUDGET_MS // 1000} s without it",
            safe="nothing was changed.",
            next=f"compare {uid} alone.",
        )


def _trouble_of(error: TidemarkError) -> AnswerTrouble:
    return AnswerTrouble(what=error.what, safe=error.safe, next=error.next)


def _compare_state(context: Context, sides: _Sides, uid: str, bounds: "DiffBounds") -> OperatorComparison:
    """Compares the state of one operator; why it cannot be compared is a part of the answer."""
    before, after = (with_state(side.plan.schemas).get(uid) for side in sides.both)
    schema = after or before
    assert schema is not None  # noqa: S101  (one side has it)
    made = OperatorComparison(uid=uid, status="compared", keys=[k.name for k in schema.keys])
    try:
        _refuse_late(uid, bounds)
        if before is None:
            return _with_keys(replace(made, status="right_only"), _list_side(context, sides.right, uid, bounds))
        if after is None:
            from tidemark.readers.value_diff import as_deleted

            found = as_deleted(_list_side(context, sides.left, uid, bounds))
            return _with_keys(replace(made, status="left_only"), found)
        if before.keys != after.keys:
            return replace(made, status="other_keys")
        names = [[f.name for f in side.fields] for side in (before, after)]
        added, removed = ([n for n in names[at] if n not in names[1 - at]] for at in (1, 0))
        return _with_keys(replace(made, added=added, removed=removed), _diff(context, sides, uid, bounds))
    except TidemarkError as error:
        return replace(made, status="not_compared", trouble=_trouble_of(error))


def _diff(context: Context, sides: _Sides, uid: str, bounds: "DiffBounds") -> "ValueDiff":
    from tidemark.readers.state_diff import Comparison
    from tidemark.readers.value_diff import ValueDiff, diff_by_value

    compared = Comparison(
        warehouse=context.warehouse.root, uid=uid, before=sides.left, after=sides.right, ancestor=sides.ancestor
    )
    if sides.left.handles[uid] == sides.right.handles[uid] and not compared.resolves_both:
        return ValueDiff()
    return diff_by_value(compared, bounds)


def _list_side(context: Context, side: Checkpoint, uid: str, bounds: "DiffBounds") -> "ValueDiff":
    from tidemark.readers.value_diff import list_one_side

    return list_one_side(context.warehouse.root, side, uid, bounds)


def _with_keys(made: OperatorComparison, found: "ValueDiff") -> OperatorComparison:
    return replace(
        made,
        inserted=found.inserted,
        deleted=found.deleted,
        changed=found.changed,
        equal=found.equal,
        unread=found.unread,
        columns=[
            ColumnChange(name=f.name, keys=f.keys, sum=plain(f.sum), largest=plain(f.largest)) for f in found.fields
        ],
        rows=[_key_change(key) for key in found.shown],
    )


def _key_change(found: "ShownKey") -> KeyChange:
    return KeyChange(
        key={name: _shown(value) for name, value in found.key.items()},
        change=found.change,
        before=_fields(found.before),
        after=_fields(found.after),
        changed=list(found.differing),
        checkpoint=None if found.after is None else int(found.after["_changed"]),
    )


def _fields(row: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if row is None else {name: _shown(value) for name, value in row.items() if name != "_changed"}


def _shown(value: Any) -> Any:  # noqa: ANN401
    """A value as JSON, cut if it is long."""
    made = plain(value)
    if isinstance(made, dict | list):
        text = json.dumps(made, ensure_ascii=False)
        return made if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    return f"{made[:LONGEST]}…" if isinstance(made, str) and len(made) > LONGEST else made


def _compare_sink(context: Context, sides: _Sides, output: str, bounds: "DiffBounds") -> SinkComparison:
    """Compares the rows of one sink; why they cannot be compared is a part of the answer."""
    before, after = (side.sinks.get(output) for side in sides.both)
    table = after or before
    assert table is not None  # noqa: S101  (one side has it)
    made = SinkComparison(uid=output, sink=table.name, status="compared")
    if not all(found.keeps_rows for found in (before, after) if found is not None):
        return replace(made, status="keeps_no_rows")
    is_one_sided = before is None or after is None
    status = "compared" if not is_one_sided else "right_only" if before is None else "left_only"
    empty = replace(table, handle=StateHandle())
    since = 0 if is_one_sided else sides.ancestor
    try:
        from tidemark.readers.sink_changes import compare_sinks
        from tidemark.readers.sink_reader import count_since

        _refuse_late(output, bounds)
        tables = (before or empty, after or empty)
        rows = sum(count_since(context.warehouse.root, one, since) for one in tables)
        pipeline = sides.right.plan.pipeline
        bounds.refuse_many(
            output, rows, f"compare closer restore points, or: tidemark sink show {pipeline} {table.name}"
        )
        found = compare_sinks(context.warehouse.root, output, *tables, since, bounds.shown)
        return _with_rows(replace(made, status=status), found)
    except TidemarkError as error:
        return replace(made, status="not_compared", trouble=_trouble_of(error))


def _with_rows(made: SinkComparison, found: "SinkChange") -> SinkComparison:
    return replace(
        made,
        inserted=found.inserted,
        deleted=found.deleted,
        changed=found.changed,
        equal=found.equal,
        rows=list(_row_changes(found)),
    )


def _row_changes(found: "SinkChange") -> Iterator[SinkRowChange]:
    for row, differing in zip(found.examples, found.differing, strict=True):
        yield SinkRowChange(
            change=row["change"], before=_fields(row["before"]), after=_fields(row["after"]), changed=list(differing)
        )
