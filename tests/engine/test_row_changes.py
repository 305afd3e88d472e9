"""Debezium's changes in Spark: equal to the twin, with erased keys, redrives and Avro, and through a real topic."""

import json
import os
import random
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession

from tests.engine.conftest import Raw
from tests.engine.kafka_spark_pipeline import KafkaSparkPipeline, letters
from tests.engine.test_redrive import Pair
from tests.support.format_cases import damaged
from tests.support.kafka import Sent
from tests.support.row_changes import Copy, Item, Table, event, pipeline, random_changes, records, with_broadcast
from tests.unit.formats.test_debezium import AVRO, WHOLE, avro_event, avro_key
from tidemark import Fold, KafkaSource, Pipeline, formats
from tidemark.engine.session.python_workers import decode_values
from tidemark.formats import debezium
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.retention.erasure import BlockedKey
from tidemark.testing import Record

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
KEYS = (
    b'{"id": 1}', b'{"id": 1, "region": "a", "x": null}', b'{"id": null, "region": "a"}', b'{"id": "1", "region": "a"}',
    b'{"id": 9223372036854775808, "region": "a"}', b'{"id": 1.0, "region": "a"}', b'[1, "a"]', b'"a"', b"\xff", None,
    b'{"region": "a", "id": 1}', b'{"id": -0, "region": "\\u00e9\\ud83d\\ude00"}', b'{"id": 1, "region": "\\ud800"}',
    b'{"schema": null, "payload": {"id": 1, "region": "b"}}', b'{"id": {"a": 1}, "region": "a"}', b"{}", b"",
)  # fmt: skip
VALUES = (None, b"{", b"{}", b'{"op": "d"}', b'{"op": "t"}', b'{"op": "c", "after": {"id": 1}}')


def _batch(chance: random.Random, count: int, table: Table) -> list[Record]:
    """Changes of rows, and messages with damaged keys and values among them."""
    begun = len(table.sent)
    choices = [(chance.randrange(10), chance.randrange(6), chance.randrange(40)) for _ in range(count)]
    found = records(random_changes(choices, table).sent[begun:])
    good = [r.value for r in found if r.value is not None]
    for _ in range(count // 3):
        value = chance.choice([*VALUES, *good])
        key = chance.choice(KEYS)
        key = key if key is None or chance.random() < 0.5 else damaged(chance, key)
        found.insert(chance.randrange(len(found) + 1), Record(value=value, key=key, partition=0))
    return found


def _erased(_: CheckpointPlan) -> list[BlockedKey]:
    return [
        BlockedKey(uid="copy", key=(0, "a"), ends=None),
        BlockedKey(uid="seen", key=("b", 1), ends=None),
        BlockedKey(uid="spent", key=("b",), ends=None),
    ]


def test_spark_and_the_twin_agree_also_on_erased_keys(spark: SparkSession, tmp_path: Path) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED}")
    chance, table, pair = random.Random(SEED), Table(), Pair(spark, tmp_path, pipeline())
    good = json.dumps(event("c", None, {"id": 1, "region": "a", "name": "x", "cents": 4}, 5)).encode()
    each = [Record(value=good, key=key, partition=1) for key in KEYS]
    first = pair.checkpoint([*_batch(chance, 90, table), *each])
    for one in pair.both:
        one.blocked = _erased
    done = pair.checkpoint(_batch(chance, 60, table))
    filtered = {ack.uid: ack.filtered for ack in pair.twins[first.id].sealed.acks}
    assert filtered["copy"] == filtered["ids"] == 0 < filtered["seen"] and filtered["spent"]
    assert pair.both[0].compacted("copy", pair.twins[done.id], deepest=True) == pair.both[1].compacted(
        "copy", done, deepest=True
    )


def test_the_fields_of_a_change_are_decoded_as_in_python(raw: Raw, spark: SparkSession) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    values = [None, b"", *WHOLE.bytes, *(damaged(chance, chance.choice(WHOLE.bytes)) for _ in range(3000))]
    frame = decode_values(raw(values), WHOLE.format, WHOLE.format.bind(WHOLE.record)).orderBy("offset")
    good = "CASE WHEN _fault IS NULL THEN _good END AS _good"
    rows = frame.selectExpr("_fault", good).toArrow().to_pylist()
    for value, row in zip(values, rows, strict=True):
        assert (row["_fault"] or row["_good"]) == WHOLE.answer(value), f"{value!r}; seed {SEED}"


def test_changes_of_a_broadcast_state_are_folded_alike(spark: SparkSession, tmp_path: Path) -> None:
    table, pair = Table(), Pair(spark, tmp_path, with_broadcast())
    for count in (30, 30):
        begun = len(table.sent)
        chance = random.Random(SEED + count)
        choices = [(chance.randrange(10), chance.randrange(6), chance.randrange(40)) for _ in range(count)]
        done = pair.checkpoint(
            [replace(r, source="items") for r in records(random_changes(choices, table).sent[begun:])]
        )
    assert {(row["id"], row["region"]) for row in pair.both[1].state("items", done)} == set(table.rows)


def test_events_in_avro_are_decoded_by_workers(spark: SparkSession, tmp_path: Path) -> None:
    pair = Pair(spark, tmp_path, pipeline(inner=formats.Avro().bind_schemas(AVRO)))
    old = {"id": 1, "region": "a", "name": "x", "cents": 4}
    sent = [
        (avro_event("c", None, old), avro_key(1, "a")),
        (avro_event("u", old, old | {"cents": 6}, 3), avro_key(1, "a")),
        (avro_event("c", None, old | {"region": "b"}), avro_key(1, "b")),
        (avro_event("d", old | {"region": "b"}, None), avro_key(1, "b")),
        (None, avro_key(1, "b")),
        (avro_event("c", None, old), avro_key(1, "a") + b"\0"),
        (b"\0\0\0\0\7", avro_key(2, "b")),
    ]
    done = pair.checkpoint([Record(value=value, key=key, partition=0) for value, key in sent])
    (row,) = pair.both[1].state("copy", done)
    assert (row["id"], row["region"], row["cents"], row["op"]) == (1, "a", 6, "u")
    assert [row["reason"] for row in pair.both[1].letters("copy", done)] == ["bad_key", "malformed_avro"]


@dataclass(frozen=True)
class Strict:
    """The buggy release wants a column that the table gets later."""

    id: int
    region: str
    name: str | None
    cents: int
    note: str
    op: str = debezium.op()


def test_letters_of_changes_are_redriven(spark: SparkSession, tmp_path: Path) -> None:
    def release(record: type) -> Pipeline:
        return Pipeline(
            name="items",
            source=KafkaSource("shop.public.items", record, format=formats.Debezium()),
            operators=[Fold("copy", key_by=("id", "region"), state=Copy, deletes=True)],
            max_dead_letters=1.0,
        )

    pair = Pair(spark, tmp_path, release(Strict))
    table = Table()
    for cents in (1, 2):
        table.upsert({"id": 1, "region": "a", "name": "x", "cents": cents})
        table.upsert({"id": 2, "region": "a", "name": "y", "cents": cents})
    table.delete((2, "a"))
    first = pair.checkpoint([*records(table.sent), Record(value=table.sent[0][1], key=b"{}", partition=0)])
    (ack,) = first.sealed.acks
    assert (ack.applied, ack.dead_lettered) == (2, 5)
    pair.deploy(release(Item))
    assert pair.ask("copy", first) == 5
    second = pair.checkpoint([])
    (ack,) = second.sealed.acks
    assert (ack.redriven, ack.applied, ack.dead_lettered) == (5, 4, 1)
    assert [(row["id"], row["cents"]) for row in pair.both[1].state("copy", second)] == [(1, 2), (2, 2)], (
        "a redriven change arrives after the delete"
    )


def test_a_real_topic_is_folded_into_the_table(line: KafkaSparkPipeline) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED}")
    made = pipeline(line.topic)
    line.pipeline = replace(made, operators=made.operators[:2])
    chance, table = random.Random(SEED), Table()
    for number in range(3):
        begun = len(table.sent)
        choices = [(chance.randrange(10), chance.randrange(6), chance.randrange(40)) for _ in range(30)]
        random_changes(choices, table).truncate()
        found = records(table.sent[begun:])
        for record in found:
            assert record.partition is not None and (record.value is None or isinstance(record.value, bytes))
            line.ends[record.partition] += 1
        line.topics.produce(line.topic, [Sent(r.value, key=r.key, partition=r.partition) for r in found])  # type: ignore[arg-type]
        sealed = line.checkpoint()
        copy, seen = sealed.acks
        gone = sum(r.value is None or b'"op": "d"' in r.value for r in found)  # type: ignore[operator]
        truncated = sum(r.key is None for r in found)
        assert (copy.applied, copy.filtered, copy.dead_lettered) == (len(found) - truncated, 0, truncated)
        assert (seen.applied, seen.filtered, seen.dead_lettered) == (len(found) - gone - truncated, gone, truncated)
        if number == 1:
            compaction = line.compact("copy", runs=2, ratio=1)
            assert compaction is not None
            line.adopt(compaction)
        rows = {(row["id"], row["region"]): row for row in line.state("copy")}
        assert {key: (row["name"], row["cents"], row["note"]) for key, row in rows.items()} == {
            key: (row["name"], row["cents"], row.get("note")) for key, row in table.rows.items()
        }
    assert {row["reason"] for row in letters(line, "copy").to_pylist()} == {"unsupported_op"}
