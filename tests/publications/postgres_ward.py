"""A ward whose states are published to a real PostgreSQL."""

import random
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from tests.publications.published_ward import NAME, PublishedWard, place_of
from tests.support.postgres import Postgres
from tidemark.answers.publication_facts import PublishedFacts


class PostgresWard(PublishedWard):
    """A ward that publishes to tables of one database."""

    kind = "upsert"

    def __init__(self, folder: Path, chance: random.Random, server: Postgres) -> None:
        self.database = f"d{abs(hash(str(folder)))}"
        server.execute(f"CREATE DATABASE {self.database}")
        self.url = server.url(self.database)
        super().__init__(folder, chance)

    def target(self, uid: str) -> str:
        """The declaration of an operator's target."""
        return f'JdbcUpsert("{self.url}", table="{uid}")'

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Rows of a table in order of sensors and windows."""
        with psycopg.connect(self.url, row_factory=dict_row) as connection:
            return sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=place_of)

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

    def note(self, uid: str, step: PublishedFacts) -> None:
        """A table has no versions; `compare` looks at the newest state."""

    def told(self, uid: str) -> tuple[int, int]:
        """The newest step that the target has by its own account, and the checkpoint of that step."""
        found = self.progress(uid)
        return found["step"], found["checkpoint"]

    def keys(self, uid: str) -> set[str]:
        """The sensors of the state that the target has."""
        return {row["sensor"] for row in self.rows(uid)}

    def compare(self, uid: str) -> None:
        """The table has the state of the checkpoint in its progress row."""
        expected = self.expected(self.told(uid)[1], uid)
        assert [self._plain(row) for row in self.rows(uid)] == [self._plain(row) for row in expected]

    def _plain(self, row: dict[str, Any]) -> dict[str, Any]:
        # A map is an object of JSON, whose keys and times are texts; the state has those of `by_room` as numbers.
        return {n: _as_json(held) if isinstance(held, dict) else held for n, held in row.items()}


def _as_json(held: dict[Any, Any]) -> dict[str, Any]:
    return {str(k): v.isoformat() if isinstance(v, datetime) else v for k, v in held.items()}
