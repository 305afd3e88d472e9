"""The generated page of a DAG says what each operator leaves out and by what it keys."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tidemark import Broadcast, FlatMap, Fold, KafkaSource, Pipeline, Process, Tumbling, state

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]


@dataclass(frozen=True)
class Place:
    """Nested."""

    city: str


@dataclass(frozen=True)
class Sale:
    """A record."""

    shop: str
    note: str
    amount: int
    place: Place


@dataclass(frozen=True)
class Shop:
    """A row to look up."""

    shop: str
    city: str


class Sold(state.Keyed):
    """What is remembered."""

    n: int = state.count()


class Seen(state.Keyed):
    """The same of a process."""

    n: int = state.value(0)


def cut(sale: Sale) -> Iterator[Sale]:
    """Emits a sale."""
    yield sale


PIPELINE = Pipeline(
    name="shop",
    source=KafkaSource("sales", Sale),
    operators=[
        FlatMap("cut", function=cut, emits=Sale, where="amount > 0"),
        Fold("hours", key_by={"name": "lower(shop)", "big": "amount > 100"}, where="""note <> 'a  |  b'
             AND amount > 0""", state=Sold),
        Fold("cities", input="cut", key_by="place.city", state=Sold, where="note = '`'"),
        Fold("all", key_by=(), state=Sold),
        Fold("regions", join={"places": "shop"}, where="places.city <> ''", key_by="places.city", state=Sold),
        Process("seen", key_by="shop", where="shop <> 'x'", state=Seen, function=lambda shop, sales, seen: None),
    ],
    broadcast=[Broadcast("places", KafkaSource("shops", Shop), key_by="shop")],
)  # fmt: skip


def test_the_page_has_conditions_and_expressions_of_keys(airflow_home: Path) -> None:
    from tidemark.airflow.dag_docs import explain

    page = explain(PIPELINE, "on demand", is_cut=False, retention=None)
    table = page.split("| operator |")[1].split("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table]
    assert rows == [
        ["`places` (broadcast)", "`shops`", "`shop`", "`city`"],
        ["`cut`", "`sales` where `amount > 0`", "none", "none: it emits rows of each record"],
        [
            "`hours`",
            "`sales` where `note <> 'a  \\|  b' AND amount > 0`",
            "`name` = `lower(shop)`, `big` = `amount > 100`",
            "`n` (count)",
        ],
        ["`cities`", "`cut` where ``note = '`'``", "`city` = `place.city`", "`n` (count)"],
        ["`all`", "`sales`", "all records", "`n` (count)"],
        [
            "`regions`",
            "`sales` with `places` by `shop` where `places.city <> ''`",
            "`city` = `places.city`",
            "`n` (count)",
        ],
        ["`seen`", "`sales` where `shop <> 'x'`", "`shop`", "`n` (value)"],
    ]


def test_the_page_says_how_windows_close(airflow_home: Path) -> None:
    from tidemark.airflow.dag_docs import explain

    fold = Fold("hours", key_by="shop", state=Sold, window=Tumbling("1h"), lateness="5m", closes_by="logical_time")
    page = explain(
        Pipeline(name="shop", source=KafkaSource("sales", Sale), operators=[fold]),
        "on demand",
        is_cut=False,
        retention=None,
    )
    closes = "`shop`, in tumbling windows of 3600000 ms that close by `logical_time` with 5m for late records"
    assert f"| `hours` | `sales` | {closes} | `n` (count) |" in page


def test_the_page_says_when_timers_fire(airflow_home: Path) -> None:
    from tidemark.airflow.dag_docs import explain

    def watch(shop: str, sales: Iterator[Sale], remembered: Seen, *, timers: object) -> None: ...

    def close(shop: str, name: str, at: object, remembered: Seen) -> None: ...

    process = Process("watch", key_by="shop", state=Seen, function=watch, on_timer=close, lateness="5m")
    page = explain(
        Pipeline(name="shop", source=KafkaSource("sales", Sale), operators=[process]),
        "on demand",
        is_cut=False,
        retention=None,
    )
    assert "| `n` (value), and timers that fire by `watermark` with 5m for late records |" in page
