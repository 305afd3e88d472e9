"""The weather demo as `make demo-weather` runs it: the stack with Airflow and a registry, a kill, a restore.

The oracle is the demo's own: it recomputes every row from the data set, and the exit code says whether all agree.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from devstack import control
from tests.support.schema_registry import needs_registry
from tidemark.settings import load_settings

pytestmark = [pytest.mark.ports, pytest.mark.slow, pytest.mark.timeout(1800), needs_registry()]
ROOT = Path(__file__).resolve().parents[2]


def test_every_row_agrees_and_a_second_run_adds_nothing(tmp_path: Path) -> None:
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("TIDEMARK_", "AIRFLOW_"))}
    variables = plain | {"TIDEMARK_HOME": str(tmp_path / "home")}

    def demonstrate() -> str:
        done = subprocess.run(
            [sys.executable, "-m", "devstack.weather"], cwd=ROOT, env=variables, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=1200, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-4000:]
        assert len(re.findall(r"all [1-9][\d,]* rows agree", done.stdout)) == 4 * 6 + 4 * 3, done.stdout
        return done.stdout

    try:
        assert "was killed" in demonstrate()
        again = demonstrate()
        assert "was killed" not in again and "all 4 DAG runs have already succeeded" in again
    finally:
        control.down(load_settings(home=str(tmp_path / "home")))
