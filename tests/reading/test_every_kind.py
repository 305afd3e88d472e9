"""One statement over every kind of state that there is: folded, of a function, broadcast; checkpoints and offsets."""

import json
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tidemark.model.core.offsets import TopicPartition

START = datetime(2024, 5, 1, tzinfo=UTC)
DECLARATION = '''
"""Sales under rules: a fold, a function, and what is broadcast to it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from tidemark import Broadcast, Fold, KafkaSource, Pipeline, Process, state


@dataclass(frozen=True)
class Sale:
    """One record."""

    item: str
    cents: int
    weight: float
    at: datetime


@dataclass(frozen=True)
class Rule:
    """A row that is broadcast."""

    item: str
    rate: int


class Sold(state.Keyed):
    """Folded."""

    cents: int | None = state.sum("cents")
    weight: float | None = state.sum("weight")


class Due(state.Keyed):
    """Kept by a function."""

    tax: int = state.value(0)
    rates: dict[str, int] = state.map()


def tax(item: str, sales: Iterator[Sale], due: Due, broadcast: Mapping[str, Mapping[str, Rule]]) -> None:
    """By the rule of the moment."""
    for sale in sales:
        rate = broadcast["rules"][item].rate
        due.tax += sale.cents * rate
        due.rates[str(rate)] = due.rates.get(str(rate), 0) + 1


shop = Pipeline(
    name="shop",
    sources={"sales": KafkaSource("sales", Sale, event_time="at")},
    operators=[
        Fold("sold", key_by="item", state=Sold, input="sales"),
        Process("due", key_by="item", state=Due, function=tax, input="sales"),
    ],
    broadcast=[Broadcast("rules", KafkaSource("rules", Rule), key_by="item")],
)
'''
QUERY = """
    SELECT s.item, s.cents, e.cents AS earlier, d.tax, d.rates['2'] AS at_two, r.rate, was.rate AS was,
        o.end_offset AS upto
    FROM sold_at(2) s JOIN sold_at(1) e USING (item) JOIN due_at(2) d USING (item)
    JOIN rules_at(2) r USING (item) JOIN rules_at(1) was USING (item)
    JOIN checkpoint_offsets o ON o.checkpoint = 2 AND o.topic = 'sales'
    JOIN checkpoints c ON c.id = 2 AND c.records = 3
"""


def _weights(tidemark: Command, *cuts: tuple[float, ...]) -> DiskPipeline:
    """A warehouse with a checkpoint per cut: a rule and sales of these weights."""
    tidemark.declare(DECLARATION, file="shop.py")
    line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("shop"), "sales", partitions=1)
    line.log.create("rules", 1)
    for n, weights in enumerate(cuts, start=1):
        rule = json.dumps({"item": "tea", "rate": n}).encode()
        line.log.append(TopicPartition("rules", 0), rule, timestamp_ms=0, key=b"tea")
        sale = {"item": "tea", "cents": 10, "at": START.isoformat()}
        line.send([(0, json.dumps({**sale, "weight": weight}).encode(), 0) for weight in weights])
        line.checkpoint()
    return line


@pytest.fixture
def tidemark(tmp_path: Path) -> Command:
    """The command line, with neither Kafka nor Spark."""
    return Command(tmp_path, "127.0.0.1:1", "sc://127.0.0.1:1")


def test_one_statement_joins_every_kind_of_state_at_two_checkpoints_and_the_offsets(tidemark: Command) -> None:
    _weights(tidemark, (1.0, 1.0), (1.0, 1.0))
    assert tidemark("state", "sql", "shop", QUERY, "--json").ok().json == [
        {"item": "tea", "cents": 40, "earlier": 20, "tax": 60, "at_two": 2, "rate": 2, "was": 1, "upto": 4}
    ]


@pytest.mark.parametrize("uid", ["sold", "due", "rules"])
def test_the_printed_query_of_every_kind_answers_without_our_code_and_without_the_declaration(
    tidemark: Command, uid: str
) -> None:
    _weights(tidemark, (1.0, 1.0), (1.0, 1.0))
    wanted = tidemark("state", "sql", "shop", f"FROM {uid}_at(1)", "--json").ok().json
    (tidemark.pipelines / "shop.py").unlink()
    printed = tidemark("state", "query", "shop", uid, "--checkpoint", "1", "--dialect", "duckdb").ok().out
    with duckdb.connect() as connection:
        answered = connection.execute(printed)
        names = [d[0] for d in answered.description]
        assert [dict(zip(names, row, strict=True)) for row in answered.fetchall()] == wanted


def test_a_sum_of_floats_is_left_out_of_the_hash_because_a_cut_may_change_its_bits(tmp_path: Path) -> None:
    told, sums = [], []
    for name, cuts in (("one", ((0.1, 0.2, 0.3), ())), ("two", ((0.1,), (0.2, 0.3)))):
        tidemark = Command(tmp_path / name, "127.0.0.1:1", "sc://127.0.0.1:1")
        _weights(tidemark, *cuts)
        told.append(tidemark("state", "hash", "shop", "sold", "--json").ok().json)
        sums += [r["weight"] for r in tidemark("state", "sql", "shop", "SELECT weight FROM sold", "--json").ok().json]
    assert [t["left_out"] for t in told] == [["weight"], ["weight"]]
    assert told[0]["sha256"] == told[1]["sha256"]
    assert sums[0] != sums[1], "or the example shows nothing"
