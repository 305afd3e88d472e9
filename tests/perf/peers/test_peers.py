"""Every peer comes to the oracle's state: a comparison between systems that compute different things is none."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.flights import Months
from benchmarks.peers.places import child_environment
from benchmarks.peers.smoke import KEPT, MONTHS, RETAINED, SEED, SMOKED, WORKLOAD
from benchmarks.peers.titles import WHOLE
from benchmarks.workload import expected_state
from tests.support.prerequisites import needs


@pytest.mark.spark
@pytest.mark.slow
@needs(shutil.which("javac") is not None, "what streams is Java: install a JDK 17, not only a JRE")
def test_every_peer_of_a_spark_driver_ends_with_the_oracles_rows(broker: str, tmp_path: Path) -> None:
    print(f"seed {SEED}")
    command = [sys.executable, "-m", "benchmarks.peers.smoke", broker, str(tmp_path)]
    # A Spark driver and a Connect client do not live in one process; the other tests have the client in this one.
    done = subprocess.run(command, capture_output=True, text=True, env=child_environment(), timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    batches = [WORKLOAD.load(), *(WORKLOAD.batch(n, WORKLOAD.keys + n * WORKLOAD.fresh) for n in range(2))]
    live = len(expected_state(batches).keys)
    assert live < np.unique(np.concatenate([b.keys for b in batches])).size, "nothing stayed deleted"
    wanted = dict.fromkeys(SMOKED, live)
    checked = [row for row in rows if row["scenario"] in ("a", "g") and "checked" in row]
    assert {row["kind"]: row["checked"]["keys"] for row in checked} == wanted
    assert len(checked) == len(wanted)
    assert [row["kind"] for row in rows if row["scenario"] == "e"] == ["append", "append"], "restored, then forked"
    _kept([row for row in rows if row["scenario"] == "g"])
    months = {row["kind"]: row["checked"]["keys"] for row in rows if row["scenario"] == "i"}
    assert months == {WHOLE: len(Months(MONTHS).expected_state().keys)}


def _kept(rows: list[dict[str, Any]]) -> None:
    """Nothing that is needed has gone, and each went back to its oldest point and came to the oracle's rows."""
    assert [(row["kind"], row.get("kept")) for row in rows] == [(kind, n) for n in (KEPT, None) for kind in RETAINED]
    for row in (r for r in rows if "kept" in r):
        assert 0 < row["needed"] <= row["left"]
        # Tidemark has not compacted yet: its newest point needs every file that the older ones have.
        assert row["kind"] == "tidemark" or row["left"] < row["before"]
