"""Interval joins in Python: records of both inputs become rows of one operator, and rows become pairs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from tidemark.declare.interval_join import IntervalJoin
from tidemark.model.checkpoint.emitted import windows_of
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.key_texts import short_hash
from tidemark.model.core.ttl import Now
from tidemark.model.schema.event_windows import END, START, to_ms
from tidemark.model.schema.interval_joins import (
    LEFT,
    MATCHED,
    POSITION,
    RECORDS,
    RIGHT,
    SIDE,
    SIDES,
    StoredJoin,
    at_path,
    position_text,
)
from tidemark.model.schema.key_groups import group_of
from tidemark.model.schema.operator_schema import OperatorSchema, run_columns
from tidemark.testing.twin.fold import Decoded
from tidemark.testing.twin.merge import compact_rows, resolve_rows
from tidemark.testing.twin.process import Processed, sunk_row

Row = Mapping[str, Any]
_MS = timedelta(milliseconds=1)


def joined_records(join: IntervalJoin, plan: CheckpointPlan, inputs: Mapping[str, Iterable[Decoded]]) -> list[Decoded]:
    """Returns the records of both inputs as records of the join; see `joined_struct`."""
    names, ids = [key.name for key in plan.schemas[join.uid].own_keys], plan.topic_ids
    found = []
    for side, name in zip(SIDES, join.inputs, strict=True):
        for r in inputs[name]:
            fields = {
                "side": side,
                "position": position_text(ids, r.position),
                LEFT: None,
                RIGHT: None,
                "matched": None,
            }
            key = dict(zip(names, map(r.at, join.key_by[name]), strict=True))
            found.append(replace(r, fields={**fields, "key": key, side: r.fields}))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class JoiningTask:
    """One interval join in one checkpoint.

    Attributes:
        join: the declaration.
        plan: the checkpoint's plan.
        after: the frontier after the batch; None = there is none yet.
    """

    join: IntervalJoin
    plan: CheckpointPlan
    after: int | None

    @property
    def schema(self) -> OperatorSchema:
        """The stored schema."""
        return self.plan.schemas[self.join.uid]


def join_rows(task: JoiningTask, run: Sequence[dict[str, Any]], stored: Sequence[Row]) -> Processed:
    """Returns the pairs of a batch, the left rows that stay alone, and the run; the twin of `engine.fold.joined_pairs`.

    Args:
        task: the join.
        run: the rows of the batch.
        stored: the rows of the input handle.
    """
    schema, plan, window = task.schema, task.plan, task.join.window
    new, old = resolve_rows(schema, run, Now()), resolve_rows(schema, stored, Now())
    pairs = list(_pairs(schema, window, new, old))
    matched = {_row_key(schema, left): left for left, _ in pairs} if window.keeps_unmatched else {}
    marks = [_mark(schema, plan, left) for left in matched.values()]
    made = compact_rows(schema, [*run, *marks], Now(), deepest=False)
    emitted = [_pair(task, left, right) for left, right in pairs]
    if task.after is not None:
        before, after = plan.frontier_before(schema.uid), task.after
        due = [row for row in stored if to_ms(row[END]) <= after and (before is None or to_ms(row[END]) > before)]
        due += [row for row in made if to_ms(row[END]) <= after]
        made = [row for row in made if to_ms(row[END]) > after]
        alone = resolve_rows(schema, due, Now()).values() if window.keeps_unmatched else ()
        emitted += [_alone(task, row) for row in alone if row[SIDE] == LEFT and row[MATCHED] is None]
    emitted.sort(key=lambda r: r.position)
    return Processed(
        rows=sorted(made, key=lambda row: (row["_key_group"], _row_key(schema, row))),
        emitted={schema.uid: emitted},
        sunk={schema.uid: [sunk_row(schema.uid, r) for r in emitted]},
        failed={},
    )


def _row_key(schema: OperatorSchema, row: Row) -> tuple[Any, ...]:
    return tuple(row[key.name] for key in schema.keys)


def _pairs(
    schema: OperatorSchema, window: StoredJoin, new: Mapping[Any, Row], old: Mapping[Any, Row]
) -> Iterator[tuple[Row, Row]]:
    """Yields the pairs with at least one new row."""
    by_key: dict[Any, tuple[list[tuple[bool, Row]], list[tuple[bool, Row]]]] = {}
    for is_new, rows in ((True, new), (False, old)):
        for row in rows.values():
            key = tuple(row[k.name] for k in schema.own_keys)
            by_key.setdefault(key, ([], []))[SIDES.index(row[SIDE])].append((is_new, row))
    lower, upper = window.lower_ms * _MS, window.upper_ms * _MS
    for lefts, rights in by_key.values():
        for left_is_new, left in lefts:
            for right_is_new, right in rights:
                if (left_is_new or right_is_new) and lower <= right[START] - left[START] <= upper:
                    yield left, right


def _mark(schema: OperatorSchema, plan: CheckpointPlan, left: Row) -> dict[str, Any]:
    """The operand that marks a left row."""
    key = _row_key(schema, left)
    made: dict[str, Any] = dict.fromkeys(name for name, _ in run_columns(schema))
    made |= dict(zip((k.name for k in schema.keys), key, strict=True))
    made |= {MATCHED: True, "_last_at": to_ms(left[START]), "_kind": "operand", "_changed": plan.id}
    return made | {"_key_group": group_of(schema, key)}


def _pair(task: JoiningTask, left: Row, right: Row) -> Decoded:
    path = (short_hash(left[POSITION]), short_hash(right[POSITION]))
    return _emitted(task, {LEFT: left, RIGHT: right}, max(left[START], right[START]), path)


def _alone(task: JoiningTask, left: Row) -> Decoded:
    at = left[START] + task.join.window.keeps_ms(LEFT) * _MS
    return _emitted(task, {LEFT: left, RIGHT: None}, at, (short_hash(left[POSITION]),))


def _emitted(task: JoiningTask, rows: Mapping[str, Row | None], at: Any, path: tuple[int, ...]) -> Decoded:
    place = windows_of(task.join.uid)
    records = {side: None if row is None else row[RECORDS[side]] for side, row in rows.items()}
    return Decoded(
        topic=place.topic,
        partition=place.partition,
        offset=to_ms(at),
        path=path,
        event_time=at,
        fields={found.name: at_path(records[found.side], found.path) for found in task.join.selected},
    )
