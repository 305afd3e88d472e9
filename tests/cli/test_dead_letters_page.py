"""`docs/how-to/dead-letters.md`: its Python reads the table in a process that ends well; how long dead letters stay."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_savepoint_page import README, ROOT, _block
from tests.support.cli import Command
from tests.support.disk import DiskPipeline

PAGE = ROOT / "docs/how-to/dead-letters.md"


def _flight(tail_number: str | None, n: int) -> bytes:
    at = f"2013-01-01T00:{n:02}:00Z"
    flight = {"tail_number": tail_number, "origin": "EWR", "destination": "ORD", "distance": n, "scheduled_at": at}
    return json.dumps(flight).encode()


@pytest.fixture
def line(tmp_path: Path) -> DiskPipeline:
    """The README's pipeline after three checkpoints, each with a flight without an aircraft."""
    tidemark = Command(tmp_path, "127.0.0.1:1", "sc://127.0.0.1:1", tmp_path / ".tidemark/warehouse")
    tidemark.declare(_block(README, "python", "Pipeline("), file="flights.py")
    made = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("flights"), "flights")
    for number in range(3):
        made.send([(0, _flight(None if n == 4 else "N14228", 10 * number + n), n) for n in range(9)])
        made.checkpoint()
    return made


def test_the_python_of_the_page_runs_and_its_process_ends_well(line: DiskPipeline, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    [block] = [block for block in blocks if "DeltaTable" in block]
    assert "to_pyarrow" not in block and "to_pandas" not in block
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert re.search(r"null_key\W+3\W", done.stdout)


def test_a_later_checkpoint_names_the_dead_letters_of_earlier_ones_too(line: DiskPipeline) -> None:
    assert "every later checkpoint of it names the dead letters of the earlier ones too" in " ".join(
        PAGE.read_text().split()
    )
    found = [c.sealed.acks[0].dead_letters for c in line.coordinator.timelines.all()]
    assert [handle.rows for handle in found] == [1, 2, 3]
