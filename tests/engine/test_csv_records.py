"""A pipeline over CSV through Kafka and Spark: decoded in Python workers, folded, counted and dead-lettered once."""

from pathlib import Path

from tests.support.cli import Command
from tests.support.kafka import Sent, Topics

TRADES = """
from dataclasses import dataclass

from tidemark import Fold, KafkaSource, Pipeline, formats, state


@dataclass(frozen=True)
class Trade:
    symbol: str
    size: int
    venue: str | None


class Symbol(state.Keyed):
    trades: int = state.count()
    size: int | None = state.sum("size")


class Venue(state.Keyed):
    trades: int = state.count()


trades = Pipeline(
    name="trades",
    source=KafkaSource("$topic", Trade, format=formats.Csv("symbol,size,venue")),
    operators=[Fold("symbols", key_by="symbol", state=Symbol), Fold("venues", key_by="venue", state=Venue)],
    max_dead_letters=1.0,
)
"""


def test_rows_of_csv_are_folded_and_bad_ones_kept(
    topics: Topics, broker: str, spark_server: str, tmp_path: Path
) -> None:
    topic = topics.make(partitions=2)
    tidemark = Command(tmp_path, broker, spark_server)
    tidemark.declare(TRADES, file="trades.py", topic=topic)
    values = [b'"A,B",1,X', b"A,2,", b"A,two,X", b"A,3", b"\xff,1,X"]
    topics.produce(topic, [Sent(value, partition=n % 2) for n, value in enumerate(values)])
    tidemark("run", "trades").ok()
    topics.produce(topic, [Sent(b"A,40,X\r\n", partition=0)])
    tidemark("run", "trades").ok()

    def rows(uid: str) -> dict[str, dict[str, int]]:
        found = tidemark("state", "show", "trades", uid, "--json").ok().json
        return {row.pop(next(iter(row))): row for row in found}

    symbols, venues = rows("symbols"), rows("venues")
    assert {key: (row["trades"], row["size"]) for key, row in symbols.items()} == {"A,B": (1, 1), "A": (2, 42)}
    assert {key: row["trades"] for key, row in venues.items()} == {"X": 2}
    letters = tidemark("dead-letters", "list", "trades", "--json").ok().json["letters"]
    reasons = {(t["uid"], t["reason"]): t["letters"] for t in letters}
    bad = {"wrong_type: size": 1, "malformed_csv": 1, "invalid_utf8": 1}
    assert reasons == {(uid, why): n for uid in ("symbols", "venues") for why, n in bad.items()} | {
        ("venues", "null_key"): 1
    }
    replayed = tidemark("checkpoint", "replay", "trades", "chk-1", "--json").ok().json
    assert all(state["equal"] for state in replayed), replayed
