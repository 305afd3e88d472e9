"""Deletes, a list and aggregates through the real job: Kafka, Spark, Delta, compactions that the next plan adopts."""

import itertools
from dataclasses import dataclass
from datetime import timedelta

from tests.engine.kafka_spark_pipeline import PARTITIONS, KafkaSparkPipeline, letters
from tests.support.kafka import Sent
from tidemark import Fold, KafkaSource, Pipeline, state


@dataclass(frozen=True)
class Price:
    """One record of a compacted topic."""

    sku: str
    shop: int
    cents: int | None = None


class Known(state.Keyed):
    """What is remembered."""

    n: int | None = state.count(ttl=timedelta(days=30))
    cents: int | None = state.latest("cents")
    seen: list[int] = state.list("cents")
    spread: int | None = state.aggregate(
        accumulator={"lo": int, "hi": int}, partial={"lo": "min(cents)", "hi": "max(cents)"}, finish="hi - lo"
    )
    twice: int | None = state.reduce("sum(cents * 2)")


def _send(line: KafkaSparkPipeline, records: list[tuple[str, int | None, bytes]]) -> None:
    """Sends (sku, cents, message key); a record without cents has no value. All of a sku go to one partition."""
    sent = []
    for sku, cents, key in records:
        value = None if cents is None else f'{{"sku":"{sku}","shop":1,"cents":{cents}}}'.encode()
        partition = sum(sku.encode()) % PARTITIONS
        sent.append(Sent(value, key=key, partition=partition))
        line.ends[partition] += 1
    line.topics.produce(line.topic, sent)


def test_deletes_live_through_checkpoints_and_compactions(line: KafkaSparkPipeline) -> None:
    line.pipeline = Pipeline(
        name="prices",
        source=KafkaSource(line.topic, Price),
        operators=[
            Fold("skus", key_by="sku", state=Known, deletes=True),
            Fold("places", key_by=("shop", "sku"), state=Known, deletes=True),
        ],
        max_dead_letters=1.0,
        # The records bear the time of the test, the plans one of their own.
        max_future=timedelta(days=40_000),
    )
    held: dict[str, list[int]] = {}
    cents = itertools.count(1)
    for number, batch in enumerate(["abcab", "Aa", "bB", "aAaC", "dD", "abC"]):
        records: list[tuple[str, int | None, bytes]] = []
        for letter in batch:
            sku = letter.lower()
            if letter.isupper():
                held.pop(sku, None)
                records.append((sku, None, sku.encode()))
            else:
                held.setdefault(sku, []).append(next(cents))
                records.append((sku, held[sku][-1], b"x"))
        _send(line, records)
        sealed = line.checkpoint()
        skus, places = sealed.acks
        deletes = sum(letter.isupper() for letter in batch)
        assert (skus.applied, skus.dead_lettered) == (len(batch), 0)
        assert (places.applied, places.dead_lettered) == (len(batch) - deletes, deletes), (
            "a sku is no array of both keys"
        )
        if number in (2, 4):
            record = line.compact("skus", runs=2, ratio=1)
            assert record is not None
            line.adopt(record)
        found = {row["sku"]: row for row in line.state("skus")}
        assert {sku: row["seen"] for sku, row in found.items()} == held
        for sku, values in held.items():
            row = found[sku]
            assert (row["n"], row["cents"]) == (len(values), values[-1])
            assert (row["spread"], row["twice"]) == (max(values) - min(values), 2 * sum(values))
    assert {row["reason"] for row in letters(line, "places").to_pylist()} == {"bad_key"}
