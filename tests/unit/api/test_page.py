"""`docs/how-to/use-from-python.md`, run as it is written: what it prints is what its comments say."""

import re
from pathlib import Path

import pytest

from tests.unit.api.warehouses import Flights

PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/use-from-python.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTED = re.compile(r"^ *print\(.*\)  # (.*)$|^# (.*)$", re.MULTILINE)


def test_every_example_of_the_page_prints_what_its_comments_say(
    flights: Flights, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tidemark.api.warehouse.open_context", lambda settings: flights.context)
    monkeypatch.chdir(flights.command.home)
    names: dict[str, object] = {}
    for block in BLOCK.findall(PAGE.read_text()):
        exec(compile(block, PAGE.name, "exec"), names)  # noqa: S102
        wanted = [behind or below for behind, below in PRINTED.findall(block)]
        assert capsys.readouterr().out.splitlines() == wanted
    assert {"w", "aircraft", "back", "sweep"} <= names.keys()
