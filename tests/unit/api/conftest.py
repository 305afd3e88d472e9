"""The warehouse of flights, made once; a test that writes gets a copy."""

from pathlib import Path

import pytest

from tests.unit.api.warehouses import Flights


@pytest.fixture(scope="package")
def template(tmp_path_factory: pytest.TempPathFactory) -> Flights:
    """For reading."""
    return Flights.made(tmp_path_factory.mktemp("flights"))


@pytest.fixture
def flights(template: Flights, tmp_path: Path) -> Flights:
    """A copy of a test's own."""
    return template.copy(tmp_path)
