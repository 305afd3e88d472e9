"""`tidemark backfill` by real Spark from real Kafka: killed, repeated, compared, caught up, promoted."""

import signal
from decimal import Decimal
from typing import Any

import pytest

from tests.cli.conftest import DECLARATION, TillPipeline

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]
FIX = '    dearest: Annotated[Decimal, Precision(10, 2)] = state.max("price")\n'
SUM = '= state.sum("price")\n'


def _backfill(line: TillPipeline, *options: str) -> dict[str, Any]:
    told: dict[str, Any] = line.tidemark("backfill", "till", "--from-checkpoint", "chk-1", *options, "--json").ok().json
    return told


def _hash(line: TillPipeline, uid: str, *options: str) -> str:
    told: str = line.tidemark("state", "hash", "till", uid, *options, "--json").ok().json["sha256"]
    return told


def _dearest(line: TillPipeline) -> dict[tuple[str, int], Decimal]:
    """The largest price of each till since the first checkpoint, over all days."""
    ends, found = line.ends(line.made[0]), dict[tuple[str, int], Decimal]()
    for partition, sales in line.sales.sent.items():
        for sale in sales[ends[partition] :]:
            key = (sale["shop"], sale["till"])
            found[key] = max(found.get(key, Decimal(str(sale["price"]))), Decimal(str(sale["price"])))
    return found


def test_a_backfill_is_killed_repeated_compared_and_promoted(line: TillPipeline) -> None:
    line.run("--max-records", "20", "--once")
    line.run("--max-records", "20", "--once")
    line.run()
    recorded = {uid: _hash(line, uid) for uid in ("accounts", "tills")}
    line.tidemark.declare(DECLARATION.read_text().replace(SUM, SUM + FIX), topic=line.topic)

    before = line.tidemark.objects("till")
    told = _backfill(line)
    assert (told["executed"], told["left"], told["done"]) == (False, [["chk-2"], ["chk-3"]], [])
    assert line.tidemark.objects("till") == before, "without --execute nothing is written"

    crash = {"TIDEMARK_CRASH_AT": "publish:before", "TIDEMARK_TEST_FAULTS": "1"}
    command = ("backfill", "till", "--from-checkpoint", "chk-1", "--execute")
    assert line.tidemark.process(*command, **crash).code == -signal.SIGKILL
    told = _backfill(line, "--execute")
    assert [step["repeats"] for step in told["done"]] == [["chk-2"], ["chk-3"]]
    assert (told["left"], told["promoted"]) == ([], False)
    accounts, tills = told["differences"]
    assert [accounts[n] for n in ("uid", "inserted", "deleted", "changed", "added")] == ["accounts", 0, 0, 0, []]
    assert [tills[n] for n in ("uid", "inserted", "deleted", "changed", "added")] == ["tills", 0, 0, 0, ["dearest"]]
    assert _hash(line, "accounts", "--checkpoint", told["done"][-1]["checkpoint"]) == recorded["accounts"]
    assert _hash(line, "tills") == recorded["tills"], "the live timeline is as it was"

    line.send(9)
    live = line.run()["id"]
    told = _backfill(line, "--mode", "promote", "--execute")
    assert [step["repeats"] for step in told["done"]] == [["chk-2"], ["chk-3"], [live]]
    assert told["promoted"] is True
    assert _hash(line, "accounts") == _hash(line, "accounts", "--checkpoint", live)
    sql = "select shop, till, max(dearest) as d from tills where dearest is not null group by all"
    rows = line.tidemark("state", "sql", "till", sql, "--json").ok().json
    assert {(r["shop"], r["till"]): Decimal(str(r["d"])) for r in rows} == _dearest(line)
    assert _backfill(line, "--mode", "promote", "--execute")["promoted"] is True, "a repeated call finds it done"


def test_records_that_kafka_has_dropped_are_named_before_anything_is_written(line: TillPipeline) -> None:
    line.topics.trim(line.topic, 12)
    before = line.tidemark.objects("till")
    command = ("backfill", "till", "--from-checkpoint", "chk-1", "--name", "again", "--execute")
    line.tidemark(*command).failed(6, "were deleted since", "later savepoint")
    assert line.tidemark.objects("till") == before
