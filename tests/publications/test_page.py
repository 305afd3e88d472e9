"""`docs/how-to/publish-a-delta-table.md`, typed as it stands, over a warehouse whose Kafka and Spark are twins."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.cli.test_savepoint_page import AIRCRAFT, README, ROOT, _block, _flight
from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import commands_over

PAGE = ROOT / "docs/how-to/publish-a-delta-table.md"


def test_every_command_of_the_page_works_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = str(tmp_path / "lake")
    declared, source = _block(PAGE, "python", "publish=").strip(), _block(README, "python", "Pipeline(")
    assert f"{declared},\n" in source
    tidemark = Command(tmp_path, "127.0.0.1:1", "sc://127.0.0.1:1")
    tidemark.declare(source.replace("/lake", lake), file="flights.py")
    line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("flights"), "flights")
    monkeypatch.chdir(tmp_path)
    first, others, end = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)

    def types(block: str) -> list[str]:
        with commands_over(line):
            answers = [tidemark(*shlex.split(text)[1:]).ok() for text in block.splitlines()]
        return [f"{answer.out}{answer.err}" for answer in answers]

    line.send([(0, _flight(n), n) for n in range(9)])
    line.checkpoint()
    made, listed, shown = types(first)
    assert all("chk-1" in text for text in (made, listed, shown))
    assert "-- trino" in shown and "-- databricks" in shown
    program = _block(PAGE, "python", "polars").replace("/lake", lake)
    read = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120)
    assert all(number in read.stdout for number in AIRCRAFT)
    short = (
        _block(README, "python", "scan_delta").replace("/lake", lake).replace("polars.scan", "print(polars.scan") + ")"
    )
    read = subprocess.run([sys.executable, "-c", short], check=True, capture_output=True, text=True, timeout=120)
    assert read.stdout.index("N619AA") < read.stdout.index("N14228"), "by distance"
    line.send([(0, _flight(20 + n), n) for n in range(9)])
    line.checkpoint()
    types("tidemark publication run flights")
    DeltaTable(f"{lake}/aircraft").delete("flights > 100")
    equal, dry, rebuilt = types(others)
    assert "equal" in equal and "--execute" in dry and "rebuild" in rebuilt
    types(end)
    with commands_over(line):
        (status,) = json.loads(tidemark("publication", "list", "flights", "--json").ok().out)
    assert (status["state"], status["publication"]) == ("dropped", "aircraft-mirror")
