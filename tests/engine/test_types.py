"""Every type in records, keys, state and sinks on Spark: the twin and DuckDB give the same rows and hashes."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tests.support.spark import SparkPipeline, TwinPipeline
from tests.support.typed_values import Card, Level, Spot
from tests.support.wider_types import CASES
from tidemark import Fold, KafkaSource, Pipeline, Process, state
from tidemark.engine.process.arrow_values import arrow_type
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.portable_sql.dialects import SPARK
from tidemark.model.schema.key_groups import key_group
from tidemark.readers.state_reader import files_of
from tidemark.sinks import DeltaSink
from tidemark.sql.type_conversion import converted_sql, converted_value
from tidemark.state import Precision

Cents = Annotated[Decimal, Precision(10, 2)]


@dataclass(frozen=True)
class Typed:
    """A record whose fields may all be keys."""

    id: UUID
    price: Cents
    exact: Decimal
    card: Card
    level: Level
    opens: time
    day: date
    at: datetime
    tags: dict[Card, list[int]] = field(default_factory=dict)


class Kept(state.Keyed):
    """What a fold keeps of every type."""

    n: int = state.count()
    cards: list[Card] = state.distinct("card")
    lowest: Level | None = state.min("level")
    earliest: time | None = state.min("opens")
    last: UUID | None = state.max("id")
    best: Card | None = state.max_by("card", "level")
    spent: Annotated[Decimal, Precision(38, 2)] | None = state.sum("price")
    debits: int | None = state.reduce("sum(CASE WHEN card = 'debit' THEN 1 ELSE 0 END)")


class Lived(state.Keyed):
    """What a process keeps of every type."""

    newest: Card | None = state.value(None)
    prices: list[Cents] = state.list()
    spots: dict[UUID, Spot] = state.map()
    days: dict[Card, time] = state.map()


def live(key: tuple[UUID, Cents, Card, time], records: Iterator[Typed], remembered: Any) -> Iterator[Typed]:
    """Keeps and emits Python's objects."""
    assert [type(part) for part in key] == [UUID, Decimal, Card, time]
    for record in records:
        remembered.newest = record.card
        remembered.prices.append(record.price)
        held = remembered.spots.get(record.id, Spot(record.card, []))
        assert type(held.card) is Card
        remembered.spots[record.id] = Spot(record.card, [*held.ids, record.id], record.level)
        remembered.days[record.card] = max(record.opens, remembered.days.get(record.card, time.min))
        yield record


PIPELINE = Pipeline(
    name="typed",
    source=KafkaSource("typed", Typed),
    operators=[
        Process("lived", key_by=("id", "price", "card", "opens"), state=Lived, function=live, emits=Typed,
                sink=DeltaSink("out")),
        Fold("kept", key_by=("card", "day"), state=Kept, input="lived"),
        *(Fold(f"by_{name}", key_by=name, state=Kept, input="records", deletes=True)
          for name in ("id", "price", "exact", "card", "level", "opens", "at")),
    ],
    max_dead_letters=1.0,
)  # fmt: skip
CARDS, TIMES = [card.value for card in Card], ["00:00", "09:30:15", "23:59:59.999999", "09:30:15.5"]


def _record(n: int) -> dict[str, Any]:
    return {
        "id": str(UUID(int=n % 5)).upper(),
        "price": ["0", "-0.00", "1.5", "1.50", "-99999999.99"][n % 5],
        "exact": ["0.000000000000000001", "0", "-12.5", "99999999999999999999.999999999999999999"][n % 4],
        "card": CARDS[n % 2],
        "level": [1, -7][n // 2 % 2],
        "opens": TIMES[n % 4],
        "day": ["2020-02-29", "0001-01-01"][n % 2],
        **({"tags": {card: [n] for card in CARDS[: n % 3]}} if n % 3 else {}),
        "at": ["1969-12-31T23:59:59.999999Z", "2020-01-01T00:00:00Z"][n % 2],
    }


DELETES = [
    ("records", None, key)
    for key in (
        str(UUID(int=1)).upper(), "1.5", "-12.50", "-0", "debit", "DEBIT", "1", "2", "09:30:15.500", "9:30",
        "2020-01-01T00:00:00Z", "1e2", '"debit"',
    )
]  # fmt: skip


def test_spark_the_twin_and_duckdb_agree_on_every_type(spark: SparkSession, tmp_path: Path) -> None:
    twin, world = TwinPipeline(PIPELINE), SparkPipeline(PIPELINE, spark=spark, root=tmp_path)
    batches: list[list[object]] = [[_record(n) for n in range(40)], [*DELETES, *(_record(n) for n in range(7))]]
    for batch in batches:
        one, other = twin.checkpoint(batch), world.checkpoint(batch)
        for uid in PIPELINE.schemas():
            assert _rows(world, uid, other) == _rows(twin, uid, one), uid
            assert world.letters(uid, other) == twin.letters(uid, one)
            for row in _stored(world, other, uid):
                key = [row[k.name] for k in other.plan.schemas[uid].keys]
                assert row["_key_group"] == key_group(key, 128), (uid, key)
        assert world.emitted("lived", other) == twin.emitted("lived", one)
    for uid in ("lived", "by_exact", "by_opens"):
        assert world.compacted(uid, other, deepest=True) == twin.compacted(uid, one, deepest=True)
    exact = {row["exact"] for row in _rows(world, "by_exact", other)}
    assert Decimal("0.000000000000000001") in exact
    assert {row["reason"] for row in world.letters("by_id", other)} == {"bad_key"}


def _stored(world: SparkPipeline, found: Checkpoint, uid: str) -> list[dict[str, Any]]:
    files = [world.root / segment.path / f.path for segment, f in files_of(str(world.root), found.handles[uid])]
    return [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]


def _rows(world: TwinPipeline, uid: str, found: Checkpoint) -> list[dict[str, Any]]:
    keys = [k.name for k in found.plan.schemas[uid].keys]
    return sorted(world.state(uid, found), key=lambda row: repr([row[name] for name in keys]))


def test_spark_reads_old_values_in_wider_types_as_the_twin_does(spark: SparkSession) -> None:
    for old, new, values in CASES:
        rows = pa.table({"n": range(len(values)), "v": pa.array(values, arrow_type(old))})
        made = spark.createDataFrame(rows).selectExpr("n", SPARK.text(converted_sql('"v"', old, new, SPARK)) + " AS v")
        found = made.orderBy("n").toArrow()["v"].to_pylist(maps_as_pydicts="strict")
        assert found == [converted_value(value, old, new) for value in values]
