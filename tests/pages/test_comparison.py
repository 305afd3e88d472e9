"""A comparison of two restore points equals one of plain dicts: keys, fields and rows of sinks, on any timelines."""

import json
import math
import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext
from tests.support.trips import TripsPipeline, settings_of
from tidemark import DeltaSink, Fold, KafkaSource, Pipeline, Process, state
from tidemark.answers.checkpoint_comparison import CheckpointComparison, OperatorComparison, SinkComparison
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.released_checkpoints import usable
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.errors import BusyError, NotFoundError, ReleasedError, UsageError
from tidemark.model.checkpoint.codec import body_of
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Checkpoint, Revised
from tidemark.model.checkpoint.store_objects import Failure
from tidemark.model.retention.savepoint import SavepointRequest, TombstoneKind
from tidemark.operations import savepoints, timelines
from tidemark.readers.state_diff import Comparison
from tidemark.readers.value_diff import DiffBounds, ValueDiff, diff_by_value
from tidemark.web import comparison
from tidemark.web.comparison import ComparisonQuery, compare_restore_points

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", "20241121"))
HOSTILE = "<img src=x onerror=alert(1)>'\"\u202e"
SHOPS = ("a", "b", "süd", HOSTILE)
ITEMS = (-1, 0, 7, 2**60)


@dataclass(frozen=True)
class Move:
    """A record: goods that a shop gets."""

    shop: str
    item: int
    amount: int
    note: str | None


class Stock(state.Keyed):
    """A fold by two keys, with a mean."""

    moves: int = state.count()
    total: int | None = state.sum("amount")
    mean: float | None = state.mean("amount")


class Later(state.Keyed):
    """The same with one field less and another one more."""

    moves: int = state.count()
    total: int | None = state.sum("amount")
    most: int | None = state.max("amount")


class Points(state.Keyed):
    """A process that forgets keys, with a value that may be null."""

    points: int = state.value(0)
    note: str | None = state.value(None)
    seen: list[int] = state.list()


class Visits(state.Keyed):
    """An operator that later code adds."""

    visits: int = state.count()


@dataclass(frozen=True)
class Alert:
    """A row of the sink."""

    shop: str
    points: int


def scoring(factor: int) -> Any:
    """The function of the process; other code has another factor."""

    def score(shop: str, moves: Iterable[Move], kept: Points) -> Iterator[Alert]:
        for move in moves:
            kept.points += move.amount * factor
            kept.note = move.note
            kept.seen.append(move.amount)
            if move.amount > 5:
                yield Alert(shop, move.amount * factor)
            if move.amount == 0:
                kept.clear()

    return score


def stock(factor: int = 1, fields: type[state.Keyed] = Stock, *, more: bool = False) -> Pipeline:
    return Pipeline(
        name="stock",
        source=KafkaSource("moves", Move),
        operators=[
            Fold("stock", key_by=("shop", "item"), state=fields),
            Process(
                "points", key_by="shop", state=Points, function=scoring(factor), emits=Alert, sink=DeltaSink("alerts")
            ),
            *([Fold("visits", key_by="shop", state=Visits)] if more else []),
        ],
    )


Applied = tuple[int, Move, int]
"""The number of a record, the record, and the factor of the code that applied it."""


@dataclass
class Depot:
    """A warehouse with timelines, and for each checkpoint the records that lead to it, in order."""

    line: DiskPipeline
    context: DiskContext
    chance: random.Random
    sent: list[Move] = field(default_factory=list)
    applied: dict[int, list[Applied]] = field(default_factory=dict)
    heads: dict[str, int] = field(default_factory=dict)
    parents: dict[int, int] = field(default_factory=dict)

    @classmethod
    def at(cls, root: Path, seed: int = SEED) -> "Depot":
        print(f"seed {seed}; repeat with TIDEMARK_TEST_SEED={seed}")
        line = DiskPipeline(root / "warehouse", stock(), "moves")
        return cls(line, DiskContext(line, settings_of(root)), random.Random(seed))

    def send(self, count: int) -> None:
        for _ in range(count):
            chance = self.chance
            move = Move(
                chance.choice(SHOPS),
                chance.choice(ITEMS),
                chance.choice([0, 1, 2, 6, 9]),
                chance.choice([None, HOSTILE]),
            )
            self.sent.append(move)
            value = json.dumps(vars(move)).encode()
            # Records of a shop keep their order, wherever barriers cut.
            self.line.send([(self.partition(len(self.sent) - 1), value, 1)])

    def checkpoint(self, timeline: str = "t1", factor: int = 1, **code: Any) -> int:
        self.line.pipeline = stock(factor, **code)
        made = self.line.checkpoint(timeline=None if timeline == "t1" else timeline)
        before = self.applied.get(self.heads.get(timeline, 0), [])
        new = [(n, move, factor) for n, move in enumerate(self.sent)][len(before) :]
        self.applied[made.id] = [*before, *new]
        self.parents[made.id] = self.heads.get(timeline, 0)
        self.heads[timeline] = made.id
        return made.id

    def partition(self, record: int) -> int:
        return SHOPS.index(self.sent[record].shop) % 2

    def fork(self, at: int, name: str) -> None:
        coordinator = self.line.coordinator
        Recovery(coordinator=coordinator).fork(RestorePoint(checkpoint=coordinator.checkpoint(at)), name)
        self.heads[name] = at

    def ancestor(self, one: int, other: int) -> int:
        above = [one]
        while above[-1]:
            above.append(self.parents[above[-1]])
        while other not in above:
            other = self.parents[other]
        return other

    def compare(self, left: object, right: object, **more: Any) -> CheckpointComparison:
        query = ComparisonQuery(left=f"chk-{left}", right=f"chk-{right}", **more)
        return compare_restore_points(self.context, "stock", query)


Rows = dict[tuple[Any, ...], dict[str, Any]]


def stock_of(applied: Sequence[Applied]) -> Rows:
    """The fold: a row per shop and item."""
    amounts: dict[tuple[Any, ...], list[int]] = {}
    for _, move, _ in applied:
        amounts.setdefault((move.shop, move.item), []).append(move.amount)
    return {
        key: {"moves": len(of), "total": sum(of), "mean": math.fsum(of) / len(of), "most": max(of)}
        for key, of in amounts.items()
    }


def points_of(applied: Sequence[Applied]) -> Rows:
    """The process: a row per shop that it remembers."""
    rows: Rows = {}
    for _, move, factor in applied:
        row = rows.get((move.shop,), {"points": 0, "note": None, "seen": []})
        points = row["points"] + move.amount * factor
        rows[(move.shop,)] = {"points": points, "note": move.note, "seen": [*row["seen"], move.amount]}
        if move.amount == 0:
            del rows[(move.shop,)]
    return rows


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return bool(one == other)


@dataclass(frozen=True)
class Expected:
    """A comparison of two plain dicts, over fields that both have."""

    before: Rows
    after: Rows
    fields: tuple[str, ...]

    def differing(self, key: tuple[Any, ...]) -> list[str]:
        if key not in self.before or key not in self.after:
            return []
        return [f for f in self.fields if not same(self.before[key][f], self.after[key][f])]

    @property
    def changes(self) -> dict[tuple[Any, ...], str]:
        found = {}
        for key in sorted(self.before.keys() | self.after.keys()):
            if key not in self.before:
                found[key] = "inserted"
            elif key not in self.after:
                found[key] = "deleted"
            elif self.differing(key):
                found[key] = "changed"
        return found

    def count(self, change: str) -> int:
        return [*self.changes.values()].count(change)


def as_json(value: Any) -> Any:
    """Integers that a reader of JSON could round are text."""
    return str(value) if isinstance(value, int) and abs(value) > 2**53 else value


def check_state(found: OperatorComparison, expected: Expected, limit: int, touched: set[tuple[Any, ...]]) -> None:
    assert found.trouble is None, found.trouble
    counts = {change: expected.count(change) for change in ("inserted", "changed", "deleted")}
    assert {change: getattr(found, change) for change in counts} == counts
    assert found.unread == 0
    changes = expected.changes
    alive = expected.before.keys() & expected.after.keys()
    assert found.equal == len((touched & alive) - changes.keys())
    by_field = {f: sum(f in expected.differing(key) for key in changes) for f in expected.fields}
    assert {c.name: c.keys for c in found.columns} == {f: n for f, n in by_field.items() if n}
    for column in found.columns:
        both = [k for k in changes if column.name in expected.differing(k)]
        values = [(expected.before[k][column.name], expected.after[k][column.name]) for k in both]
        if all(isinstance(v, int | float) for pair in values for v in pair):
            assert column.sum == pytest.approx(sum(b - a for a, b in values))
            assert column.largest == pytest.approx(max(abs(b - a) for a, b in values))
        else:
            assert (column.sum, column.largest) == (None, None)
    assert [tuple(row.key.values()) for row in found.rows] == [tuple(map(as_json, k)) for k in [*changes][:limit]]
    for row, key in zip(found.rows, changes, strict=False):
        assert row.change == changes[key]
        assert sorted(row.changed) == sorted(expected.differing(key))
        for side, rows in ((row.before, expected.before), (row.after, expected.after)):
            if key not in rows:
                assert side is None
                continue
            assert side is not None
            assert all(same(side[f], rows[key][f]) for f in expected.fields), (key, side)


def alerts(applied: Sequence[Applied]) -> dict[int, dict[str, Any]]:
    """Rows of the sink, by the number of the record."""
    return {n: {"shop": m.shop, "points": m.amount * factor} for n, m, factor in applied if m.amount > 5}


def check_sink(found: SinkComparison, depot: Depot, one: int, other: int, limit: int) -> None:
    shared = len(depot.applied.get(depot.ancestor(one, other), []))
    left, right = depot.applied[one], depot.applied[other]
    before, after = alerts(left[shared:]), alerts(right[shared:])
    both = before.keys() & after.keys()
    changed = {n for n in both if before[n] != after[n]}
    counts = (len(after.keys() - both), len(before.keys() - both), len(changed), len(both - changed))
    assert (found.inserted, found.deleted, found.changed, found.equal) == counts
    assert found.trouble is None
    # In order of their ids: the partition, then the offset.
    places = sorted((depot.partition(n), n) for n in {*before, *after} if n not in both - changed)
    expected = []
    for _, n in places[:limit]:
        was, is_now = before.get(n), after.get(n)
        change = "inserted" if was is None else "deleted" if is_now is None else "changed"
        expected.append((change, was, is_now, ["points"] if change == "changed" else []))
    assert [(r.change, r.before, r.after, list(r.changed)) for r in found.rows] == expected


def touched_since(depot: Depot, one: int, other: int, *keys: str) -> set[tuple[Any, ...]]:
    shared = len(depot.applied.get(depot.ancestor(one, other), []))
    new = [*depot.applied[one][shared:], *depot.applied[other][shared:]]
    return {tuple(getattr(move, key) for key in keys) for _, move, _ in new}


def check(depot: Depot, one: int, other: int, limit: int = 100) -> CheckpointComparison:
    found = depot.compare(one, other, limit=limit)
    left, right = depot.applied[one], depot.applied[other]
    by = {operator.uid: operator for operator in found.operators}
    assert (found.left.id, found.right.id, found.ancestor) == (one, other, depot.ancestor(one, other) or None)
    folded = Expected(stock_of(left), stock_of(right), ("moves", "total", "mean"))
    check_state(by["stock"], folded, limit, touched_since(depot, one, other, "shop", "item"))
    scored = Expected(points_of(left), points_of(right), ("points", "note", "seen"))
    check_state(by["points"], scored, limit, touched_since(depot, one, other, "shop"))
    check_sink(found.sinks[0], depot, one, other, limit)
    json.dumps(body_of(found))
    return found


@pytest.mark.parametrize("seed", range(SEED, SEED + 4))
def test_any_two_checkpoints_are_compared_as_plain_dicts_are(tmp_path: Path, seed: int) -> None:
    depot = Depot.at(tmp_path, seed)
    chance = depot.chance
    codes = {"t1": 1}
    for n in range(9):
        depot.send(chance.choice((0, 2, 7)))
        name = chance.choice([*codes])
        depot.checkpoint(name, codes[name])
        if chance.random() < 0.5:
            uid = chance.choice(("stock", "points"))
            depot.line.compact(uid, full=chance.random() < 0.5, timeline=None if name == "t1" else name)
        if n % 4 == 2:
            depot.fork(chance.choice([*depot.applied]), f"fork-{n}")
            codes[f"fork-{n}"] = chance.choice((1, 2))
    pairs = chance.sample([(a, b) for a in depot.applied for b in depot.applied], 12)
    kinds = {row.change for a, b in pairs for o in check(depot, a, b).operators for row in o.rows}
    assert kinds == {"inserted", "changed", "deleted"}, "a story in which nothing happens proves nothing"


def test_a_limit_cuts_rows_and_not_counts(tmp_path: Path) -> None:
    depot = Depot.at(tmp_path)
    depot.send(4)
    depot.checkpoint()
    depot.send(40)
    depot.checkpoint()
    for limit in (0, 1, 3):
        found = check(depot, 1, 2, limit)
        assert max([*(len(o.rows) for o in found.operators), *(len(s.rows) for s in found.sinks)]) == limit


def test_an_operator_of_one_side_has_all_of_its_keys_there(tmp_path: Path) -> None:
    depot = Depot.at(tmp_path)
    depot.send(10)
    depot.checkpoint()
    depot.send(10)
    depot.checkpoint(more=True)
    later: dict[str, int] = {}
    for move in depot.sent[10:]:
        later[move.shop] = later.get(move.shop, 0) + 1
    for sides, status, change in (((1, 2), "right_only", "inserted"), ((2, 1), "left_only", "deleted")):
        found = {o.uid: o for o in depot.compare(*sides).operators}["visits"]
        assert (found.status, getattr(found, change), len(found.columns)) == (status, len(later), 0)
        assert [(r.key["shop"], r.change) for r in found.rows] == [(shop, change) for shop in sorted(later)]
        shown = [(r.after if change == "inserted" else r.before) for r in found.rows]
        assert shown == [{"visits": later[shop]} for shop in sorted(later)]
        assert all((r.before if change == "inserted" else r.after) is None for r in found.rows)


def test_two_schemas_are_compared_by_the_fields_that_both_have(tmp_path: Path) -> None:
    depot = Depot.at(tmp_path)
    depot.send(8)
    depot.checkpoint()
    depot.send(8)
    depot.checkpoint(fields=Later)
    left, right = (stock_of(depot.applied[n]) for n in (1, 2))
    found = {o.uid: o for o in depot.compare(1, 2).operators}["stock"]
    assert (list(found.added), list(found.removed)) == (["most"], ["mean"])
    touched = touched_since(depot, 1, 2, "shop", "item")
    check_state(found, Expected(left, right, ("moves", "total")), 100, touched)
    back = {o.uid: o for o in depot.compare(2, 1).operators}["stock"]
    assert (list(back.added), list(back.removed)) == (["mean"], ["most"])
    check_state(back, Expected(right, left, ("moves", "total")), 100, touched)


def two(depot: Depot) -> Comparison:
    """Two checkpoints of the fold with many changed keys."""
    depot.send(12)
    first = depot.checkpoint()
    depot.send(30)
    last = depot.checkpoint()
    find = depot.line.coordinator.checkpoint
    return Comparison(warehouse=str(depot.line.root), uid="stock", before=find(first), after=find(last), ancestor=first)


def parts(found: ValueDiff) -> Mapping[str, Any]:
    """A diff without the last bits of sums."""
    fields = [(f.name, f.keys, pytest.approx(f.sum), pytest.approx(f.largest)) for f in found.fields]
    return {
        "counts": (found.inserted, found.deleted, found.changed, found.equal),
        "fields": fields,
        "shown": found.shown,
    }


def test_portions_of_any_size_give_the_same(tmp_path: Path) -> None:
    compared = two(Depot.at(tmp_path))
    whole = diff_by_value(compared, DiffBounds())
    assert whole.changed > 3 and whole.inserted > 0
    for size in (1, 2, 3):
        found = diff_by_value(compared, DiffBounds(portion=size))
        assert parts(found) == parts(whole)


def test_what_was_not_read_in_time_is_said(tmp_path: Path) -> None:
    compared = two(Depot.at(tmp_path))
    whole = diff_by_value(compared, DiffBounds())
    answers = iter([False, False, True])
    found = diff_by_value(compared, DiffBounds(portion=1, is_over=lambda: next(answers)))
    assert (found.inserted, found.deleted) == (whole.inserted, whole.deleted), "these are exact anyway"
    assert found.changed + found.equal == 2
    assert found.changed + found.equal + found.unread == whole.changed + whole.equal


def test_too_many_rows_are_refused_with_a_command_that_has_no_limit(tmp_path: Path) -> None:
    depot = Depot.at(tmp_path)
    compared = two(depot)
    newer = len({(move.shop, move.item) for move in depot.sent[12:]})
    diff_by_value(compared, DiffBounds(stored=newer))
    with pytest.raises(UsageError) as refused:
        diff_by_value(compared, DiffBounds(stored=newer - 1))
    assert refused.value.next == "tidemark state diff stock stock --from chk-1 --to chk-2 --values"
    depot.line.compact("stock", full=True)
    last = depot.line.coordinator.checkpoint(depot.checkpoint())
    assert len(last.handles["stock"].segments) == 1
    both = compared.before.handles["stock"].rows + last.handles["stock"].rows
    with pytest.raises(UsageError):
        diff_by_value(replace(compared, after=last), DiffBounds(stored=both - 1))
    diff_by_value(replace(compared, after=last), DiffBounds(stored=both))


def test_an_operator_that_cannot_be_compared_says_why_and_the_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    depot = Depot.at(tmp_path)
    two(depot)
    (file,) = (depot.line.root / "stock/state/points").rglob("runs/2.*/*.parquet")
    file.unlink()
    found = {o.uid: o for o in depot.compare(1, 2).operators}
    assert (found["points"].status, found["stock"].status) == ("not_compared", "compared")
    assert found["points"].trouble is not None and "is gone" in found["points"].trouble.what
    monkeypatch.setattr(comparison, "BUDGET_MS", 0)
    late = depot.compare(1, 2, uid="stock")
    assert late.operators[0].trouble is not None and "compare stock alone" in late.operators[0].trouble.next


def test_one_operator_is_compared_with_its_sinks(tmp_path: Path) -> None:
    depot = Depot.at(tmp_path)
    two(depot)
    assert [(o.uid) for o in depot.compare(1, 2, uid="stock").operators] == ["stock"]
    assert depot.compare(1, 2, uid="stock").sinks == ()
    assert [s.sink for s in depot.compare(1, 2, uid="points").sinks] == ["alerts"]
    with pytest.raises(NotFoundError, match="no operator 'nothing'"):
        depot.compare(1, 2, uid="nothing")


def test_long_values_are_cut(tmp_path: Path) -> None:
    depot = Depot.at(tmp_path)
    depot.send(1)
    depot.checkpoint()
    depot.sent = []
    line = depot.line
    line.send([(0, json.dumps(vars(Move("a", 1, 3, "n" * 3000))).encode(), 1)])
    line.checkpoint()
    points = next(o for o in depot.compare(1, 2).operators if o.uid == "points")
    (row,) = (r for r in points.rows if r.key == {"shop": "a"})
    assert row.after is not None and row.after["note"] == "n" * comparison.LONGEST + "…"


def pin(world: TripsPipeline, name: str, checkpoint: int) -> None:
    request = SavepointRequest(name=name, owner="me", origin="test", checkpoint=checkpoint)
    savepoints.open_savepoints(world.pages, "trips").create(request)


def ids(world: TripsPipeline, **query: Any) -> tuple[int, int]:
    found = compare_restore_points(world.pages, "trips", ComparisonQuery(**query))
    return found.left.id, found.right.id


@pytest.fixture
def named(world: TripsPipeline) -> TripsPipeline:
    """chk-1 to 3 on t1; a savepoint `kept` of 1, a fork `what-if` from 2 with chk-4, an empty fork `bare` from 1."""
    for bus in "abc":
        world.checkpoint(bus)
    pin(world, "kept", 1)
    timelines.fork(world.pages, "trips", "what-if", RestoreRequest(checkpoint=2))
    timelines.fork(world.pages, "trips", "bare", RestoreRequest(checkpoint=1))
    assert world.line.checkpoint(timeline="what-if").id == 4
    return world


def test_restore_points_have_all_of_their_names(named: TripsPipeline) -> None:
    assert ids(named) == (2, 3), "the live head and the checkpoint before it"
    assert ids(named, right="chk-2") == (1, 2)
    assert ids(named, left="live", right="what-if") == (3, 4)
    assert ids(named, left="kept", right="timeline:bare") == (1, 1)
    assert ids(named, left="savepoint:kept", right="3") == (1, 3)
    found = compare_restore_points(named.pages, "trips", ComparisonQuery(left="live", right="what-if"))
    assert (found.ancestor, found.left.asked, found.right.timeline) == (2, "live", "what-if")
    assert found.operators[0].changed == found.operators[0].inserted == 0
    assert found.operators[0].equal == 1, "both have read the same record"


@pytest.mark.parametrize(
    "text", ["nothing", "chk-9", "9" * 30, "savepoint:what-if", "timeline:kept", "timeline:", "<script>", "../t1", ""]
)
def test_other_names_are_not_found(named: TripsPipeline, text: str) -> None:
    with pytest.raises((NotFoundError, UsageError)):
        ids(named, left=text)


def test_the_first_checkpoint_has_none_before_it_and_a_new_pipeline_none_at_all(world: TripsPipeline) -> None:
    plan = world.plan()
    with pytest.raises(NotFoundError):
        ids(world)
    world.line.coordinator.abort(plan, failure())
    world.checkpoint("a")
    with pytest.raises(NotFoundError, match="chk-2 is the first checkpoint"):
        ids(world)


def failure() -> Failure:
    return Failure(reason=FailureReason.DECLINED, message="no", next="run it again.")


def test_a_name_of_a_savepoint_and_of_a_timeline_is_ambiguous(named: TripsPipeline) -> None:
    pin(named, "bare", 3)
    with pytest.raises(UsageError, match="'bare' is a savepoint and a timeline"):
        ids(named, left="bare")
    assert ids(named, left="timeline:bare", right="savepoint:bare") == (1, 3)


def test_a_disposed_savepoint_and_a_released_checkpoint_are_not_compared(named: TripsPipeline) -> None:
    opened = savepoints.open_savepoints(named.pages, "trips")
    pin(named, "gone", 3)
    opened.dispose("gone")
    with pytest.raises(NotFoundError, match="no restore point 'gone'"):
        ids(named, left="gone")
    raised, _ = opened.tombstones.raise_for(TombstoneKind.CHECKPOINT, "chk-2", "keep_last(1)")
    assert opened.tombstones.confirm(raised)
    with pytest.raises(ReleasedError, match="chk-2 was released"):
        ids(named, left="chk-2")


def test_an_answer_is_remembered_until_a_manifest_is_revised(
    named: TripsPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Checkpoint] = []
    real = comparison._compare

    def counted(context: Any, sides: Any, query: Any) -> Any:
        made.append(sides.right)
        return real(context, sides, query)

    monkeypatch.setattr(comparison, "_compare", counted)
    assert [ids(named), ids(named), ids(named, right="chk-3")] == [(2, 3)] * 3
    assert len(made) == 1
    named.checkpoint("d")
    assert ids(named) == (3, 5), "live is another checkpoint now"
    assert len(made) == 2
    erased = Revised(revision=1, predecessor="0" * 64, erasure=1, commits=(), at_ms=0, write_id="w")
    revised = replace(named.line.coordinator.checkpoint(5), revised=erased)
    monkeypatch.setattr(comparison, "usable", lambda t, c: revised if c.id == 5 else usable(t, c))
    assert ids(named) == (3, 5) and len(made) == 3
    for n in range(comparison.REMEMBERED):
        ids(named, limit=n)
    assert len(made) == 3 + comparison.REMEMBERED
    ids(named)
    assert len(made) == 4 + comparison.REMEMBERED, "the oldest is forgotten"


def test_one_comparison_runs_at_a_time(named: TripsPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "PATIENCE", 0.01)
    assert comparison._TURNS.acquire(timeout=1)
    try:
        with pytest.raises(BusyError):
            ids(named)
    finally:
        comparison._TURNS.release()
    assert ids(named) == (2, 3)
