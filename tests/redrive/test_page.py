"""`docs/how-to/redrive-dead-letters.md`, typed as it stands, over a warehouse whose Kafka and Spark are twins."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_savepoint_page import README, ROOT, _block, _flight
from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext, commands_over
from tidemark.api.dead_letters import PipelineDeadLetters
from tidemark.operations.dead_letters.redriving import MOST_LETTERS

PAGE = ROOT / "docs/how-to/redrive-dead-letters.md"


def _charter(n: int) -> bytes:
    flight = json.loads(_flight(n))
    del flight["origin"]
    return json.dumps(flight).encode()


def test_every_command_of_the_page_works_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGE.read_text()
    source, fixed = _block(README, "python", "Pipeline("), f"    {_block(PAGE, 'python', 'origin').rstrip()}"
    assert "    origin: str\n" in source
    tidemark = Command(tmp_path, "127.0.0.1:1", "sc://127.0.0.1:1")
    tidemark.declare(source, file="flights.py")
    line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("flights"), "flights")
    monkeypatch.chdir(tmp_path)
    look, ask, run, withdraw = re.findall(r"^```bash\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)

    def types(block: str) -> list[str]:
        with commands_over(line):
            answers = [tidemark(*shlex.split(typed)[1:]).ok() for typed in block.splitlines()]
        return [f"{answer.out}{answer.err}" for answer in answers]

    line.send([(0, _flight(n), n) for n in range(20)] + [(0, _charter(30), 30), (0, b"{", 31)])
    line.checkpoint()
    listed, shown = types(look)
    assert "missing_field: origin" in listed and "malformed_json" in listed
    assert "missing_field: origin" in shown and "malformed_json" not in shown
    # A field with a default ends the fields without one.
    flight = re.search(r"@dataclass\(frozen=True\)\nclass Flight:.*?(?=\n\n\n)", source, re.DOTALL)
    assert flight is not None
    lines = [x for x in flight[0].splitlines() if x.strip() != "origin: str"]
    tidemark.declare(source.replace(flight[0], "\n".join([*lines, fixed])), file="flights.py")
    dry, made, waits = types(ask)
    assert "applied   1" in dry and "--execute" in dry
    assert "tidemark run flights" in made and "waiting" in waits and "charter flights" in waits
    _, done = types(run)
    overview = json.loads(done)
    assert [(r["state"], r["checkpoint"]) for r in overview["requests"]] == [("redriven", "chk-2")]
    assert {t["reason"]: t["letters"] for t in overview["letters"]} == {"missing_field: origin": 0, "malformed_json": 1}
    program = _block(PAGE, "python", "RedriveRequest")
    _program_runs(program, line, tidemark)
    _, dry, gone = types(withdraw)
    assert "waiting" in dry and "withdrawn" in gone
    assert f"at most {MOST_LETTERS:,} letters" in text


def _program_runs(program: str, line: DiskPipeline, tidemark: Command) -> None:
    """Runs the page's program up to its request, with letters that are not redriven yet."""
    line.send([(0, b'{"tail_number":"N1"}', 40)])
    line.checkpoint()
    context = DiskContext(line, tidemark.context.settings)
    program = program.replace('tidemark.open()["flights"].dead_letters', "opened")
    names: dict[str, Any] = {"opened": PipelineDeadLetters(context, "flights")}
    exec(program, names)  # noqa: S102  (the page's own program)
    assert (names["dry"].plan["letters"], names["dry"].plan["applied"]) == (1, 0)
