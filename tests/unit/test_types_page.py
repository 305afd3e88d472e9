"""The table of docs/how-to/types.md, a test per cell: what it says works end to end in the twin, the rest is refused.

`tests/engine/test_types.py` does the same on Spark, all types at once.
"""

import json
import re
from dataclasses import make_dataclass
from datetime import date, time
from pathlib import Path
from types import GenericAlias
from typing import Any, Literal
from uuid import UUID

import pytest

from tests.support.typed_values import TYPES, Card
from tidemark import Fold, KafkaSource, Pipeline, Process, formats, state, testing
from tidemark.errors import DeclarationError
from tidemark.model.core.types import field_type
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.sinks import DeltaSink
from tidemark.testing import Replayed

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/types.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.read_text().split("| type | stored as |")[1].split("\n\n")[0].splitlines()[2:]
]
CELLS = {(row[0], place): row[n] for row in ROWS for n, place in enumerate(("record", "key", "state", "sink"), 2)}


class Count(state.Keyed):
    """How many records."""

    n: int = state.count()


def test_the_table_has_every_type_once() -> None:
    assert [row[0] for row in ROWS] == list(TYPES)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_type_is_stored_as_the_table_says(row: list[str]) -> None:
    found = field_type(TYPES[row[0]].annotation, "here").sql
    assert found == row[1] or re.fullmatch(rf"{row[1]}<.*>", found)


def _works(where: str, name: str) -> bool:
    """Whether the cell says yes."""
    assert CELLS[name, where] in ("yes", "no")
    return CELLS[name, where] == "yes"


def _record(name: str) -> type:
    return make_dataclass("Made", [("key", int), ("at", TYPES[name].annotation)], frozen=True)


def _run(record: type, operator: Fold | Process, name: str) -> Replayed:
    source = KafkaSource("values", record)
    pipeline = Pipeline(name="typed", source=source, operators=[operator], max_dead_letters=1.0)
    one, two = ({"key": 1, "at": value} for value in TYPES[name].json)
    return testing.replay(pipeline, [[one], testing.BARRIER, [two], testing.BARRIER])


@pytest.mark.parametrize("name", TYPES)
def test_records(name: str) -> None:
    if not _works("record", name):
        with pytest.raises(DeclarationError, match=r"Made\.at: "):
            assert KafkaSource("values", _record(name)).schema
        return
    seen: list[Any] = []

    def look(key: int, records: Any, remembered: Any) -> None:
        seen.extend(record.at for record in records)

    class Nothing(state.Keyed):
        """Not used."""

        n: int | None = state.value(None)

    _run(_record(name), Process("o", key_by="key", state=Nothing, function=look), name)
    assert tuple(seen) == TYPES[name].python
    assert [type(value) for value in seen] == [type(value) for value in TYPES[name].python]


@pytest.mark.parametrize("name", TYPES)
def test_keys(name: str) -> None:
    if not _works("key", name):
        with pytest.raises(DeclarationError):
            source = KafkaSource("values", _record(name))
            Fold("o", key_by="at", state=Count).bind(source.schema)
        return
    keys: list[Any] = []

    def look(key: Any, records: Any, remembered: Any) -> None:
        keys.append(key)
        remembered.n += len(list(records))

    class Number(state.Keyed):
        """How many records."""

        n: int = state.value(0)

    found = _run(_record(name), Process("o", key_by="at", state=Number, function=look), name)
    assert tuple(keys) == TYPES[name].python
    assert set(found.state("o")) == set(TYPES[name].stored)
    folded = _run(_record(name), Fold("o", key_by="at", state=Count), name)
    assert {key: row.n for key, row in folded.state("o").items()} == dict.fromkeys(TYPES[name].stored, 1)


def _keyed(name: str) -> type:
    of = TYPES[name].annotation
    hints = {"one": of | None, "all": GenericAlias(list, (of,))}
    body = {"__annotations__": hints, "one": state.value(None), "all": state.list()}
    return type("Kept", (state.Keyed,), body)


@pytest.mark.parametrize("name", TYPES)
def test_state(name: str) -> None:
    if not _works("state", name):
        with pytest.raises(DeclarationError):
            _keyed(name)
        return
    before: list[Any] = []

    def keep(key: int, records: Any, remembered: Any) -> None:
        before.append((remembered.one, list(remembered.all)))
        for record in records:
            remembered.one = record.at
            remembered.all.append(record.at)

    found = _run(_record(name), Process("o", key_by="key", state=_keyed(name), function=keep), name)
    first, _ = TYPES[name].python
    assert before == [(None, []), (first, [first])]
    (row,) = found.rows("o").values()
    assert row["one"] == TYPES[name].stored[1]
    assert row["all"] == list(TYPES[name].stored)


@pytest.mark.parametrize("name", TYPES)
def test_keys_of_maps(name: str) -> None:
    """A map finds its entries by Python's objects, in the batch that sets them and in later ones."""
    if not _works("key", name):
        return
    one, two = TYPES[name].python
    hints = {"seen": GenericAlias(dict, (TYPES[name].annotation, int))}
    kept = type("Kept", (state.Keyed,), {"__annotations__": hints, "seen": state.map()})
    found: list[Any] = []

    def look(key: int, records: Any, remembered: Any) -> None:
        for record in records:
            for _ in range(2):
                remembered.seen[record.at] = remembered.seen.get(record.at, 0) + 1
        found.append(dict(remembered.seen))
        if two in remembered.seen:
            assert remembered.seen.pop(one) == 2

    rows = _run(_record(name), Process("o", key_by="key", state=kept, function=look), name).rows("o")
    assert found == [{one: 2}, {one: 2, two: 2}]
    assert [type(key) for entries in found for key in entries] == [type(one)] * 3
    assert [row["seen"] for row in rows.values()] == [{TYPES[name].stored[1]: 2}]


@pytest.mark.parametrize("name", TYPES)
def test_initial_values(name: str) -> None:
    if not _works("state", name):
        return
    initial, assigned = TYPES[name].python
    body = {
        "__annotations__": {"at": TYPES[name].annotation, "n": int},
        "at": state.value(initial),
        "n": state.value(0),
    }
    kept = type("Kept", (state.Keyed,), body)
    before: list[Any] = []

    def keep(key: int, records: Any, remembered: Any) -> None:
        before.append((remembered.n, remembered.at))
        remembered.n += 1
        if remembered.n == 1:
            list(records)
        else:
            remembered.at = assigned

    operator = Process("o", key_by="key", state=kept, function=keep)
    found = _run(_record(name), operator, name)
    assert before == [(0, initial), (1, initial)]
    assert type(before[0][1]) is type(initial)
    (row,) = found.rows("o").values()
    assert row["at"] == TYPES[name].stored[1]
    assert kept().at == initial
    schema = operator.bind(KafkaSource("values", _record(name)).schema)
    assert OperatorSchema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


def test_an_initial_list_that_the_function_changes_in_place_is_kept_per_key() -> None:
    class Seen(state.Keyed):
        """A list as one value."""

        seen: list[int] = state.value([7])
        n: int = state.value(0)

    def look(key: int, records: Any, remembered: Any) -> None:
        for record in records:
            remembered.n += 1
            assert isinstance(remembered.seen, list)
            if record.at:
                remembered.seen.append(record.at)

    record = make_dataclass("Made", [("key", int), ("at", int)], frozen=True)
    pipeline = Pipeline(
        name="typed",
        source=KafkaSource("values", record),
        operators=[Process("o", key_by="key", state=Seen, function=look)],
    )
    found = testing.replay(
        pipeline,
        [
            [{"key": 1, "at": 5}, {"key": 2, "at": 0}, {"key": 1, "at": 6}],
            testing.BARRIER,
            [{"key": 1, "at": 8}],
            testing.BARRIER,
        ],
    )
    assert {key: row.seen for key, row in found.state("o").items()} == {1: [7, 5, 6, 8], 2: None}
    assert Seen().seen == [7]


@pytest.mark.parametrize(
    ("annotation", "initial"), [(Card, "nothing"), (UUID, ""), (list[int], ["a"]), (Literal["a"], "b"), (date, time(1))]
)
def test_an_initial_value_of_another_type_is_refused(annotation: Any, initial: Any) -> None:
    body = {"__annotations__": {"at": annotation}, "at": state.value(initial)}
    operator = Process("o", key_by="key", state=type("Kept", (state.Keyed,), body), function=lambda *_: None)
    with pytest.raises(DeclarationError, match=r"o\.at: initial value: .* is not of the declared type"):
        operator.bind(KafkaSource("values", _record("`int`")).schema)


@pytest.mark.parametrize("name", TYPES)
def test_folded_state(name: str) -> None:
    if not _works("state", name):
        return
    of = TYPES[name].annotation
    body = {"__annotations__": {"last": of | None, "first": of | None}, "last": state.latest("at")}
    kept = type("Kept", (state.Keyed,), body | {"first": state.first("at")})
    (row,) = _run(_record(name), Fold("o", key_by="key", state=kept), name).rows("o").values()
    assert (row["first"], row["last"]) == TYPES[name].stored


@pytest.mark.parametrize("name", TYPES)
def test_sinks(name: str) -> None:
    emits = make_dataclass("Emitted", [("at", TYPES[name].annotation)], frozen=True)
    values = iter(TYPES[name].python)

    def emit(key: int, records: Any, remembered: Any) -> Any:
        for _ in records:
            yield emits(next(values))

    class Nothing(state.Keyed):
        """Not used."""

        n: int | None = state.value(None)

    def declared() -> Process:
        return Process("o", key_by="key", state=Nothing, function=emit, emits=emits, sink=DeltaSink("out"))

    if not _works("sink", name):
        with pytest.raises(DeclarationError, match=r"Emitted\.at: "):
            declared()
        return
    record = make_dataclass("Made", [("key", int)], frozen=True)
    found = _run(record, declared(), name)
    assert tuple(row["at"] for row in found.emitted("o")) == TYPES[name].stored


@pytest.mark.parametrize("name", TYPES)
def test_a_value_of_another_type_is_refused_by_name(name: str) -> None:
    """A function that yields something else fails, and the message names the field."""
    if not _works("sink", name):
        return
    emits = make_dataclass("Emitted", [("at", TYPES[name].annotation)], frozen=True)

    class Nothing(state.Keyed):
        """Not used."""

        n: int | None = state.value(None)

    def emit(key: int, records: Any, remembered: Any) -> Any:
        for _ in records:
            yield emits(object())

    operator = Process("o", key_by="key", state=Nothing, function=emit, emits=emits, on_error="dead_letter")
    found = _run(make_dataclass("Made", [("key", int)], frozen=True), operator, name)
    assert {letter["reason"] for letter in found.dead_letters("o")} == {"process_failed: TypeError"}


def _json_rows() -> dict[str, list[str]]:
    """The table of JSON, by type: the forms that are read, and those that are refused."""
    lines = PAGE.read_text().split("| type | JSON | refused")[1].split("\n\n")[0].splitlines()[2:]
    return {row[0]: row[1:] for row in ([cell.strip() for cell in line.strip("|").split(" | ")] for line in lines)}


JSON: dict[str, tuple[Any, dict[str, Any], dict[str, str]]] = {
    "`Enum`, `Literal`": (
        Card,
        {'"debit"': "debit"},
        {'"DEBIT"': "unknown_member: at", '"Card.DEBIT"': "unknown_member: at", '""': "unknown_member: at"},
    ),
    "`UUID`": (
        UUID,
        {f'"{text}"': str(UUID(int=10**37)) for text in (str(UUID(int=10**37)), str(UUID(int=10**37)).upper())},
        {f'"{UUID(int=1).hex}"': "bad_format: at", f'"{{{UUID(int=1)}}}"': "bad_format: at"},
    ),
    "`dict`": (
        dict[Card, int],
        {'{"debit": 1}': {"debit": 1}, "{}": {}},
        {'{"DEBIT": 1}': "unknown_member: at{}", '{"debit": "1"}': "wrong_type: at{}"},
    ),
    "`time`": (
        time,
        {
            '"09:30"': "09:30:00",
            '"09:30:15"': "09:30:15",
            '"09:30:15.250"': "09:30:15.250000",
            '"09:30:15.2500019"': "09:30:15.250001",
        },
        {
            '"09:30Z"': "bad_format: at",
            '"09:30+00:00"': "bad_format: at",
            '"24:00"': "out_of_range: at",
            '"23:59:60"': "out_of_range: at",
        },
    ),
}


@pytest.mark.parametrize("name", JSON)
def test_json_is_read_and_refused_as_the_table_says(name: str) -> None:
    annotation, read, refused = JSON[name]
    schema = KafkaSource("values", make_dataclass("Made", [("at", annotation)], frozen=True)).schema
    for text, stored in read.items():
        assert formats.Json().decode_one(f'{{"at": {text}}}'.encode(), schema) == {"at": stored}
    for text, reason in refused.items():
        with pytest.raises(formats.BadRecord, match=f"^{re.escape(reason)}$"):
            formats.Json().decode_one(f'{{"at": {text}}}'.encode(), schema)
    reasons = {reason.partition(":")[0] for reason in refused.values()}
    assert set(re.findall(r"`(\w+_\w+)", " ".join(_json_rows()[name]))) == reasons
    examples = set(re.findall(r'`("[^`]*")`', _json_rows()[name][0]))
    assert examples <= read.keys(), "every example of the cell is read"


def test_the_table_of_json_has_no_other_rows() -> None:
    assert set(_json_rows()) == set(JSON)
