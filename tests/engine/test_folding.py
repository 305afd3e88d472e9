"""Spark, the Python twin and plain DuckDB SQL fold random records to the same state, however barriers cut them."""

import os
import random
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.engine.kafka_spark_pipeline import KafkaSparkPipeline, letters
from tests.support.readings import plan_of
from tidemark.errors import StateOverflowError
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.schema.key_groups import key_group
from tidemark.readers.state_reader import read_state
from tidemark.testing.twin.memory import MemoryCompute, MemoryLog, MemoryTables
from tidemark.testing.twin.merge import resolve_rows

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))


def bodies(chance: random.Random, count: int) -> Iterator[dict[str, object]]:
    """Random good records; few devices and few times, so that keys repeat and event times tie."""
    for _ in range(count):
        at = datetime(2020, 1, 1, tzinfo=UTC) + timedelta(hours=chance.randrange(40))
        yield {
            "device": f"d{chance.randrange(30)}\u00e9",
            "at": at.isoformat(),
            "count": chance.randrange(-50, 50),
            "group": chance.choice([None, 1, 2, -3]),
            "amount": chance.choice([None, "0.10", "-12.34", "9999999.99"]),
            "degrees": chance.choice([None, -0.5, 3.25, 1e300]),
            "ok": chance.choice([None, True, False]),
            "day": chance.choice([None, "2020-02-29", "1999-01-01"]),
            "raw": chance.choice([None, "aGk=", "AP8="]),
            "tags": chance.choice([None, [], ["b", "a"]]),
            "place": chance.choice([None, {"city": "Ulm"}, {"city": "Bonn", "floor": 2}]),
        }


def test_three_engines_agree_on_every_field(line: KafkaSparkPipeline) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED} pytest {__file__}")
    chance = random.Random(SEED)
    sent: list[dict[str, object]] = []
    for count in (120, 3, 200):
        batch = list(bodies(chance, count))
        sent += batch
        line.send(batch)
        sealed = line.checkpoint()
        assert sealed.acks[0].applied == count
    twin = _twin_state(line)
    for uid in ("devices", "days"):
        found = {tuple(row[k.name] for k in line.pipeline.schemas()[uid].keys): row for row in line.state(uid)}
        assert found == twin[uid], f"seed {SEED}"
    assert _by_sql(line, sent) == _plain(line.state("devices")), f"seed {SEED}"


def test_null_keys_are_dead_letters_of_their_operator_only(line: KafkaSparkPipeline) -> None:
    good = {"device": "d", "at": "2020-01-01T00:00:00Z", "count": 1}
    line.send([{**good, "group": 1, "ok": True}, good, b"{", None])
    sealed = line.checkpoint()
    devices, days = sealed.acks
    assert (devices.applied, devices.dead_lettered) == (2, 2)
    assert (days.applied, days.dead_lettered) == (1, 3)
    found = letters(line, "days").to_pylist()
    assert [row["reason"] for row in found] == ["malformed_json", "null_key", "null_value"]
    broken = next(row for row in found if row["reason"] == "malformed_json")
    assert (broken["value"], broken["key"], broken["uid"], broken["topic"]) == (b"{", b"k", "days", line.topic)


def test_an_overflow_in_a_batch_names_the_key(line: KafkaSparkPipeline) -> None:
    big = {"device": "huge", "at": "2020-01-01T00:00:00Z", "count": 2**62}
    line.send([big, {**big, "device": "small", "count": 1}, big, big])
    with pytest.raises(StateOverflowError, match=r"total of key \(huge\) does not fit|mean_count of key \(huge\)"):
        line.checkpoint()


def test_a_sum_that_overflows_between_batches_names_the_key_when_it_is_read(line: KafkaSparkPipeline) -> None:
    for n in range(2):
        line.send([{"device": str(n), "at": "2020-01-01T00:00:00Z", "count": 2**62, "group": 7, "ok": True}])
        line.checkpoint()
    with pytest.raises(StateOverflowError, match=r"total of key \(7, true\) does not fit"):
        read_state(str(line.root), line.pipeline.schemas()["days"], line.handles["days"], line.now)


def test_one_key_is_read_without_the_others(line: KafkaSparkPipeline) -> None:
    line.send(list(bodies(random.Random(1), 60)))
    line.checkpoint()
    schema = line.pipeline.schemas()["devices"]
    rows = line.state("devices")
    one = read_state(str(line.root), schema, line.handles["devices"], line.now, key=(rows[3]["device"],))
    assert one.to_pylist() == [rows[3]]
    assert read_state(str(line.root), schema, line.handles["devices"], line.now, key=("nobody",)).num_rows == 0


def test_the_key_group_in_the_table_is_the_one_that_python_computes(line: KafkaSparkPipeline) -> None:
    line.send(list(bodies(random.Random(2), 80)))
    line.checkpoint()
    for uid in ("devices", "days"):
        schema = line.pipeline.schemas()[uid]
        for segment in line.handles[uid]:
            for file in line.tables.live_files(segment):
                rows = pq.read_table(line.root / segment.path / file.path, partitioning=None).to_pylist()
                assert rows and all(
                    r["_key_group"] == key_group([r[k.name] for k in schema.keys], schema.key_groups) for r in rows
                )
                assert [r["_key_group"] for r in rows] == sorted(r["_key_group"] for r in rows)


def _twin_state(line: KafkaSparkPipeline) -> dict[str, dict[tuple[object, ...], dict[str, object]]]:
    log = MemoryLog()
    log.create(line.topic, 2)
    for record in line.sent:
        log.append(TopicPartition(line.topic, record.partition), record.value)
    tables = MemoryTables()
    found: dict[str, list[Mapping[str, object]]] = {"devices": [], "days": []}
    for number, (starts, ends) in enumerate(zip([dict.fromkeys(range(2), 0), *line.cuts], line.cuts, strict=False), 1):
        ranges = {TopicPartition(line.topic, p): (starts[p], ends[p]) for p in range(2)}
        plan = plan_of(line.pipeline, number, ranges)
        batch = MemoryCompute(pipeline=line.pipeline, log=log, tables=tables).read(plan)
        for uid in found:
            batch.write_run(uid, f"{uid}/{number}.1")
            found[uid] += tables.files.get(f"{uid}/{number}.1/part-00000.parquet", ())
    return {uid: resolve_rows(line.pipeline.schemas()[uid], rows, line.now) for uid, rows in found.items()}


def _by_sql(line: KafkaSparkPipeline, sent: list[dict[str, object]]) -> list[dict[str, object]]:
    """An oracle that shares no code with the product: one GROUP BY over the records as they were sent."""
    rows = [
        {
            "device": body["device"],
            "at": datetime.fromisoformat(str(body["at"])).timestamp(),
            "p": n,
            "count": body["count"],
            "amount": None if body["amount"] is None else str(body["amount"]),
            "degrees": body["degrees"],
        }
        for n, body in enumerate(_by_position(line, sent))
    ]
    oracle = duckdb.connect()
    oracle.register("sent", pa.Table.from_pylist(rows))
    query = """
        SELECT device, count(*) AS readings, CAST(sum("count") AS BIGINT) AS total, min(degrees) AS coldest,
               max(degrees) AS hottest, CAST(sum(CAST(amount AS DECIMAL(12,2))) AS VARCHAR) AS spent,
               arg_max(coalesce(amount, 'null'), row("at", p)) AS last_amount
        FROM sent GROUP BY device ORDER BY device"""
    return list(oracle.sql(query).to_arrow_table().to_pylist())


def _by_position(line: KafkaSparkPipeline, sent: list[dict[str, object]]) -> list[dict[str, object]]:
    """Records ordered by (partition, offset): ties of event time are decided by that."""
    by_partition: dict[int, list[dict[str, object]]] = {0: [], 1: []}
    for record, body in zip(line.sent, sent, strict=True):
        by_partition[record.partition].append(body)
    return by_partition[0] + by_partition[1]


def _plain(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [
        {
            "device": r["device"],
            "readings": r["readings"],
            "total": r["total"],
            "coldest": r["coldest"],
            "hottest": r["hottest"],
            "spent": None if r["spent"] is None else str(r["spent"]),
            "last_amount": "null" if r["last_amount"] is None else str(r["last_amount"]),
        }
        for r in rows
    ]
