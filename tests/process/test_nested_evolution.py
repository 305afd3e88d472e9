"""Values inside stored state and sinks get fields, members and digits: the function, state and sink see them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, make_dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import GenericAlias, NoneType
from typing import Annotated, Any

import pytest

from tests.support.disk import DiskPipeline
from tidemark import DeltaSink, KafkaSource, Pipeline, Process, state
from tidemark.errors import IncompatibleStateError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.core.types import Precision
from tidemark.model.state.row_compaction import RowPolicy
from tidemark.readers.sink_reader import read_sink
from tidemark.readers.state_reader import read_state

Narrow = Annotated[Decimal, Precision(10, 2)]
Wide = Annotated[Decimal, Precision(20, 2)]


@dataclass(frozen=True)
class Row:
    """A record."""

    who: str
    n: int


class Two(Enum):
    """An Enum."""

    A = "a"
    B = "b"


class Three(Enum):
    """The same with another member."""

    C = "c"
    B = "b"
    A = "a"


@dataclass(frozen=True)
class Old:
    """A value."""

    price: Narrow
    kind: Two


@dataclass(frozen=True)
class New:
    """The same with more digits, fields and members."""

    kind: Three
    price: Wide
    tries: int = 7
    note: str | None = None


def pipeline(value: type, enum: type[Enum]) -> Pipeline:
    """A process that keeps a value of each number, in every kind of state, and emits what it had before."""
    values = GenericAlias(list, (value,))
    hints = {
        "one": value | None,
        "all": values,
        "by_n": GenericAlias(dict, (int, value)),
        "kinds": GenericAlias(dict, (enum, values)),
    }
    kinds = {"one": state.value(None), "all": state.list(), "by_n": state.map(), "kinds": state.map()}
    told = make_dataclass("Told", [("one", value), ("by_n", GenericAlias(dict, (str, values)))], frozen=True)

    def keep(who: str, rows: Iterator[Row], kept: Any) -> Iterator[Any]:
        for row in rows:
            found: list[Any] = [kept.one, *kept.all, *kept.by_n.values()]
            assert {type(held) for held in found} <= {value, NoneType}
            assert {type(held.kind) for held in found if held is not None} <= {enum}
            made = value(price=Decimal(row.n), kind=enum("c" if row.n > 5 else "ab"[row.n % 2]))
            yield told(kept.one or made, {str(row.n): list(kept.all)})
            kept.one = made
            kept.all.append(made)
            kept.by_n[row.n] = made
            kept.kinds[made.kind] = [*kept.kinds.get(made.kind, []), made]

    kept = type("Kept", (state.Keyed,), {"__annotations__": hints, **kinds})
    process = Process("p", key_by="who", state=kept, function=keep, emits=told, sink=DeltaSink("told"))
    return Pipeline(name="p", source=KafkaSource("rows", Row), operators=[process])


def emit(line: DiskPipeline, *numbers: int) -> Checkpoint:
    """Completes a checkpoint over a record per number."""
    line.send([(0, json.dumps({"who": "a", "n": n}).encode(), 1) for n in numbers])
    return line.checkpoint()


def old(n: int, **more: Any) -> dict[str, Any]:
    """A stored value of a number below 6."""
    return {"price": Decimal(n).quantize(Decimal("0.01")), "kind": "ab"[n % 2], **more}


def new(n: int) -> dict[str, Any]:
    """The same as a later declaration reads or writes it."""
    found = old(n, tries=7, note=None)
    return found | {"kind": "c"} if n > 5 else found


@pytest.mark.parametrize("compacts", [False, True])
def test_values_inside_state_and_sinks_get_fields_members_and_digits(compacts: bool, tmp_path: Path) -> None:
    line = DiskPipeline(tmp_path, pipeline(Old, Two), "rows", partitions=1)
    emit(line, 1, 2)
    line.pipeline = pipeline(New, Three)
    if compacts:
        line.compact("p", full=True)
        line.compact_rows(RowPolicy.everything())
    made = emit(line, 2, 9)
    (row,) = read_state(str(line.root), made.plan.schemas["p"], made.handles["p"], made.now).to_pylist(
        maps_as_pydicts="strict"
    )
    assert row["one"] == new(9)
    assert row["all"] == [new(n) for n in (1, 2, 2, 9)]
    assert row["by_n"] == {n: new(n) for n in (1, 2, 9)}
    assert row["kinds"] == {"a": [new(2), new(2)], "b": [new(1)], "c": [new(9)]}
    told = read_sink(str(line.root), made.sinks["p"]).to_pylist(maps_as_pydicts="strict")
    before = {"tries": None, "note": None}  # a column of a sink knows no defaults
    assert [r["one"] for r in told] == [old(1, **before), old(1, **before), new(2), new(2)]
    assert [r["by_n"] for r in told] == [
        {"1": []},
        {"2": [old(1, **before)]},
        {"2": [new(1), new(2)]},
        {"9": [new(1), new(2), new(2)]},
    ]
    line.pipeline = pipeline(Old, Two)
    with pytest.raises(IncompatibleStateError, match=r"p\.by_n"):
        emit(line, 1)
