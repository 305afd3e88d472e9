"""State in a real PostgreSQL: after each step its rows are those of the checkpoint that its progress row names."""

import os
import random
import re
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.cli.test_savepoint_page import README, ROOT, _block, _flight
from tests.publications.published_ward import NAME, UIDS, PublishedWard
from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import commands_over
from tests.support.postgres import INSTALL, PASSWORD, Postgres, postgres, programs
from tests.support.prerequisites import needs
from tidemark.errors import DeclarationError, StoreError, TargetChangedError
from tidemark.operations.publications import publishing
from tidemark.publications.operator_states import OperatorStates
from tidemark.targets import JdbcUpsert

pytestmark = needs(programs() is not None, f"no PostgreSQL here: {INSTALL}")
SEED = int(os.environ.get("TIDEMARK_TEST_SEED", "20261128"))
KEPT = "kept-upsert"
PAGE = ROOT / "docs/how-to/publish-to-postgresql.md"


class PostgresWard(PublishedWard):
    """A ward that publishes to tables of one database."""

    def __init__(self, folder: Path, chance: random.Random, server: Postgres) -> None:
        self.database = f"d{abs(hash(str(folder)))}"
        server.execute(f"CREATE DATABASE {self.database}")
        self.url = server.url(self.database)
        super().__init__(folder, chance)

    def target(self, uid: str) -> str:
        """The declaration of an operator's target."""
        return f'JdbcUpsert("{self.url}", table="{uid}")'

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Rows of a table in order of sensors."""
        with psycopg.connect(self.url, row_factory=dict_row) as connection:
            return connection.execute(f"SELECT * FROM {table} ORDER BY sensor").fetchall()

    def progress(self, uid: str) -> dict[str, Any]:
        """The progress row of an operator's publication."""
        with psycopg.connect(self.url, row_factory=dict_row) as connection:
            wanted = "SELECT * FROM tidemark_publications WHERE publication = %s"
            (found,) = connection.execute(wanted, (f"tidemark/{NAME}/{uid}-upsert",)).fetchall()
        return found

    def execute(self, statement: str) -> None:
        """Something that others do to the database."""
        with psycopg.connect(self.url) as connection:
            connection.execute(statement)

    def published(self, uid: str) -> list[str]:
        """Publishes and compares; returns the modes of the steps."""
        made = publishing.publish(self.context, NAME, f"{uid}-upsert")
        self.compare(uid)
        return [step.mode for step in made]

    def compare(self, uid: str) -> None:
        """The table has the state of the checkpoint in its progress row."""
        expected = self.expected(self.progress(uid)["checkpoint"], uid)
        assert [self._plain(row) for row in self.rows(uid)] == [self._plain(row) for row in expected]

    def _plain(self, row: dict[str, Any]) -> dict[str, Any]:
        # A map is an object of JSON, whose keys are texts; the state has those of `by_room` as numbers.
        return {n: {str(k): v for k, v in held.items()} if isinstance(held, dict) else held for n, held in row.items()}


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as made:
        yield made


@pytest.fixture
def ward(tmp_path: Path, server: Postgres) -> PostgresWard:
    print(f"seed {SEED}; TIDEMARK_TEST_SEED={SEED}")
    made = PostgresWard(tmp_path, random.Random(SEED), server)
    made.checkpoint()
    return made


def test_a_state_that_exists_is_published_as_a_whole_then_by_differences(ward: PostgresWard) -> None:
    for _ in range(4):
        modes = [ward.published(uid) for uid in UIDS]
        ward.checkpoint()
    assert modes == [["difference"]] * 3
    assert ward.progress("kept")["checkpoint"] == 4


@pytest.mark.parametrize("step", ["publish.begun", "publish.target", "publish.done"])
def test_a_publisher_that_is_killed_anywhere_is_finished_by_the_next(ward: PostgresWard, step: str) -> None:
    for when in ("before", "after"):
        ward.kill("kept", step, when)
        ward.checkpoint()
        ward.published("kept")
        ward.checkpoint()
    begun = ward.steps("kept").newest(KEPT)
    assert begun is not None and ward.progress("kept")["step"] == begun.number


def test_of_publishers_at_once_each_step_is_made_once(ward: PostgresWard) -> None:
    errors = list[BaseException]()

    def publish() -> None:
        try:
            publishing.publish(ward.context, NAME, KEPT)
        except BaseException as error:
            errors.append(error)

    for _ in range(3):
        rivals = [threading.Thread(target=publish) for _ in range(3)]
        for rival in rivals:
            rival.start()
        for rival in rivals:
            rival.join()
        ward.compare("kept")
        ward.checkpoint()
    assert errors == []
    assert ward.progress("kept")["step"] == 3


def test_a_zombie_that_wakes_after_two_more_steps_changes_nothing(
    ward: PostgresWard, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward.published("kept")
    ward.checkpoint()
    difference = OperatorStates.difference

    def overtaken(states: OperatorStates, *of: Any) -> Any:
        found = difference(states, *of)
        monkeypatch.setattr(OperatorStates, "difference", difference)
        ward.published("kept")
        ward.checkpoint()
        ward.published("kept")
        return found

    monkeypatch.setattr(OperatorStates, "difference", overtaken)
    assert ward.published("kept") == ["difference"]
    assert (ward.progress("kept")["step"], ward.progress("kept")["checkpoint"]) == (3, 3)


def test_a_database_that_is_away_delays_nothing_and_differences_catch_up(ward: PostgresWard, server: Postgres) -> None:
    ward.published("kept")
    server.execute(f"ALTER DATABASE {ward.database} ALLOW_CONNECTIONS false")
    for _ in range(3):
        ward.checkpoint()
        with pytest.raises(StoreError, match="PostgreSQL") as caught:
            publishing.publish(ward.context, NAME, KEPT)
        assert PASSWORD not in str(caught.value)
    server.execute(f"ALTER DATABASE {ward.database} ALLOW_CONNECTIONS true")
    # The step that was begun while it was away, and one over the checkpoints since.
    assert ward.published("kept") == ["difference", "difference"]
    assert ward.progress("kept")["checkpoint"] == 4


def test_erasures_restores_and_declarations_are_followed(ward: PostgresWard) -> None:
    ward.checkpoint()
    for uid in UIDS:
        ward.published(uid)
    gone = ward.rows("sensors")[0]["sensor"]
    ward.erase(gone, "sensors")
    assert ward.published("sensors") == ["difference"]
    assert gone not in {row["sensor"] for row in ward.rows("sensors")}
    ward.checkpoint()
    ward.published("sensors")
    ward.restore(2)
    assert ward.published("sensors") == []
    ward.checkpoint()
    assert ward.published("sensors") == ["difference"]
    ward.declare(
        lambda text: text.replace("    total: int |", '    highest: int | None = state.max("room")\n    total: int |')
    )
    ward.checkpoint()
    assert ward.published("sensors") == ["rebuild"]
    assert "highest" in ward.rows("sensors")[0]


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
    tmp_path: Path, server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.execute("CREATE DATABASE page")
    declared = _block(PAGE, "python", "publish=").strip()
    source = _block(README, "python", "Pipeline(").replace("import DeltaMirror", "import JdbcUpsert")
    source = re.sub(r'Fold\("aircraft".*(?=,\n)', lambda _: declared, source)
    source = source.replace("postgresql://tidemark@db/lake", f"postgresql://postgres@127.0.0.1:{server.port}/page")
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
    with psycopg.connect(server.url("page")) as connection:
        (row,) = connection.execute(_block(PAGE, "sql", "SELECT")).fetchall()
    assert row[:2] == (1, "t1")
