"""The worker of a process operator without Spark: batches in, batches out (operator state of one task)."""

import gc
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.operator_lists import PIPELINE, Order
from tests.support.spark import TwinPipeline
from tidemark import KafkaSource, Pipeline, Process, state
from tidemark.engine.process import process_worker
from tidemark.engine.process.arrow_values import arrow_type
from tidemark.engine.process.process_worker import (
    GROUP,
    LETTER,
    LISTS,
    RECORD,
    RUN,
    Work,
    left_of,
    stored_type,
    work_through,
)
from tidemark.engine.session.python_workers import pickle_by_value
from tidemark.model.checkpoint.segments import OperatorState, Part
from tidemark.model.schema.key_groups import key_group_ranges
from tidemark.model.schema.operator_schema import run_columns
from tidemark.processing.live_operator_state import OperatorStateType
from tidemark.processing.processor import Processing
from tidemark.processing.shapes import record_shape
from tidemark.tables.delta_tables import arrow_schema


def given_lists() -> tuple[Any, OperatorState]:
    """The operator, and lists that hold seven samples and two rules."""
    records = [Order("a", "append", "samples", f"s{n}") for n in range(7)]
    records += [Order("a", "append", "rules", f"r{n}") for n in range(2)]
    made = TwinPipeline(PIPELINE, partitions=1).checkpoint(records)
    return PIPELINE.operators[0], made.operator_states["o"]


def batch(orders: list[Order]) -> pa.RecordBatch:
    """A batch as Spark gives it to a task, keys in order."""
    schema = PIPELINE.schemas()["o"]
    columns = {
        "_k0": pa.array([o.key for o in orders], pa.string()),
        "_tag": pa.array([RECORD] * len(orders), pa.int32()),
        "topic": pa.array(["orders"] * len(orders), pa.string()),
        "partition": pa.array([0] * len(orders), pa.int32()),
        "offset": pa.array(range(len(orders)), pa.int64()),
        "_path": pa.array([[]] * len(orders), pa.list_(pa.int64())),
        "event_time": pa.array([0] * len(orders), pa.timestamp("us", tz="UTC")),
        "_at": pa.array([0] * len(orders), pa.int64()),
        "record": pa.array([vars(o) for o in orders], arrow_type(record_shape(Order).type)),
        "stored": pa.nulls(len(orders), arrow_type(stored_type(schema))),
    }
    return pa.RecordBatch.from_pydict(columns)


@pytest.fixture
def as_task(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`as_task(n, orders)`: the rows that task n of three sends back."""
    operator, state = given_lists()
    lists = OperatorStateType.of(operator, state, 3)
    processing = Processing.of(operator, PIPELINE.schemas()["o"], 2, lists=lists)
    blob = pickle_by_value(Work(processing=processing, record=record_shape(Order)), ())

    def run(n: int, orders: list[Order]) -> list[dict[str, Any]]:
        monkeypatch.setattr(process_worker, "_task", lambda: n)
        return [row for b in work_through(blob, [batch(orders)] if orders else []) for row in b.to_pylist()]

    return run


def test_a_task_gets_its_slice_and_tells_what_it_left(as_task: Any) -> None:
    orders = [
        Order("a", "pop", "samples", ""),
        Order("b", "append", "rules", "new"),
        Order("b", "append", "samples", "x"),
    ]
    rows = as_task(1, orders)
    assert [row["_tag"] for row in rows] == [RUN, RUN, LISTS]
    # Of seven elements the second of three tasks has those at 3 and 4.
    assert left_of(rows[-1]["why"]) == (
        1,
        {"samples": Part(elements=("s4", "x")), "rules": Part(elements=("new",))},
    )
    assert [row["run"]["samples"] for row in rows[:2]] == [1, 2]


def test_a_call_that_fails_leaves_no_trace(as_task: Any) -> None:
    rows = as_task(
        0, [Order("a", "append", "rules", "kept"), Order("a", "fail", "rules", ""), Order("b", "fail", "samples", "")]
    )
    assert sorted(row["_tag"] for row in rows) == [RUN, LETTER, LETTER, LISTS]
    task, left = left_of(rows[-1]["why"])
    assert task == 0
    assert left["rules"] == Part(elements=("kept",))
    assert left.get("samples", Part(elements=("s0", "s1", "s2"))).elements == ("s0", "s1", "s2")


def test_a_task_that_changes_nothing_or_has_no_records_says_nothing(as_task: Any) -> None:
    assert [row["_tag"] for row in as_task(2, [Order("a", "look", "rules", "")])] == [RUN]
    assert as_task(2, []) == []


def test_what_silent_tasks_have_is_carried_over() -> None:
    operator, state = given_lists()
    lists = OperatorStateType.of(operator, state, 3)
    assert lists is not None
    made = {x.name: x.elements for x in lists.join_parts({1: {"samples": Part(elements=("x",))}}).lists}
    assert made == {"samples": ("s0", "s1", "s2", "x", "s5", "s6"), "rules": ("r0", "r1")}
    cleared = lists.join_parts({2: {"rules": Part(elements=("y",), cleared=True)}, 0: {"rules": Part(elements=("x",))}})
    assert {x.name: x.elements for x in cleared.lists}["rules"] == ("x", "y")


@settings(max_examples=300, deadline=None)
@given(
    groups=st.integers(1, 12),
    tasks=st.integers(1, 3),
    parts=st.integers(2, 6),
    found=st.lists(st.integers(0, 11), max_size=30),
    size=st.integers(1, 7),
    data=st.data(),
)
def test_the_parts_of_a_task_cover_its_key_groups_and_its_records_in_order(
    groups: int, tasks: int, parts: int, found: list[int], size: int, data: st.DataObject
) -> None:
    tasks = min(tasks, groups)
    number = data.draw(st.integers(0, tasks - 1))
    own = key_group_ranges(groups, tasks)[number]
    mine = sorted(g for g in found if own.first <= g <= own.last)
    batches = [
        pa.RecordBatch.from_pydict({GROUP: pa.array(mine[n : n + size], pa.int32()), "record": mine[n : n + size]})
        for n in range(0, len(mine), size)
    ]
    operator, _ = given_lists()
    schema = replace(PIPELINE.schemas()["o"], key_groups=groups)
    processing = Processing.of(operator, schema, 2)
    work = Work(processing=processing, record=record_shape(Order), tasks=tasks, parts=parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_worker, "_task", lambda: number)
        told = list(process_worker._by_part(work, iter(batches)))
    ranges = [within for within, _ in told]
    assert [g for r in ranges for g in range(r.first, r.last + 1)] == list(range(own.first, own.last + 1))
    assert [[v for b in held for v in b["record"].to_pylist()] for _, held in told] == [
        [g for g in mine if r.first <= g <= r.last] for r in ranges
    ]


@dataclass(frozen=True)
class Sale:
    """A record of an operator that has only plain values."""

    shop: str
    cents: int
    at: datetime | None


class Sold(state.Keyed):
    """What a shop sold."""

    sales: int = state.value(0)
    cents: int = state.value(0)
    last: datetime | None = state.value(None)


def sell(shop: str, sales: Iterator[Sale], sold: Sold) -> None:
    """Adds the sales up; a sale of nothing forgets the shop, and the third one is the last that is read."""
    for n, sale in enumerate(sales):
        if sale.cents == 0:
            sold.clear()
        elif n == 2:
            return
        else:
            sold.sales += 1
            sold.cents += sale.cents
            sold.last = sale.at or sold.last


SHOPS = Process("sold", key_by="shop", state=Sold, function=sell)
SALES = Pipeline(name="sales", source=KafkaSource("sales", Sale), operators=[SHOPS])
NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
NAMES = ["a", "b", "ß", "z", "\U0001f600"]


def sales_batch(sales: list[tuple[str, int, bool]], first: int) -> pa.RecordBatch:
    """Sales in order of their shops, the first at an offset."""
    count, hours = len(sales), [NOON + timedelta(hours=first + n) for n in range(len(sales))]
    records = [
        {"shop": shop, "cents": cents, "at": at if timed else None}
        for (shop, cents, timed), at in zip(sales, hours, strict=True)
    ]
    columns = {
        "_k0": pa.array([shop for shop, *_ in sales], pa.string()),
        "topic": pa.array(["sales"] * count),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(first, first + count), pa.int64()),
        "_path": pa.array([[]] * count, pa.list_(pa.int64())),
        "event_time": pa.array(hours, pa.timestamp("us", tz="UTC")),
        "_at": pa.array(range(first, first + count), pa.int64()),
        "record": pa.array(records, arrow_type(record_shape(Sale).type)),
    }
    return pa.RecordBatch.from_pydict(columns)


def expected_rows(sales: list[tuple[str, int, bool]], stored: dict[str, Any]) -> dict[str, Any]:
    """The rows that the batch leaves by shop, by hand: values, or None for a tombstone."""
    found: dict[str, Any] = {}
    for shop in dict.fromkeys(shop for shop, *_ in sales):
        held, was_stored = stored.get(shop), shop in stored
        mine = [(n, cents, timed) for n, (name, cents, timed) in enumerate(sales) if name == shop]
        changed = False
        for nth, (n, cents, timed) in enumerate(mine):
            if cents == 0:
                changed, held = changed or held is not None, None
            elif nth == 2:
                break
            else:
                count, total, last = held or (0, 0, None)
                held, changed = (count + 1, total + cents, NOON + timedelta(hours=n) if timed else last), True
        if changed and (held is not None or was_stored):
            found[shop] = held
    return found


@settings(max_examples=200, deadline=None)
@given(
    sales=st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 3), st.booleans()), max_size=20),
    stored=st.dictionaries(
        st.sampled_from(NAMES), st.tuples(st.integers(1, 9), st.integers(1, 9), st.sampled_from([None, NOON]))
    ),
    size=st.integers(1, 7),
    at_once=st.integers(1, 7),
    is_first=st.booleans(),
)
def test_keys_get_their_stored_rows_however_their_records_are_cut(
    sales: list[tuple[str, int, bool]], stored: dict[str, Any], size: int, at_once: int, is_first: bool
) -> None:
    stored = {} if is_first else stored
    sales, schema = sorted(sales, key=lambda sale: sale[0]), SALES.schemas()["sold"]
    rows = [
        {"shop": k, "sales": s, "sales__at": 1, "cents": c, "cents__at": 1, "last": last, "last__at": last and 1}
        for k, (s, c, last) in stored.items()
    ]
    table = pa.Table.from_pylist(rows, arrow_schema(run_columns(schema)))
    processing = Processing.of(SHOPS, schema, 2, record=record_shape(Sale))
    reader: Any = None if is_first else lambda within, keys: table
    work = Work(processing=processing, record=record_shape(Sale), reader=reader)
    batches = [sales_batch(sales[n : n + size], n) for n in range(0, len(sales), size)]
    before = gc.get_threshold()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_worker, "_AT_ONCE", at_once)
        made = [row["run"] for b in process_worker._work_through(work, iter(batches)) for row in b.to_pylist()]
    assert gc.get_threshold() == before
    found = {
        row["shop"]: None if row["_kind"] == "tombstone" else (row["sales"], row["cents"], row["last"]) for row in made
    }
    assert found == expected_rows(sales, stored)
    assert len(made) == len(found)


def test_python_looks_for_garbage_as_before_once_a_worker_is_done_or_given_up() -> None:
    before = gc.get_threshold()
    processing = Processing.of(SHOPS, SALES.schemas()["sold"], 2, record=record_shape(Sale))
    work = Work(processing=processing, record=record_shape(Sale), reader=lambda within, keys: keys)
    blob = pickle_by_value(replace(work, reader=None), [sell, Sale, Sold])
    held = sales_batch([("a", 1, True)], 0)
    stored = pa.nulls(1, arrow_type(stored_type(work.schema)))
    tagged = held.append_column("_tag", pa.array([RECORD], pa.int32())).append_column("stored", stored)
    running: Any = work_through(blob, [tagged])
    assert next(running).column("_tag").to_pylist() == [RUN]
    assert gc.get_threshold()[0] > before[0]
    running.close()
    assert gc.get_threshold() == before
