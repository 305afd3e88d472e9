"""Every example in a docstring of the Python API runs as it is written, each over a warehouse of its own."""

import doctest
import importlib
import os
import pkgutil
from pathlib import Path
from unittest import mock

import pytest

import tidemark.api
from tests.unit.api.warehouses import Flights

MODULES = [importlib.import_module(f"tidemark.api.{m.name}") for m in pkgutil.iter_modules(tidemark.api.__path__)]
EXAMPLES = [t for m in MODULES for t in doctest.DocTestFinder(exclude_empty=True).find(m) if t.examples]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name.removeprefix("tidemark.api."))
def test_an_example_gives_what_it_says(
    example: doctest.DocTest, flights: Flights, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(flights.command.home)
    runner = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF)
    with mock.patch.dict(os.environ, flights.command.environment(), clear=True):
        example.globs = {"w": flights.warehouse}
        done = runner.run(example, clear_globs=True)
    assert done.failed == 0, capsys.readouterr().out
    assert done.attempted > 0


def test_every_class_of_the_api_shows_an_example() -> None:
    shown = {example.name.split(".")[3] for example in EXAMPLES if example.name.count(".") > 2}
    written = {
        name for name in tidemark.api.__all__ if getattr(tidemark.api, name).__module__.startswith("tidemark.api")
    }
    assert {name for name in written if name != "At"} <= shown, Path(__file__).name
