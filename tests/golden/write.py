"""Writes the golden warehouse of a release: run once, by hand, when a release is made; the test reads it for ever.

    sudo mkdir /golden; sudo chown $USER /golden
    PYTHONPATH=include TIDEMARK_TEST_GOLDEN=0.1.0 .venv/bin/python -m pytest -q tests/golden/write.py

Delta writes a table's place into its first commit, so the warehouse lies at a place that names no machine.

It is made by the real command line on real Kafka and Spark, with a compaction, dead letters, a sink, and a change of
declaration; every answer that is kept is checked against plain Python first.
"""

import io
import json
import os
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.golden.answers import ANSWERS, WAREHOUSE, answers_of
from tests.support.cli import Command
from tests.support.kafka import Sent, Topics

HERE = Path(__file__).parent
PLACE = Path("/golden")
ROOMS = ("bread", "milk", "salt")
Sale = Mapping[str, Any]


def _sale(n: int) -> Sale:
    """A sale every five minutes; numbers without a pattern that a mistake could share."""
    return {
        "customer": "abcd"[n * n * n % 7 % 4],
        "item": ROOMS[n * 5 % 7 % 3],
        "pieces": 0 if n % 11 == 10 else 1 + n * 7 % 5,
        "price": f"{n * 37 % 1000}.{n % 100:02}",
        "at": f"2024-05-01T{n // 12:02}:{n % 12 * 5:02}:00Z",
    }


BATCHES = [range(12), range(12, 20), range(20, 21), range(21, 40), range(40, 52), range(52, 60), range(60, 64)]


@pytest.mark.skipif("TIDEMARK_TEST_GOLDEN" not in os.environ, reason="by hand, when a release is made")
def test_write(topics: Topics, broker: str, spark_server: str, tmp_path: Path) -> None:
    release = HERE / os.environ["TIDEMARK_TEST_GOLDEN"]
    assert not release.exists(), "a golden warehouse is written once"
    assert not list(PLACE.iterdir()), f"empty {PLACE} first"
    tidemark = Command(tmp_path, broker, spark_server, warehouse=PLACE / "warehouse")
    topic = topics.make("golden-sales", partitions=2)
    declared = HERE / "pipelines/shop.py"
    for n, batch in enumerate(BATCHES):
        if n == 4:
            declared = HERE / "pipelines/shop_later.py"
        tidemark.declare(declared, topic=topic)
        values = [(json.dumps(_sale(i)).encode(), i % 3 % 2) for i in batch] + [(b'{"customer": %d}' % n, 0)]
        topics.produce(topic, [Sent(value, partition=p, timestamp_ms=1) for value, p in values])
        tidemark("run", "shop", "--json").ok()
        if n in (2, 5):
            tidemark("compact", "shop", "--full").ok()
    found = answers_of(tidemark.context)
    _judge(found)
    release.mkdir()
    (release / ANSWERS).write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    (release / WAREHOUSE).write_bytes(_packed(tidemark.warehouse))


def _judge(found: Mapping[str, Any]) -> None:
    """What plain Python says of every checkpoint."""
    for n, batch in enumerate(BATCHES):
        told = found[f"chk-{n + 1}"]
        sales = [_sale(i) for i in range(batch.stop)]
        later = n >= 4
        customers = {row["customer"]: row for row in told["state"]["buyers" if later else "customers"]}
        baskets = {row["customer"]: row for row in told["state"]["baskets"]}
        assert set(customers) == {s["customer"] for s in sales}
        for key in customers:
            mine = [s for s in sales if s["customer"] == key]
            assert customers[key]["purchases" if later else "sales"] == len(mine)
            assert customers[key]["spent"] == _sum(mine)
            assert sorted(customers[key]["history"]) == sorted(s["pieces"] for s in mine)
            assert _held(key, sales) == dict(baskets[key]["held" if later else "by_item"]) if key in baskets else True
        assert told["dead_letters"] == {uid: n + 1 for uid in told["state"]}


def _sum(sales: Sequence[Sale]) -> str:
    cents = sum(int(s["price"].replace(".", "")) for s in sales)
    return f"{cents // 100}.{cents % 100:02}"


def _held(key: str, sales: Sequence[Sale]) -> dict[str, int]:
    """Records reach a key in order of (partition, offset) within a checkpoint."""
    held: dict[str, int] = {}
    for batch in BATCHES:
        placed = [(i % 3 % 2, i) for i in batch if i < len(sales) and sales[i]["customer"] == key]
        for _, i in sorted(placed):
            if sales[i]["pieces"] == 0:
                held = {}
            else:
                held[sales[i]["item"]] = held.get(sales[i]["item"], 0) + sales[i]["pieces"]
    return held


def _packed(warehouse: Path) -> bytes:
    """The files that count, in one order, without times and owners."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        for path in sorted(p for p in warehouse.rglob("*") if p.is_file()):
            name = path.relative_to(warehouse)
            if "locks" in name.parts or name.name.startswith("."):
                continue
            entry = tarfile.TarInfo(name.as_posix())
            entry.size = path.stat().st_size
            archive.addfile(entry, io.BytesIO(path.read_bytes()))
    return packed.getvalue()
