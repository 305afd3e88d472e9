"""The case of `ConsoleSink`: lines on standard error."""

import json

import pytest

from tests.unit.sinks.sink_cases import Arrived, SinkCase, SinkPipeline
from tidemark import ConsoleSink
from tidemark.sinks import EmittedRow
from tidemark.sinks.sink import Services


def arrived(line: SinkPipeline) -> Arrived:
    found = []
    for printed in line.screen.getvalue().splitlines():
        name, row, fields = printed.split(" ", 2)
        assert name == "alerts"
        found.append((row, json.loads(fields)))
    return found


CASES = [SinkCase(sink=ConsoleSink("alerts"), arrived=arrived)]


def test_a_row_is_one_line_that_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    fields = {"text": "zwölf\n\x1b[31m\u202e\x9b\U000e0001 \U0001f600"}
    row = EmittedRow(id="p/t1/chk-1/u/in-0-0-0", fields=fields)
    assert ConsoleSink("late").write([row], "p/t1/chk-1", Services()) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("\n") and err[:-1].isprintable()
    assert "zwölf" in err and json.loads(err.split(" ", 2)[2]) == fields
