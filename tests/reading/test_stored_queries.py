"""The texts that every manifest names resolve its state without a line of ours: against brute force over what was sent.

The writer is the real coordinator over a disk; the reader is `tests.reading.stored_queries`.
"""

import json
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.reading.stored_queries import manifests, resolved, segments, text_of
from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tidemark import Fold, KafkaSource, Pipeline, state
from tidemark.engine.session.session import SparkSettings, open_session
from tidemark.errors import CorruptObjectError
from tidemark.model.checkpoint import codec
from tidemark.model.checkpoint.plan import CheckpointPlan

SEED = 20250207
START = datetime(2024, 5, 1, tzinfo=UTC)
TTL = timedelta(hours=3)


@dataclass(frozen=True)
class Sale:
    """One record."""

    customer: str
    item: str
    pieces: int
    at: datetime


class Customer(state.Keyed):
    """Of the first declaration."""

    sales: int = state.count()
    pieces: int | None = state.sum("pieces", ttl=TTL)
    items: list[str] = state.list("item", ttl=TTL)
    last: str | None = state.latest("item")


class Later(state.Keyed):
    """Of the second one: a field renamed, one added, one removed."""

    purchases: int = state.count(was="sales")
    pieces: int | None = state.sum("pieces", ttl=TTL)
    items: list[str] = state.list("item", ttl=TTL)
    most: int | None = state.max("pieces")


def _pipeline(of: type[state.Keyed]) -> Pipeline:
    return Pipeline(
        name="books",
        source=KafkaSource("sales", Sale, event_time="at"),
        operators=[Fold("customers", key_by="customer", state=of)],
    )


@dataclass
class Books:
    """A warehouse of seven checkpoints, the last three by another declaration, and all that was sent."""

    root: Path
    sent: list[list[Sale]]
    texts_after: dict[int, set[str]]

    def right(self, checkpoint: int) -> dict[str, dict[str, Any]]:
        """State by customer, `_changed` left out, by one pass over the records."""
        sales = [s for batch in self.sent[:checkpoint] for s in batch]
        newest, found = max((s.at for s in sales), default=START), {}
        for name in {s.customer for s in sales}:
            mine = [s for s in sales if s.customer == name]
            kept: list[Sale] = []
            for sale in mine:
                kept = [*(kept if kept and sale.at - kept[-1].at < TTL else []), sale]
            alive = mine[-1].at + TTL > newest
            items = [s.item for s in mine if s.at + TTL > newest]
            common = {"pieces": sum(s.pieces for s in kept) if alive else None, "items": items}
            if checkpoint < 5:
                found[name] = {"sales": len(mine), "last": mine[-1].item, **common}
            else:
                since = [s.pieces for batch in self.sent[4:checkpoint] for s in batch if s.customer == name]
                found[name] = {"purchases": len(mine), "most": max(since, default=None), **common}
        return found


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Books:
    """Seed 20250207."""
    root, chance, at = tmp_path_factory.mktemp("books"), random.Random(SEED), START
    line, made = DiskPipeline(root, _pipeline(Customer), "sales"), Books(root, [], {})
    for n in range(1, 8):
        if n == 5:
            line.pipeline = _pipeline(Later)
        batch = []
        for _ in range(0 if n == 3 else 25):
            at += timedelta(minutes=chance.randrange(1, 40))
            batch.append(Sale(chance.choice("abcdef"), chance.choice("xyz"), chance.randrange(9), at))
        made.sent.append(batch)
        line.send([(0, _json(s), int(s.at.timestamp() * 1000)) for s in batch])
        line.checkpoint()
        made.texts_after[n] = {path.name for path in (root / "books" / "queries").iterdir()}
        if n == 2:
            assert line.compact("customers")
    return made


def _json(sale: Sale) -> bytes:
    return json.dumps(
        {"customer": sale.customer, "item": sale.item, "pieces": sale.pieces, "at": sale.at.isoformat()}
    ).encode()


def _by_customer(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {r["customer"]: {k: v for k, v in r.items() if k not in ("customer", "_changed")} for r in rows}


@pytest.mark.parametrize("n", range(1, 8))
def test_a_state_is_resolved_from_files_of_the_warehouse_alone(books: Books, n: int) -> None:
    body = manifests(books.root / "books")[n]
    assert _by_customer(resolved(books.root, "books", body, "customers")) == books.right(n)


def test_a_checkpoint_without_a_watermark_expires_nothing(books: Books) -> None:
    body = manifests(books.root / "books")[4]
    body["sealed"]["facts"]["watermark_ms"] = None
    told = _by_customer(resolved(books.root, "books", body, "customers"))
    assert all(row["pieces"] is not None for row in told.values())
    assert {k: v["sales"] for k, v in told.items()} == {k: v["sales"] for k, v in books.right(4).items()}


def test_a_text_is_put_once_per_schema(books: Books) -> None:
    first = books.texts_after[1]
    assert len(first) == 2, "one text for each dialect"
    assert [len(books.texts_after[n]) for n in range(1, 8)] == [2, 2, 2, 2, 6, 6, 6]
    named = {sha for body in manifests(books.root / "books").values() for sha in _hashes(body)}
    assert {f"{sha}.sql" for sha in named} == books.texts_after[7]


def _hashes(body: dict[str, Any]) -> list[str]:
    return [sha for texts in body["plan"]["queries"].values() for sha in texts.values()]


def _command(books: Books) -> Command:
    return Command(books.root / "home", "127.0.0.1:1", "sc://127.0.0.1:1", warehouse=books.root)


@pytest.mark.parametrize("n", [1, 4, 7])
def test_the_command_prints_the_stored_text_filled(books: Books, n: int) -> None:
    from duckdb import connect

    command = _command(books)
    arguments = ("state", "query", "books", "customers", "--checkpoint", str(n), "--dialect", "duckdb")
    printed = command(*arguments).ok().out
    body = manifests(books.root / "books")[n]
    stored = text_of(books.root / "books", body["plan"]["queries"]["customers"]["duckdb"])
    query = next(line for line in stored.splitlines() if not line.startswith("--"))
    assert query.replace("$event_time_ms", str(body["sealed"]["facts"]["watermark_ms"])) in printed
    with connect() as connection:
        assert _by_customer(connection.sql(printed).to_arrow_table().to_pylist()) == books.right(n)


def test_a_text_that_is_gone_or_damaged_is_named(books: Books) -> None:
    command, body = _command(books), manifests(books.root / "books")[7]
    sha = body["plan"]["queries"]["customers"]["duckdb"]
    path = books.root / "books" / "queries" / f"{sha}.sql"
    sound = path.read_text()
    try:
        path.write_text(sound.replace("SELECT", "select"))
        asked = ("state", "query", "books", "customers", "--dialect", "duckdb")
        command(*asked).failed(CorruptObjectError.code, sha, "does not match its name")
        path.unlink()
        command(*asked).failed(CorruptObjectError.code, sha, "it is gone")
    finally:
        path.write_text(sound)


def test_a_plan_of_an_earlier_release_names_no_text_and_stays_as_it_is(books: Books) -> None:
    body = manifests(books.root / "books")[2]["plan"]
    del body["queries"]
    plan = codec.from_json(CheckpointPlan, body, "here")
    assert plan.queries == {}
    assert json.dumps(codec.to_json(plan), sort_keys=True) == json.dumps(body, sort_keys=True)


def test_spark_resolves_with_its_own_text(books: Books, spark_server: str) -> None:
    session = open_session(SparkSettings(master=spark_server), f"stored-queries/{books.root.name}", 1)
    try:
        for n in (4, 7):
            body, parts = manifests(books.root / "books")[n], []
            texts = body["plan"]["queries"]["customers"]
            query = text_of(books.root / "books", texts["spark"])
            columns = next(line for line in query.splitlines() if line.startswith("-- its columns: "))
            names = columns.removeprefix("-- its columns: ").removesuffix(".").split(", ")
            for folder, rows in segments(books.root, body, "customers"):
                session.createDataFrame(rows).createOrReplaceTempView("segment")
                mapping = texts.get(f"spark:{folder}")
                mapped = session.sql(text_of(books.root / "books", mapping) if mapping else "FROM segment")
                parts.append(mapped.select(*names).toArrow())
            whole = pa.concat_tables(parts, promote_options="permissive")
            session.createDataFrame(whole).createOrReplaceTempView("segments")
            # Put in by hand: Spark 4.1 does not bind parameters that stand within lambdas.
            found = session.sql(query.replace(":event_time_ms", str(body["sealed"]["facts"]["watermark_ms"])))
            assert _by_customer(found.toArrow().to_pylist()) == books.right(n)
    finally:
        session.stop()
