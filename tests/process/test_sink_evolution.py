"""What a sink receives changes from checkpoint to checkpoint: refused before a plan, or read as one table (C9)."""

import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.support.disk import DiskPipeline
from tests.support.schema_changes import TYPES
from tests.unit.model.test_evolution import _table
from tidemark import DeltaSink, KafkaSource, Pipeline, Process, state
from tidemark.coordinator.checkpoints.loop import list_undelivered
from tidemark.engine.state.resolve_sql import union_of
from tidemark.engine.state.state_files import SparkWarehouse
from tidemark.errors import IncompatibleStateError
from tidemark.model.checkpoint.codec import from_json, to_json
from tidemark.model.checkpoint.segments import Segment, StateHandle, is_base
from tidemark.model.checkpoint.sinks import Columns, SinkTable
from tidemark.model.core.types import FieldType, Precision
from tidemark.model.state.row_compaction import RowPolicy
from tidemark.model.state.sink_evolution import evolved_sink, sink_misfits, sources_of
from tidemark.readers.sink_reader import read_sink
from tidemark.sinks import KafkaSink

Narrow = Annotated[Decimal, Precision(10, 2)]
Wide = Annotated[Decimal, Precision(20, 2)]
BASE = "p/sinks/s/t1~v2"
INT, TEXT, CENTS, MORE = "BIGINT", "STRING", "DECIMAL(10,2)", "DECIMAL(20,2)"
CHANGES: dict[str, tuple[Columns, Columns]] = {
    "nothing": ((("a", INT),), (("a", INT),)),
    "field added": ((("a", INT),), (("a", INT), ("b", TEXT))),
    "field removed": ((("a", INT), ("b", TEXT)), (("a", INT),)),
    "field renamed": ((("a", INT),), (("b", INT),)),
    "order of fields": ((("a", INT), ("b", TEXT)), (("b", TEXT), ("a", INT))),
    "more digits of a Decimal": ((("a", CENTS),), (("a", MORE),)),
    "fewer digits of a Decimal": ((("a", MORE),), (("a", CENTS),)),
    "another type": ((("a", INT),), (("a", TEXT),)),
    "field of a dataclass added": ((("a", f"STRUCT<`x`: {INT}>"),), (("a", f"STRUCT<`x`: {INT}, `y`: {INT}>"),)),
    "field of a dataclass removed": ((("a", f"STRUCT<`x`: {INT}, `y`: {INT}>"),), (("a", f"STRUCT<`x`: {INT}>"),)),
    "order of the fields of a dataclass": (
        (("a", f"STRUCT<`x`: {INT}, `y`: {TEXT}>"),),
        (("a", f"STRUCT<`y`: {TEXT}, `x`: {INT}>"),),
    ),
    "the same in lists and dicts": (
        (("a", f"MAP<STRING, ARRAY<STRUCT<`x`: {CENTS}>>>"),),
        (("a", f"MAP<STRING, ARRAY<STRUCT<`y`: {TEXT}, `x`: {MORE}>>>"),),
    ),
    "member added to an Enum, or removed": ((("a", TEXT),), (("a", TEXT),)),
}


def sink(columns: Columns, through: int = 0) -> SinkTable:
    """A sink with rows up to a checkpoint."""
    own = Segment(after=0, through=through, path=BASE, version=1, rows=1, bytes=1, files=1) if through else None
    return SinkTable(
        name="s", kind="delta", path=BASE, columns=columns, handle=StateHandle(() if own is None else (own,))
    )


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_answered_as_the_page_says(name: str) -> None:
    old, new = (sink(columns, through) for columns, through in zip(CHANGES[name], (3, 0), strict=True))
    answer, tables, _ = _table("change of what a sink receives")[name]
    found = sink_misfits("u", old, new)
    assert answer == ("refused" if found else "yes")
    if not found:
        assert tables == ("the same" if evolved_sink(old, new, 4).path == BASE else "new")
    assert all(m.uid == "u" and "in sink s" in m.what and "sink of another name" in m.remedy for m in found)


def test_the_page_has_a_row_for_every_change_and_no_other() -> None:
    heading = "change of what a sink receives"
    null = "null allowed, or no longer"  # is no part of the columns of a sink
    assert set(_table(heading)) - {"", null} == set(CHANGES)
    assert _table(heading)[null][:2] == ["yes", "the same"]


IN_COLUMNS = dict.fromkeys(("UUID", "time", "Enum(x, y)", "Enum(x, y, z)"), "str") | {"Enum(1, 2)": "int"}
BOTH = dict.fromkeys(("dataclass(a, b)", "dataclass(a, b or None)", "dataclass(a, b = 0)"), "dataclass(a, b)")
"""The types of columns: forms, members, defaults, and whether null is legal, are no part of them."""


@pytest.mark.parametrize("new", TYPES)
@pytest.mark.parametrize("old", TYPES)
def test_types_are_judged_as_those_of_state_by_what_a_column_has_of_them(old: str, new: str) -> None:
    columns = IN_COLUMNS | BOTH
    before, now = columns.get(old, old), columns.get(new, new)
    # An added field is null in old rows, whether the declaration allows null or not.
    now = "dataclass(a, b or None)" if new in BOTH else now
    cell = _table("type")[before][list(TYPES).index(now)]
    found = sink_misfits("u", sink((("a", _sql(old)),), 3), sink((("a", _sql(new)),)))
    nulls = {old, new} == {"list[int]", "list[int or None]"}
    assert (not found) == (nulls or cell in ("same", "yes"))


def _sql(name: str) -> str:
    kind: FieldType = TYPES[name]
    return kind.sql


def test_a_field_that_comes_back_begins_anew_and_may_have_another_type() -> None:
    one = evolved_sink(sink((("a", INT), ("b", INT)), 3), sink((("a", INT),)), 4)
    assert (one.path, dict(one.older)) == (f"{BASE}~4", {BASE: (("a", INT),)})
    again = evolved_sink(one, sink((("a", INT),)), 5)
    assert (again.path, again.older, again.handle) == (one.path, one.older, one.handle), "as long as nothing changes"
    back = sink((("a", INT), ("b", TEXT)))
    assert not sink_misfits("u", one, back)
    assert sources_of(evolved_sink(one, back, 5), BASE) == {"a": INT}


def test_a_sink_of_one_declaration_is_stored_as_before_there_was_a_choice() -> None:
    plain, changed = sink((("a", INT),), 3), evolved_sink(sink((("a", INT),), 3), sink((("b", INT),)), 4)
    assert "older" not in to_json(plain)
    for table in (plain, changed):
        assert from_json(SinkTable, json.loads(json.dumps(to_json(table))), "x") == table


@dataclass(frozen=True)
class Row:
    """One record: the values that are emitted, as JSON."""

    who: str
    n: int


class Kept(state.Keyed):
    """Nothing of interest."""

    n: int = state.value(0)


@dataclass(frozen=True)
class Part:
    """A nested dataclass."""

    x: int
    y: Narrow


@dataclass(frozen=True)
class More:
    """The same with another field, in another order, and more digits."""

    y: Wide
    z: str
    x: int


Fields = Mapping[str, Any]
POOL: dict[str, tuple[Any, Any]] = {
    "int": (int, lambda n: n),
    "str": (str, lambda n: f"t{n}"),
    "narrow": (Narrow, lambda n: Decimal(n) / 100),
    "wide": (Wide, lambda n: Decimal(n) / 100),
    "maybe": (int | None, lambda n: n if n % 2 else None),
    "part": (Part | None, lambda n: Part(n, Decimal(n) / 100) if n % 2 else None),
    "more": (More | None, lambda n: More(Decimal(n) / 100, f"t{n}", n) if n % 2 else None),
    "parts": (dict[str, list[Part]], lambda n: {f"k{n}": [Part(n, Decimal(n) / 100)] * (n % 3)}),
    "mores": (dict[str, list[More]], lambda n: {f"k{n}": [More(Decimal(n) / 100, f"t{n}", n)] * (n % 3)}),
}
WIDER = {("narrow", "wide"), ("part", "more"), ("parts", "mores")}
FITS = {*WIDER, ("int", "maybe"), ("maybe", "int"), *((t, t) for t in POOL)}


def declared(fields: Mapping[str, str], kafka: bool = False) -> Pipeline:
    """A pipeline that emits a row per record, of these fields (name → key of `POOL`)."""
    emits = dataclasses.make_dataclass("Out", [(name, POOL[t][0]) for name, t in fields.items()], frozen=True)

    def tell(who: str, rows: Iterator[Row], kept: Kept) -> Iterator[Any]:
        for row in rows:
            yield emits(**{name: POOL[t][1](row.n) for name, t in fields.items()})

    made = KafkaSink("out", "there") if kafka else DeltaSink("out")
    process = Process("tell", key_by="who", state=Kept, function=tell, emits=emits, sink=made)
    return Pipeline(name="p", source=KafkaSource("rows", Row), operators=[process])


def emit(line: DiskPipeline, *numbers: int) -> SinkTable:
    """Completes a checkpoint that emits a row per number."""
    line.send([(0, json.dumps({"who": "a", "n": n}).encode(), 1) for n in numbers])
    return line.checkpoint().sinks["tell"]


def shown(line: DiskPipeline, table: SinkTable) -> list[dict[str, Any]]:
    """The emitted fields, in order of emission."""
    names = [name for name, _ in table.columns]
    return list(read_sink(str(line.root), table).select(names).to_pylist(maps_as_pydicts="strict"))


DECLARATION = st.dictionaries(st.sampled_from("abc"), st.sampled_from(sorted(POOL)), min_size=1)


@settings(max_examples=40, deadline=None, print_blob=True)
@given(st.lists(st.tuples(DECLARATION, st.integers(0, 2), st.booleans()), min_size=2, max_size=5))
def test_rows_of_any_declarations_read_as_one_table(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[dict[str, str], int, bool]]
) -> None:
    line = DiskPipeline(tmp_path_factory.mktemp("sink"), declared({"a": "int"}), "rows", partitions=1)
    history: list[tuple[dict[str, str], list[int]]] = []
    tables: list[tuple[SinkTable, int]] = []
    number = 0
    for fields, count, compacts in parts:
        before = history[-1][0] if history else {}
        has_rows = any(numbers for _, numbers in history)
        line.pipeline = declared(fields)
        numbers = list(range(number, number + count))
        if has_rows and any((before[n], t) not in FITS for n, t in fields.items() if n in before):
            with pytest.raises(IncompatibleStateError, match="in sink out"):
                line.checkpoint()
            continue
        number += count
        history.append((fields, numbers))
        tables.append((emit(line, *numbers), len(history)))
        if compacts:
            line.compact_rows(RowPolicy.everything())
    for table, upto in tables:
        assert shown(line, table) == _expected(history[:upto])


def _expected(history: list[tuple[dict[str, str], list[int]]]) -> list[dict[str, Any]]:
    """A row has the value of a field that every declaration since then has, and null of the others."""
    last, found = history[-1][0], []
    for at, (fields, numbers) in enumerate(history):
        for n in numbers:
            since = [later for later, _ in history[at:]]
            held = {name for name in last if all(name in declaration for declaration in since)}
            found.append({name: _as_read(fields[name], last[name], n) if name in held else None for name in last})
    return found


def _as_read(emitted: str, now: str, n: int) -> Any:
    """The value of a field as it is read in a later declaration: `z` of rows that lack it is null."""
    # Whether a value is null was decided when it was emitted.
    value = POOL[emitted if (emitted, now) not in WIDER else now][1](n)
    if "part" in emitted and "more" in now and value is not None:
        fill = functools.partial(dataclasses.replace, z=None)
        value = {k: list(map(fill, of)) for k, of in value.items()} if isinstance(value, dict) else fill(value)
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: list(map(dataclasses.asdict, of)) for k, of in value.items()}
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value  # type: ignore[arg-type]


def test_spark_reads_what_arrow_reads(spark: SparkSession, tmp_path: Path) -> None:
    nested = {"p": "part", "d": "parts"}
    line = DiskPipeline(tmp_path, declared({"a": "int", "b": "narrow", **nested}), "rows", partitions=1)
    tables = [emit(line, 1, 2)]
    for fields in ({"b": "wide", "c": "str", "p": "more", "d": "mores"}, {"a": "str", "c": "str"}):
        line.pipeline = declared(fields)
        tables.append(emit(line, len(tables) * 10))
    line.compact_rows(RowPolicy.everything())
    tables.append(emit(line, 30))  # nothing has changed but the files
    assert [is_base(s.path) for s in tables[-1].handle] == [True, False]
    hidden = tables[-1].handle
    tables.append(dataclasses.replace(tables[-1], handle=dataclasses.replace(hidden, expired=2)))
    warehouse = SparkWarehouse(session=spark, root=str(tmp_path), files_of=line.tables.files_of)
    for table in tables:
        by_arrow = read_sink(str(tmp_path), table)
        by_spark = union_of(warehouse, table).toArrow().cast(by_arrow.schema)
        order = [("_checkpoint", "ascending"), ("_offset", "ascending")]
        assert by_spark.sort_by(order).to_pylist() == by_arrow.to_pylist()
    one, ten = Decimal("0.01"), Decimal("0.10")
    old, new = {"y": one, "z": None, "x": 1}, {"y": ten, "z": "t10", "x": 10}
    assert shown(line, tables[1]) == [
        {"b": one, "c": None, "p": old, "d": {"k1": [old]}},
        {"b": Decimal("0.02"), "c": None, "p": None, "d": {"k2": [{"y": Decimal("0.02"), "z": None, "x": 2}] * 2}},
        {"b": ten, "c": "t10", "p": None, "d": {"k10": [new]}},
    ]
    assert shown(line, tables[2])[-1] == {"a": "t20", "c": "t20"}
    assert shown(line, tables[3])[-1] == {"a": "t30", "c": "t30"}
    assert {row["a"] for row in (*shown(line, tables[2])[:-1], *shown(line, tables[3])[:-2])} == {None}
    assert [row["a"] for row in shown(line, tables[4])] == ["t20", "t30"]
    assert sorted(p.name for p in (tmp_path / "p/sinks/out").iterdir()) == [
        "t1~v2",
        "t1~v2~2",
        "t1~v2~3",
        "t1~v2~3~base",
    ]


def test_what_does_not_fit_is_refused_before_a_plan_and_the_same_for_an_outbox(tmp_path: Path) -> None:
    for kafka in (False, True):
        line = DiskPipeline(tmp_path / str(kafka), declared({"a": "int", "b": "wide"}, kafka), "rows", partitions=1)
        emit(line, 1)
        objects = sorted(p for p in line.root.rglob("*") if p.is_file())
        line.pipeline = declared({"a": "str", "b": "narrow"}, kafka)
        with pytest.raises(IncompatibleStateError) as caught:
            line.checkpoint()
        assert caught.value.what == (
            "the pipeline does not fit its sinks: tell.a: in sink out BIGINT became STRING (keep the type, emit it"
            " under a new name, or emit it to a sink of another name); tell.b: in sink out DECIMAL(20,2) became"
            " DECIMAL(10,2) (keep the type, emit it under a new name, or emit it to a sink of another name)"
        )
        assert sorted(p for p in line.root.rglob("*") if p.is_file()) == objects


def test_what_waits_in_an_outbox_is_sent_with_the_fields_it_was_emitted_with(tmp_path: Path) -> None:
    from tidemark.readers.sink_reader import outbox_rows

    line = DiskPipeline(tmp_path, declared({"a": "int", "b": "str"}, kafka=True), "rows", partitions=1)
    emit(line, 1)
    line.pipeline = declared({"c": "str"}, kafka=True)
    emit(line, 2)
    found = [
        (d, list(outbox_rows(str(tmp_path), d.table, d.checkpoint.id))) for d in list_undelivered(line.coordinator)
    ]
    assert [[{n: row[n] for n, _ in due.table.columns} for row in rows] for due, rows in found] == [
        [{"a": 1, "b": "t1"}],
        [{"c": "t2"}],
    ]
