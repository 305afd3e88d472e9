"""Warehouses that earlier releases wrote are read for ever: every state of every checkpoint, with and without a JVM."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.golden.answers import ANSWERS, PIPELINE, WAREHOUSE, answers_of, plain, unpack_warehouse
from tidemark import read_sink, read_state
from tidemark.context import open_context
from tidemark.engine.session.session import SparkSettings, open_session
from tidemark.model.portable_sql.dialects import DUCKDB
from tidemark.operations import queries, reads
from tidemark.readers.portable_query import duckdb_query
from tidemark.readers.sink_reader import read_sink as arrow_sink
from tidemark.settings import Settings, load_settings
from tidemark.sql.resolve import bind_clocks, stored_texts

HERE = Path(__file__).parent
RELEASES = sorted(p.parent.name for p in HERE.glob(f"*/{WAREHOUSE}"))
LARGEST = 200_000
MACHINE = (b"/tmp/", b"/root/", b"/home/", b"/work/", b"/Users/", b"127.0.0.1", b"localhost")


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> Path:
    """The folder of a release."""
    return HERE / str(request.param)


@pytest.fixture
def settings(release: Path, tmp_path: Path) -> Settings:
    """Of a copy of its warehouse."""
    warehouse = unpack_warehouse(release, tmp_path)
    return load_settings(home=str(tmp_path), warehouse=str(warehouse), pipelines=str(tmp_path))


def _answers(release: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((release / ANSWERS).read_text())
    return found


def test_there_is_a_warehouse_of_a_release() -> None:
    assert RELEASES


def test_every_checkpoint_answers_what_it_answered_then(release: Path, settings: Settings) -> None:
    context, right = open_context(settings), _answers(release)
    assert answers_of(context) == right
    newest = right[f"chk-{len(right)}"]["state"]
    told = queries.run_sql(context, PIPELINE, "SELECT customer, spent FROM buyers ORDER BY customer").to_pylist()
    assert plain(told) == [{"customer": r["customer"], "spent": r["spent"]} for r in newest["buyers"]]


def test_the_text_that_is_stored_today_answers_as_then(release: Path, settings: Settings) -> None:
    context, right = open_context(settings), _answers(release)
    for checkpoint in reads.list_checkpoints(context, PIPELINE):
        for uid, schema in checkpoint.plan.schemas.items():
            query = bind_clocks(stored_texts(schema)["duckdb"], uid, checkpoint.now, DUCKDB)
            with duckdb.connect() as connection:
                connection.execute("SET TimeZone = 'UTC'")
                text = duckdb_query(str(settings.warehouse), checkpoint, uid, query)
                told = connection.sql(text).to_arrow_table().to_pylist(maps_as_pydicts="strict")
            assert plain(told) == right[checkpoint.plan.name]["state"][uid], (checkpoint.plan.name, uid)


def test_an_answer_differs_where_the_declaration_did(release: Path) -> None:
    right = _answers(release)
    first, last = right["chk-1"]["state"], right[f"chk-{len(right)}"]["state"]
    assert set(first) == {"customers", "baskets"}
    assert set(last) == {"buyers", "baskets"}
    assert "items" in first["customers"][0]
    assert {"purchases", "cheapest"} <= set(last["buyers"][0])


def test_a_release_is_small_and_names_no_machine(release: Path, settings: Settings) -> None:
    assert sum(p.stat().st_size for p in release.iterdir()) <= LARGEST
    assert isinstance(settings.warehouse, Path)
    for path in settings.warehouse.rglob("*"):
        found = [m for m in MACHINE if path.is_file() and m in path.read_bytes()]
        assert not found, f"{path}: {found}"


def test_spark_answers_the_same(release: Path, settings: Settings, spark_server: str) -> None:
    right = _answers(release)
    session = open_session(SparkSettings(master=spark_server), f"golden/{release.name}/{settings.home.name}", 1)
    try:
        for name, told in right.items():
            for uid, rows in told["state"].items():
                for by in ("auto", "spark"):
                    frame = read_state(session, PIPELINE, uid, by=by, checkpoint=name, settings=settings)
                    assert plain(frame.toArrow().to_pylist(maps_as_pydicts="strict")) == rows, (name, uid, by)
            emitted = read_sink(session, PIPELINE, "alerts", checkpoint=name, settings=settings).toArrow().to_pylist()
            (table,) = reads.get_checkpoint(open_context(settings), PIPELINE, int(name[4:])).sinks.values()
            assert sorted(map(str, emitted)) == sorted(map(str, arrow_sink(str(settings.warehouse), table).to_pylist()))
            assert emitted and all(len(row["_path"]) == 1 for row in emitted), "one number, as rows of then have it"
    finally:
        session.stop()
