"""A table of a real PostgreSQL, changed at random: folding its changes gives the rows that SELECT gives."""

import json
import os
import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import psycopg2
import pytest

from tests.support.postgres import INSTALL, Postgres, postgres, programs
from tests.support.prerequisites import needs
from tests.support.row_changes import event, records
from tidemark import Fold, KafkaSource, Pipeline, formats, state
from tidemark.formats import debezium
from tidemark.model.core.types import Precision
from tidemark.testing import BARRIER, replay

pytestmark = needs(programs() is not None, f"no PostgreSQL here: {INSTALL}")
SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
TABLE = """
CREATE TABLE items (
    id int, region text, name text, price numeric(10,2), changed_at timestamptz NOT NULL, tag uuid,
    PRIMARY KEY (id, region)
);
CREATE TABLE log (n serial PRIMARY KEY, op text, before jsonb, after jsonb);
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO log (op, before, after) VALUES (lower(left(TG_OP, 1)),
        CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END, CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END);
    RETURN NULL;
END $$;
CREATE TRIGGER keep AFTER INSERT OR UPDATE OR DELETE ON items FOR EACH ROW EXECUTE FUNCTION keep();
"""


@dataclass(frozen=True)
class Item:
    """The columns, and the time of the change."""

    id: int
    region: str
    name: str | None
    price: Annotated[Decimal, Precision(10, 2)] | None
    changed_at: datetime
    tag: UUID | None
    stock: int | None = None
    at: datetime = debezium.ts()


class Copy(state.Keyed):
    """The table."""

    name: str | None = state.latest("name")
    price: Annotated[Decimal, Precision(10, 2)] | None = state.latest("price")
    changed_at: datetime = state.latest("changed_at")
    tag: UUID | None = state.latest("tag")
    stock: int | None = state.latest("stock")


PIPELINE = Pipeline(
    name="items",
    source=KafkaSource("shop.public.items", Item, event_time="at", format=formats.Debezium()),
    operators=[Fold("copy", key_by=("id", "region"), state=Copy, deletes=True)],
)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as made:
        yield made


def _statement(chance: random.Random, *, has_stock: bool) -> str:
    id, region = chance.randrange(6), chance.choice("ab")
    name = chance.choice(["NULL", "'é'", "'x'", "''"])
    price = chance.choice(["NULL", "0", "-0.5", "99999999.99", "12.30"])
    tag = chance.choice(["NULL", "gen_random_uuid()"])
    at = f"'2024-03-01 00:00:00+02'::timestamptz + {chance.randrange(10**9)} * interval '1 microsecond'"
    where = f"id = {id} AND region = '{region}'"
    stock = ", stock = coalesce(stock, 0) + 1" if has_stock else ""
    return chance.choice(
        [
            f"INSERT INTO items VALUES ({id}, '{region}', {name}, {price}, {at}, {tag}) ON CONFLICT DO NOTHING",
            f"INSERT INTO items VALUES ({id}, '{region}', {name}, {price}, {at}, {tag}) ON CONFLICT (id, region) "
            f"DO UPDATE SET name = excluded.name, price = excluded.price",
            f"UPDATE items SET name = {name}, changed_at = {at}{stock} WHERE {where}",
            f"UPDATE items SET price = price / 2, tag = {tag} WHERE region = '{region}'",
            f"UPDATE items SET id = id + 100 WHERE {where} "
            f"AND NOT EXISTS (SELECT FROM items i WHERE i.id = {id} + 100 AND i.region = '{region}')",
            f"DELETE FROM items WHERE {where}",
            f"DELETE FROM items WHERE region = '{region}' AND price < 0",
        ]
    )


def _messages(row: tuple[str, Any, Any], op: str, ts_ms: int) -> Iterator[tuple[bytes, bytes | None]]:
    """What the connector sends for a change, with `decimal.handling.mode=string`; a changed key is a delete first."""
    _, before, after = row
    before, after = _as_text(before), _as_text(after)

    def key(of: Any) -> bytes:
        return json.dumps({"schema": {}, "payload": {"id": of["id"], "region": of["region"]}}).encode()

    if op == "u" and key(before) != key(after):
        yield from _messages(("d", before, None), "d", ts_ms)
        before, op = None, "c"
    body = {"schema": {}, "payload": event(op, before, after, ts_ms)}
    yield key(after or before), json.dumps(body).encode()
    if op == "d":
        yield key(before), None


def _as_text(row: Any) -> Any:
    if row is None or row["price"] is None:
        return row
    return row | {"price": str(row["price"])}


@pytest.mark.parametrize("number", range(3))
def test_folding_the_changes_gives_the_rows_of_the_table(server: Postgres, number: int) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED}")
    chance, database = random.Random(SEED + number), f"changes_{number}"
    server.execute(f"CREATE DATABASE {database}")
    with closing(psycopg2.connect(server.url(database))) as connection, connection.cursor() as cursor:
        cursor.execute(TABLE)
        for _ in range(8):
            cursor.execute(_statement(chance, has_stock=False))
        cursor.execute("TRUNCATE log")
        cursor.execute("SELECT to_jsonb(items) FROM items")
        snapshot = [("r", None, row) for (row,) in cursor.fetchall()]
        connection.commit()
        for n in range(150):
            if n == 75:
                cursor.execute("ALTER TABLE items ADD COLUMN stock int")
                connection.commit()
            cursor.execute(_statement(chance, has_stock=n >= 75))
            if chance.random() < 0.2:
                connection.rollback() if chance.random() < 0.3 else connection.commit()
        connection.commit()
        cursor.execute("SELECT op, before, after FROM log ORDER BY n")
        ops = {"i": "c", "u": "u", "d": "d"}
        changes = [*snapshot, *((ops[op], before, after) for op, before, after in cursor.fetchall())]
        cursor.execute("SELECT id, region, name, price, changed_at, tag::text, stock FROM items")
        rows = {(row[0], row[1]): row[2:] for row in cursor.fetchall()}
    sent = [pair for row in changes for pair in _messages(row, row[0], chance.randrange(10**6))]
    script: list[Any] = []
    for record in records(sent):
        script += [[record], *([BARRIER] if chance.random() < 0.1 else [])]
    found = replay(PIPELINE, [*script, BARRIER], partitions=2)
    assert len(sent) > 20 and not found.dead_letters("copy")
    assert {
        key: (row.name, row.price, row.changed_at, None if row.tag is None else str(row.tag), row.stock)
        for key, row in found.state("copy").items()
    } == rows
