"""`reads=` of a function: what it takes and refuses, and that neither state nor fingerprint depend on it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tidemark import Broadcast, CoProcess, FlatMap, KafkaSource, Pipeline, Process, state
from tidemark.errors import DeclarationError
from tidemark.model.checkpoint.codec import from_json, to_json
from tidemark.model.columns.column_graph import SOURCE
from tidemark.model.columns.column_lineage import draw_columns
from tidemark.model.columns.declared_columns import DeclaredColumns


@dataclass(frozen=True)
class Sale:
    """A record."""

    shop: str
    cents: int
    note: str


@dataclass(frozen=True)
class Refund:
    """A record of another source."""

    shop: str
    cents: int


@dataclass(frozen=True)
class Rate:
    """A row of a broadcast state."""

    name: str
    rate: int


@dataclass(frozen=True)
class Big:
    """A row."""

    shop: str
    cents: int


class Shop(state.Keyed):
    """The state."""

    total: int = state.value(0)


def look(key: str, sales: Any, remembered: Shop, broadcast: Any) -> Iterator[Big]:
    """A function with broadcast states."""
    yield from ()


def divide(sale: Sale) -> Iterator[Big]:
    """A function without state."""
    yield from ()


def meet(key: str, pairs: Any, remembered: Shop) -> Iterator[Big]:
    """A function of two inputs."""
    yield from ()


def process(reads: Any = None) -> Pipeline:
    operator = Process("big", key_by="shop", state=Shop, function=look, emits=Big, reads=reads)
    rates = Broadcast("rates", KafkaSource("rates", Rate), key_by="name")
    return Pipeline(name="sales", source=KafkaSource("sales", Sale), broadcast=[rates], operators=[operator])


def flat_map(reads: Any = None) -> Pipeline:
    operator = FlatMap("big", function=divide, emits=Big, reads=reads)
    return Pipeline(name="sales", source=KafkaSource("sales", Sale), operators=[operator])


def co_process(reads: Any = None) -> Pipeline:
    keys = {"sales": "shop", "refunds": "shop"}
    operator = CoProcess(
        "big", inputs=("sales", "refunds"), key_by=keys, state=Shop, function=meet, emits=Big, reads=reads
    )
    sources = {"sales": KafkaSource("sales", Sale), "refunds": KafkaSource("refunds", Refund)}
    return Pipeline(name="sales", sources=sources, operators=[operator])


def sources(pipeline: Pipeline, column: str) -> dict[str, bool]:
    """The fields that lead directly to a column; whether one only may."""
    graph = draw_columns(pipeline.schemas(), pipeline.columns)
    return {
        reached.column.short: reached.influences[0].is_opaque
        for reached in graph.upstream(graph.find(column))
        if reached.column.kind == SOURCE and reached.influences[0].type == "DIRECT"
    }


def test_without_it_any_field_of_records_and_broadcast_states_may_make_a_column() -> None:
    every = {"records.shop", "records.cents", "records.note", "rates.name", "rates.rate"}
    assert sources(process(), "output:big.cents") == dict.fromkeys(every, True)
    assert sources(process(), "big.total") == dict.fromkeys(every, True)


def test_a_list_holds_for_every_column() -> None:
    made = process(["cents", "rates.rate"])
    for column in ("big.total", "output:big.cents"):
        assert sources(made, column) == {"records.cents": False, "rates.rate": False}


def test_a_mapping_holds_for_its_columns_and_leaves_the_others_opaque() -> None:
    made = process({"cents": ["cents"], "total": []})
    assert sources(made, "output:big.cents") == {"records.cents": False}
    assert sources(made, "big.total") == {}
    assert all(sources(made, "output:big.shop").values()) and len(sources(made, "output:big.shop")) == 5


def test_what_decides_the_rows_is_under_the_star_or_else_all_that_is_read() -> None:
    columns = {"cents": ["cents"], "total": [], "shop": ["shop"]}
    for reads, decide in ((columns, {"cents", "shop"}), (columns | {"*": ["note"]}, {"note", "shop"})):
        graph = draw_columns(process(reads).schemas(), process(reads).columns)
        found = graph.upstream(graph.find("big.total").rows)
        assert {reached.column.name for reached in found if reached.column.kind == SOURCE} == decide


def test_fields_of_several_inputs_have_the_name_of_their_input() -> None:
    made = co_process({"cents": ["sales.cents", "refunds.cents"], "total": [], "shop": []})
    assert sources(made, "output:big.cents") == {"sales.cents": False, "refunds.cents": False}


@pytest.mark.parametrize(
    ("make", "reads", "words"),
    [
        (process, "cents", "reads='cents'"),
        (process, [1], "reads="),
        (process, {"cents": "cents"}, "reads="),
        (process, ["price"], "no such field"),
        (process, ["rates.price"], "no such field"),
        (process, {"price": ["cents"]}, "no such column"),
        (flat_map, ["rates.rate"], "no such field"),
        (co_process, ["cents"], "no such field"),
        (co_process, ["returns.cents"], "no such field"),
    ],
)
def test_what_does_not_exist_is_refused(make: Callable[[Any], Pipeline], reads: Any, words: str) -> None:
    with pytest.raises(DeclarationError, match=words.replace("(", r"\(")):
        make(reads)


@pytest.mark.parametrize("make", [process, flat_map, co_process])
def test_neither_state_nor_code_depends_on_it(make: Callable[[Any], Pipeline]) -> None:
    reads = ["sales.cents"] if make is co_process else ["cents"]
    without, declared = make(None), make(reads)
    assert without.fingerprint == declared.fingerprint
    assert without.schemas() == declared.schemas()
    assert without.columns != declared.columns


def test_a_changed_pipeline_declares_its_own_columns() -> None:
    made = process(["cents"])
    other = replace(made, operators=[*made.operators, Process("more", key_by="shop", state=Shop, function=look)])
    assert set(other.columns.operators) == {"big", "more"}


@pytest.mark.parametrize("make", [process, flat_map, co_process])
def test_plans_keep_it(make: Callable[[Any], Pipeline]) -> None:
    declared = make(None).columns
    assert from_json(DeclaredColumns, to_json(declared), "a plan") == declared
