"""Tables that people read: nothing is lost where their terminal is narrow."""

import io

import pytest
from rich.console import Console

from tidemark.cli.output import as_table

LONG = "worst_delay: 41 keys by 3.5 on average; flights: 7 keys by 1; last_airport: 12 keys"


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_the_last_column_is_folded_and_complete(width: int) -> None:
    rows = [{"uid": "aircraft", "changed": 41, "fields": LONG}, {"uid": "routes", "changed": 0, "fields": ""}]
    told = io.StringIO()
    Console(file=told, force_terminal=True, width=width, color_system=None).print(as_table(rows))
    lines = told.getvalue().splitlines()
    at = lines[0].index("fields")
    assert all(len(line) <= width for line in lines)
    assert "".join(line[at:].rstrip() for line in lines[1:]).replace(" ", "") == LONG.replace(" ", "")
    assert lines[1].startswith("aircraft") and lines[-1].startswith("routes")
