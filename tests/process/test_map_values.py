"""What a map may hold beside scalars: lists and dataclasses, one in the other too, exact and changed in place."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.support.spark import SparkPipeline, TwinPipeline
from tidemark import KafkaSource, Pipeline, Process, state

DAY = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Sale:
    """One record."""

    shop: str
    article: str
    pieces: int
    at: datetime


@dataclass
class Piece:
    """An element of a list."""

    number: int
    price: Decimal | None = None


@dataclass
class SoldLine:
    """An entry; the dicts that it may not hold are a list of pairs."""

    sold: int
    last: datetime | None
    numbers: list[int]
    pieces: list[Piece]


class Stock(state.Keyed):
    """Every kind of entry."""

    numbers: dict[str, list[int]] = state.map()
    times: dict[int, list[datetime]] = state.map()
    pieces: dict[str, list[Piece]] = state.map()
    lines: dict[str, SoldLine] = state.map()
    maybe: dict[str, int | None] = state.map()


def count(shop: str, sales: Iterator[Sale], stock: Stock) -> None:
    """Changes entries in place as often as it assigns them."""
    for sale in sales:
        stock.numbers.setdefault(sale.article, []).append(sale.pieces)
        stock.times[sale.pieces] = [*stock.times.get(sale.pieces, []), sale.at]
        stock.maybe[sale.article] = None if sale.pieces == 2 else sale.pieces
        line = stock.lines.get(sale.article) or SoldLine(0, None, [], [])
        line.sold, line.last = line.sold + sale.pieces, sale.at
        line.numbers.append(sale.pieces)
        line.pieces.append(Piece(sale.pieces, Decimal(sale.pieces) / 4 if sale.pieces % 2 else None))
        stock.lines[sale.article] = line
        stock.pieces[sale.article] = list(line.pieces)
        if sale.pieces == 0:
            stock.numbers.pop(sale.article)
            del stock.lines[sale.article], stock.pieces[sale.article]


PIPELINE = Pipeline(
    name="shops",
    source=KafkaSource("sales", Sale, event_time="at"),
    operators=[Process("stock", key_by="shop", state=Stock, function=count)],
)


def sales(*pieces: int) -> list[Sale]:
    """A sale of tea per number, in time."""
    return [Sale("s", "tea" if n % 3 else "mug", n, DAY + timedelta(minutes=n)) for n in pieces]


BATCHES = [sales(1, 2, 3), sales(2, 2, 6), sales(0, 4), sales(3)]


def expected() -> dict[str, dict[Any, Any]]:
    """The same function over plain dicts; the in-memory form of the state class is one."""
    kept = Stock()
    for batch in BATCHES:
        count("s", iter(batch), kept)
    return {d.name: getattr(kept, d.name) for d in Stock.descriptors}


def test_a_map_of_lists_and_dataclasses_is_kept_exactly(spark: SparkSession, tmp_path: Path) -> None:
    world, twin = (
        TwinPipeline(PIPELINE, partitions=1),
        SparkPipeline(PIPELINE, partitions=1, spark=spark, root=tmp_path),
    )
    for batch in BATCHES:
        one, other = world.checkpoint(batch), twin.checkpoint(batch)
    (row,), (by_spark,) = world.state("stock", one), twin.state("stock", other)
    assert by_spark == row
    wanted = expected()
    assert {name: row[name] for name in wanted} == {name: _plain(held) for name, held in wanted.items()}
    for deepest in (False, True):
        assert twin.compacted("stock", other, deepest=deepest) == world.compacted("stock", one, deepest=deepest)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, list):
        return list(map(_plain, value))
    return {name: _plain(v) for name, v in vars(value).items()} if isinstance(value, SoldLine | Piece) else value
