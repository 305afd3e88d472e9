"""Chosen keys: a range of key groups yields exactly the rows that plain Python selects, and reads no others."""

import json
import pickle
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reading.ledger import UID as ACCOUNTS
from tests.reading.ledger import Ledger
from tests.support import typed_keys
from tests.support.disk import DiskPipeline
from tests.support.scale import cases
from tidemark import Fold, KafkaSource, Pipeline, Session, Sliding, Watermark, state
from tidemark.errors import StoreError, UsageError
from tidemark.model.schema.key_groups import group_of, key_group_ranges
from tidemark.model.state.key_choice import chosen_groups, key_choice
from tidemark.readers.state_reader import files_of, range_reader, read_state

VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "name": st.sampled_from(typed_keys.NAMES) | st.text(st.characters(exclude_categories=["Cs"]), max_size=2),
    "number": st.sampled_from(typed_keys.NUMBERS) | st.integers(-(2**63), 2**63 - 1),
    "amount": st.sampled_from(typed_keys.AMOUNTS) | st.decimals(-99, 99, places=2),
    "day": st.sampled_from(typed_keys.DAYS) | st.dates(),
    "moment": st.sampled_from(typed_keys.MOMENTS) | st.datetimes(timezones=st.just(UTC)),
    "good": st.booleans(),
}
some = st.fixed_dictionaries({}, optional={name: st.lists(value, max_size=4) for name, value in VALUES.items()})
of_a_row = st.tuples(st.sampled_from(list(typed_keys.key_rows())), st.sets(st.sampled_from(typed_keys.KEYS))).map(
    lambda found: {name: [found[0][name]] for name in typed_keys.KEYS if name not in found[1]}
)


@pytest.fixture(scope="module")
def typed() -> Iterator[tuple[Any, Any, list[dict[str, Any]]]]:
    """The schema of the typed state, its readers, and its keys."""
    with tempfile.TemporaryDirectory() as folder:
        made = typed_keys.typed_keys(Path(folder))
        schema, handle = made.plan.schemas[typed_keys.UID], made.handles[typed_keys.UID]
        yield schema, lambda choice: range_reader(folder, schema, handle, made.now, choice), list(typed_keys.key_rows())


@settings(max_examples=cases(150), deadline=None)
@given(some | of_a_row, st.integers(1, 3))
def test_chosen_keys_are_those_that_python_selects(typed: Any, wanted: dict[str, list[Any]], tasks: int) -> None:
    schema, reader, keys = typed
    expected = [row for row in keys if all(row[name] in values for name, values in wanted.items())]
    choice = key_choice(schema, wanted)
    groups = chosen_groups(schema, choice)
    if groups is not None:
        assert {group_of(schema, list(row.values())) for row in expected} <= set(groups)
    read = pickle.loads(pickle.dumps(reader(dict(choice))))  # noqa: S301  (our own pickle)
    found = [
        {name: row[name] for name in typed_keys.KEYS}
        for within in key_group_ranges(schema.key_groups, tasks)
        for batch in read(within)
        for row in batch.to_pylist()
    ]
    assert sorted(map(_shown, found)) == sorted(map(_shown, expected))


def test_times_are_instants_and_sets_are_lists(typed: Any) -> None:
    schema, *_ = typed
    there = datetime(2024, 3, 31, 3, 30, tzinfo=timezone(timedelta(hours=2)))
    assert key_choice(schema, {"moment": {there}, "amount": (Decimal("7.1"), Decimal("7.100"))}) == {
        "moment": (datetime(2024, 3, 31, 1, 30, tzinfo=UTC),),
        "amount": (Decimal("7.10"),),
    }


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("number", None),
        ("number", True),
        ("number", 1.0),
        ("number", "1"),
        ("number", 2**63),
        ("name", b"a"),
        ("name", 1),
        ("name", "\ud800"),
        ("name", ["a", None]),
        ("amount", 1),
        ("amount", Decimal("0.001")),
        ("amount", Decimal("NaN")),
        ("amount", Decimal(10) ** 8),
        ("day", datetime(2024, 1, 1)),
        ("day", "2024-01-01"),
        ("moment", datetime(2024, 1, 1)),
        ("moment", date(2024, 1, 1)),
        ("good", 1),
    ],
)
def test_a_value_of_another_type_is_refused(typed: Any, column: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"no {column} of parts") as refused:
        key_choice(typed[0], {column: value})
    assert "name (str), number (int), amount (decimal)" in refused.value.next


@pytest.mark.parametrize("column", ["count", "_key_group", "_changed", "unknown"])
def test_other_columns_are_refused(typed: Any, column: str) -> None:
    with pytest.raises(UsageError, match=f"no key column '{column}'") as refused:
        key_choice(typed[0], {column: 1})
    assert "moment (timestamp), good (bool)" in refused.value.next


def test_a_key_reads_no_row_group_but_those_of_its_key_group(tmp_path: Path) -> None:
    ledger = Ledger.at(tmp_path)
    ledger.checkpoint({("bank", n): n + 1 for n in range(600)})
    ledger.compact(9)
    made = ledger.checkpoint({("bank", 3): 1})
    handle = made.handles[ACCOUNTS]
    numbers = [77, 78]
    wanted = {group_of(ledger.schema, ("bank", number)) for number in numbers}
    assert max(wanted) - min(wanted) > 10, "with others between them"
    intact, count = _damage_all_but(wanted, [tmp_path / s.path / f.path for s, f in files_of(str(tmp_path), handle)])
    assert len(wanted) <= intact <= 2 * len(wanted)
    assert count == 39, "38 of the base, one of the run"
    (whole,) = key_group_ranges(ledger.schema.key_groups, 1)
    choice = key_choice(ledger.schema, {"bank": "bank", "number": numbers})
    read = range_reader(str(tmp_path), ledger.schema, handle, made.now, choice)
    found = [row for batch in read(whole) for row in batch.to_pylist()]
    assert {row["number"]: (row["total"], row["_changed"]) for row in found} == {
        number: ledger.book["bank", number] for number in numbers
    }
    with pytest.raises(StoreError):
        list(range_reader(str(tmp_path), ledger.schema, handle, made.now)(whole))


class Colour(Enum):
    """A field by value."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Seen:
    """One record."""

    colour: Colour
    card: UUID
    opens: time
    at: datetime


class Count(state.Keyed):
    """How many."""

    n: int = state.count()


CARD, START = UUID(int=7), datetime(2024, 5, 1, tzinfo=UTC)


def _seen(root: Path, **window: Any) -> tuple[str, Any, Any, Any]:
    source = KafkaSource("seen", Seen, event_time="at", watermark=Watermark(delay="1h") if window else None)
    by = ("colour", "card", "opens")
    made = Pipeline(name="seen", source=source, operators=[Fold("seen", key_by=by, state=Count, **window)])
    line = DiskPipeline(root, made, "seen", partitions=1)
    for minutes in ((0, 2, 30), (4, 31)):
        values = [
            {"colour": c.value, "card": str(CARD), "opens": "08:30:00", "at": _at(minute).isoformat()}
            for minute in minutes
            for c in Colour
        ]
        line.send([(0, json.dumps(value).encode(), 0) for value in values])
        last = line.checkpoint()
    return str(root), last.plan.schemas["seen"], last.handles["seen"], last.now


def _at(minute: int) -> datetime:
    return START + timedelta(minutes=minute)


def test_texts_of_other_types_are_given_as_these(tmp_path: Path) -> None:
    root, schema, handle, now = _seen(tmp_path)
    (whole,) = key_group_ranges(schema.key_groups, 1)
    wanted = {"colour": Colour.RED, "card": CARD, "opens": time(8, 30)}
    texts = {"colour": "red", "card": str(CARD).upper(), "opens": "08:30"}
    for keys in (wanted, texts):
        read = range_reader(root, schema, handle, now, key_choice(schema, keys))
        (row,) = [row for batch in read(whole) for row in batch.to_pylist()]
        assert (row["colour"], row["card"], row["opens"], row["n"]) == ("red", str(CARD), "08:30:00", 5)
    for keys in ({"colour": "green"}, {"card": "7"}, {"opens": "late"}):
        with pytest.raises(UsageError):
            key_choice(schema, keys)


@pytest.mark.parametrize("window", [Session("10m"), Sliding("10m", every="5m")], ids=["session", "sliding"])
def test_bounds_of_windows_are_those_of_merged_rows(tmp_path: Path, window: Any) -> None:
    root, schema, handle, now = _seen(tmp_path, window=window)
    every = read_state(root, schema, handle, now).to_pylist()
    assert {row["n"] for row in every} != {1}, "rows are merged"
    (whole,) = key_group_ranges(schema.key_groups, 1)
    for column in ("window_start", "window_end"):
        for value in {row[column] for row in every} | {_at(3)}:
            read = range_reader(root, schema, handle, now, key_choice(schema, {column: value, "colour": Colour.RED}))
            found = [str(row) for batch in read(whole) for row in batch.to_pylist()]
            expected = [str(row) for row in every if row[column] == value and row["colour"] == "red"]
            assert sorted(found) == sorted(expected)


def _shown(row: dict[str, Any]) -> str:
    return repr([v.timestamp() if isinstance(v, datetime) else v for v in row.values()])


def _damage_all_but(key_groups: set[int], paths: list[Path]) -> tuple[int, int]:
    """Overwrites the pages of all row groups that cannot have a key group; returns how many are intact, and of all."""
    intact = count = 0
    for path in paths:
        raw, meta = bytearray(path.read_bytes()), pq.read_metadata(path)
        for group in (meta.row_group(n) for n in range(meta.num_row_groups)):
            count += 1
            columns = [group.column(n) for n in range(group.num_columns)]
            (held,) = [c.statistics for c in columns if c.path_in_schema == "_key_group"]
            if any(held.min <= key_group <= held.max for key_group in key_groups):
                intact += 1
                continue
            for column in columns:
                start = column.dictionary_page_offset or column.data_page_offset
                raw[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
        path.write_bytes(raw)
    return intact, count
