"""Homes for the tests of the stack."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack.control import down
from tests.stack.homes import settings_for
from tidemark.settings import Settings

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Two of these tests at once could take each other's port."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("ports")


@pytest.fixture
def home_settings(tmp_path: Path) -> Iterator[Settings]:
    """Settings with an empty home; whatever the test starts there is stopped."""
    settings = settings_for(tmp_path / "home")
    yield settings
    down(settings)


@pytest.fixture(scope="module")
def shared_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """The same home for a whole module, for tests that follow a stack through its life."""
    settings = settings_for(tmp_path_factory.mktemp("stack") / "home")
    yield settings
    down(settings)
