"""State in a real PostgreSQL: after each step its rows are those of the checkpoint that its progress row names."""

import os
import random
import re
import shlex
from pathlib import Path

import psycopg
import pytest

from tests.cli.test_savepoint_page import README, ROOT, _block, _flight
from tests.publications.postgres_ward import PostgresWard
from tests.publications.published_ward import NAME
from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import commands_over
from tests.support.postgres import INSTALL, PASSWORD, Postgres, programs
from tests.support.prerequisites import needs
from tidemark.errors import DeclarationError, StoreError, TargetChangedError
from tidemark.operations.publications import publishing
from tidemark.targets import JdbcUpsert

pytestmark = needs(programs() is not None, f"no PostgreSQL here: {INSTALL}")
SEED = int(os.environ.get("TIDEMARK_TEST_SEED", "20261128"))
KEPT = "kept-upsert"
PAGE = ROOT / "docs/how-to/publish-to-postgresql.md"


@pytest.fixture
def ward(tmp_path: Path, postgres_server: Postgres) -> PostgresWard:
    print(f"seed {SEED}; TIDEMARK_TEST_SEED={SEED}")
    made = PostgresWard(tmp_path, random.Random(SEED), postgres_server)
    made.checkpoint()
    return made


def test_a_database_that_is_away_delays_nothing_and_differences_catch_up(
    ward: PostgresWard, postgres_server: Postgres
) -> None:
    ward.published("kept")
    postgres_server.execute(f"ALTER DATABASE {ward.database} ALLOW_CONNECTIONS false")
    for _ in range(3):
        ward.checkpoint()
        with pytest.raises(StoreError, match="PostgreSQL") as caught:
            publishing.publish(ward.context, NAME, KEPT)
        assert PASSWORD not in str(caught.value)
    postgres_server.execute(f"ALTER DATABASE {ward.database} ALLOW_CONNECTIONS true")
    # The step that was begun while it was away, and one over the checkpoints since.
    assert ward.published("kept") == ["difference", "difference"]
    assert ward.told("kept")[1] == 4


def test_rows_of_others_are_left_alone_until_a_rebuild_may_replace_them(ward: PostgresWard) -> None:
    ward.execute("CREATE TABLE kept (sensor text PRIMARY KEY)")
    with pytest.raises(TargetChangedError, match="has not made") as caught:
        publishing.publish(ward.context, NAME, KEPT)
    assert f"tidemark publication rebuild {NAME} {KEPT} --replace" in str(caught.value)
    with pytest.raises(TargetChangedError, match="has not made"):
        publishing.rebuild(ward.context, NAME, KEPT)
    publishing.rebuild(ward.context, NAME, KEPT, replaces_others=True)
    ward.compare("kept")
    ward.execute("DELETE FROM kept")
    assert not publishing.verify(ward.context, NAME, KEPT).equal
    publishing.rebuild(ward.context, NAME, KEPT)
    assert publishing.verify(ward.context, NAME, KEPT).equal
    ward.checkpoint()
    assert ward.published("kept") == ["difference"]
    ward.execute("UPDATE tidemark_publications SET lineage = 'of another warehouse'")
    ward.checkpoint()
    with pytest.raises(TargetChangedError, match="another rebuild"):
        publishing.publish(ward.context, NAME, KEPT)


def test_commands_name_the_place_without_the_password(ward: PostgresWard) -> None:
    with commands_over(ward.line):
        ward.tidemark("publication", "run", NAME).ok()
        told = [ward.tidemark("publication", *words).ok() for words in (
            ("list", NAME), ("show", NAME, KEPT), ("verify", NAME, KEPT), ("drop", NAME, KEPT),
            ("drop", NAME, KEPT, "--execute"), ("list", NAME, "--json"),
        )]  # fmt: skip
    texts = "".join(f"{answer.out}{answer.err}" for answer in told)
    assert PASSWORD not in texts and f"{ward.database}#kept" in texts
    held = "".join(path.read_text() for path in (ward.tidemark.warehouse / NAME / "publications").rglob("*.json"))
    assert PASSWORD not in held
    before = ward.rows("kept")
    ward.checkpoint()
    assert publishing.publish(ward.context, NAME, KEPT) == []
    assert ward.rows("kept") == before


def test_addresses_and_tables_that_cannot_be() -> None:
    for url, table in (("mysql://db/x", "t"), ("postgresql://db/x", "a.b.c"), ("postgresql://db/x", 't"; drop')):
        with pytest.raises(DeclarationError):
            JdbcUpsert(url, table=table)
    assert PASSWORD not in repr(JdbcUpsert(f"postgresql://me:{PASSWORD}@db/x", table="t"))


def test_every_command_of_the_page_works_in_its_order(
    tmp_path: Path, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres_server.execute("CREATE DATABASE page")
    declared = _block(PAGE, "python", "publish=").strip()
    source = _block(README, "python", "Pipeline(").replace("import DeltaMirror", "import JdbcUpsert")
    source = re.sub(r'Fold\("aircraft".*(?=,\n)', lambda _: declared, source)
    source = source.replace(
        "postgresql://tidemark@db/lake", f"postgresql://postgres@127.0.0.1:{postgres_server.port}/page"
    )
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    tidemark = Command(tmp_path, "127.0.0.1:1", "sc://127.0.0.1:1")
    tidemark.declare(source, file="flights.py")
    line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("flights"), "flights")
    line.send([(0, _flight(n), n) for n in range(9)])
    line.checkpoint()
    blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    with commands_over(line):
        told = {text: tidemark(*shlex.split(text)[1:]).ok() for block in blocks for text in block.splitlines()}
    assert len(told) == 5 and "equal" in told["tidemark publication verify flights aircraft-upsert"].out
    with psycopg.connect(postgres_server.url("page")) as connection:
        (row,) = connection.execute(_block(PAGE, "sql", "SELECT")).fetchall()
    assert row[:2] == (1, "t1")
