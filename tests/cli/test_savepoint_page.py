"""`docs/how-to/savepoint.md`, typed as it stands, over a warehouse whose Kafka and Spark are the memory twins."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import commands_over
from tidemark.operations import savepoints

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/how-to/savepoint.md"
README = ROOT / "README.md"
UPGRADE = ROOT / "docs/how-to/upgrade-with-state.md"
AIRCRAFT = ("N14228", "N24211", "N619AA")


def _block(page: Path, language: str, word: str) -> str:
    blocks: list[str] = re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return next(block for block in blocks if word in block)


def _flight(n: int) -> bytes:
    at = f"2013-01-01T00:{n:02}:00Z"
    flight = {"tail_number": AIRCRAFT[n % 3], "origin": "EWR", "destination": "ORD", "distance": n, "scheduled_at": at}
    return json.dumps(flight).encode()


def test_every_command_of_the_page_works_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tidemark = Command(tmp_path, "127.0.0.1:1", "sc://127.0.0.1:1")
    tidemark.declare(_block(README, "python", "Pipeline("), file="flights.py")
    line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("flights"), "flights")
    for number in range(2):
        line.send([(0, _flight(number * 10 + n), n) for n in range(9)])
        line.checkpoint()
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    with commands_over(line):
        told = {text: tidemark(*shlex.split(text)[1:]).ok() for block in blocks for text in block.splitlines()}
    assert "end-of-june" in told["tidemark savepoint list flights"].out
    assert "would dispose of end-of-june" in told["tidemark savepoint dispose flights end-of-june"].err
    assert "disposed" in told["tidemark savepoint list flights --disposed"].out
    assert "N14228" in told["tidemark state show flights aircraft --key N14228 --savepoint before-upgrade"].out
    assert (tmp_path / "before-upgrade.parquet").stat().st_size > 0
    kept = [record.name for record in savepoints.open_savepoints(tidemark.context, "flights").list()]
    assert sorted(kept) == ["before-maintenance", "before-upgrade", "the-end", "while-stopped"]
    assert len(told) > 15


def _class(text: str, name: str) -> str:
    """The source of a class in a text."""
    found = re.search(rf"^class {name}\b.*?(?=^\S|\Z)", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[0].rstrip()


def test_an_upgrade_keeps_the_state_and_can_be_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = _block(README, "python", "Pipeline(")
    new = old.replace(_class(old, "Aircraft"), _class(_block(UPGRADE, "python", "Aircraft"), "Aircraft"))
    assert new != old
    tidemark = Command(tmp_path, "127.0.0.1:1", "sc://127.0.0.1:1")
    tidemark.declare(old, file="flights.py")
    line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("flights"), "flights")
    line.send([(0, _flight(n), n) for n in range(9)])
    line.checkpoint()
    line.send([(0, _flight(10 + n), 10 + n) for n in range(9)])
    monkeypatch.chdir(tmp_path)
    stop, ask, go_on, back = re.findall(r"^```bash\n(.*?)^```$", UPGRADE.read_text(), re.DOTALL | re.MULTILINE)

    def types(block: str) -> list[Any]:
        with commands_over(line):
            asked = [shlex.split(text)[1:] for text in block.splitlines()]
            return [tidemark(*words, *(["--json"] if "show" in words else [])).ok() for words in asked]

    types(stop)
    tidemark.declare(new, file="flights.py")
    before = tidemark.objects("flights")
    types(ask)
    assert tidemark.objects("flights") == before, "a dry run"
    tidemark.declare(new.replace("sum(", "max("), file="flights.py")
    with commands_over(line):
        tidemark(*shlex.split(ask)[1:]).failed(2, "aircraft.miles", "sum('distance')", "max('distance')")
    tidemark.declare(new, file="flights.py")
    line.send([(0, _flight(20 + n), 20 + n) for n in range(9)])
    ran = types(go_on)
    wanted = {"flights": 9, "miles": sum(n for n in _sent() if n % 3 == 0), "last_airport": "ORD", "best_delay": None}
    assert _fields(ran[2]) == wanted
    upto = sum(n for n in _sent() if n % 3 == 0 and n < 20)
    assert _fields(ran[3]) == {"flights": 6, "distance": upto, "last_airport": "ORD", "worst_delay": None}
    tidemark.declare(old, file="flights.py")
    told = types(back)
    assert "t2  live, restore of chk-2" in told[2].out
    with commands_over(line):
        (row,) = tidemark("state", "show", "flights", "aircraft", "--key", "N14228", "--json").ok().json
    assert (row["flights"], row["distance"]) == (9, wanted["miles"]), "read again by the old code"


def _sent() -> list[int]:
    return [*range(9), *range(10, 19), *range(20, 29)]


def _fields(answer: Any) -> dict[str, Any]:
    (row,) = answer.json
    return {name: value for name, value in row.items() if name != "tail_number" and not name.startswith("_")}
