"""One PostgreSQL for the tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.support.postgres import Postgres, postgres


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A server of which each test gets a database."""
    with postgres() as made:
        yield made
