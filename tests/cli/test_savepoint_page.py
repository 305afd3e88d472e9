"""`docs/how-to/savepoint.md`, typed as it stands, over a warehouse whose Kafka and Spark are the memory twins."""

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.cli.disk_line import DiskLine
from tests.cli.disk_runtime import commands_over

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/how-to/savepoint.md"
README = ROOT / "README.md"
AIRCRAFT = ("N14228", "N24211", "N619AA")


def _block(page: Path, language: str, word: str) -> str:
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return next(block for block in blocks if word in block)


def _flight(n: int) -> bytes:
    at = f"2013-01-01T00:{n:02}:00Z"
    flight = {"tail_number": AIRCRAFT[n % 3], "origin": "EWR", "destination": "ORD", "distance": n, "scheduled_at": at}
    return json.dumps(flight).encode()


def test_every_command_of_the_page_works_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tidemark = Command(tmp_path, "127.0.0.1:1", "sc://127.0.0.1:1")
    tidemark.declare(_block(README, "python", "Pipeline("), file="flights.py")
    line = DiskLine(tidemark.warehouse, tidemark.runtime.pipeline("flights"), "flights")
    for number in range(2):
        line.send([(0, _flight(number * 10 + n), n) for n in range(9)])
        line.checkpoint()
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    with commands_over(line):
        told = {text: tidemark(*shlex.split(text)[1:]).ok() for block in blocks for text in block.splitlines()}
    assert "end-of-june" in told["tidemark savepoint list flights"].out
    assert "would dispose end-of-june" in told["tidemark savepoint dispose flights end-of-june"].err
    assert "disposed" in told["tidemark savepoint list flights --disposed"].out
    assert "N14228" in told["tidemark state show flights aircraft --key N14228 --savepoint before-upgrade"].out
    assert (tmp_path / "before-upgrade.parquet").stat().st_size > 0
    kept = [record.name for record in tidemark.runtime.savepoints("flights").list()]
    assert sorted(kept) == ["before-maintenance", "before-upgrade", "the-end", "while-stopped"]
    assert len(told) > 15
