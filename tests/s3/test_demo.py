"""The demo's quick form with its warehouse in MinIO: the stack, the DAGs and Spark are those that `make demo` starts.

The oracle is the demo's own: it recomputes every row from the data set, and the exit code says whether all agree.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack import control
from tests.support.minio import needs_minio
from tests.support.s3 import CREDENTIALS, MINIO, Bucket, running_server
from tidemark.settings import load_settings

pytestmark = [pytest.mark.ports, pytest.mark.slow, pytest.mark.timeout(1200), needs_minio()]
ROOT = Path(__file__).resolve().parents[2]
BUCKET = "quick-demo"
MONTHS = 6


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    """An empty bucket of MinIO's."""
    with running_server(MINIO, tmp_path / "minio") as server:
        yield server.make_bucket(BUCKET)


@pytest.fixture
def variables(bucket: Bucket, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of the demo, whose stack is stopped at the end."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("TIDEMARK_", "AIRFLOW_", "AWS_"))}
    home = tmp_path / "home"
    yield plain | CREDENTIALS | {
        "DEMO": "quick",
        "TIDEMARK_HOME": str(home),
        "TIDEMARK_WAREHOUSE": f"s3://{BUCKET}/warehouse",
        "TIDEMARK_S3_ENDPOINT": bucket.server.address,
    }  # fmt: skip
    control.down(load_settings(home=str(home)))


def test_every_row_agrees_and_a_second_run_adds_nothing(bucket: Bucket, variables: dict[str, str]) -> None:
    first = demonstrate(variables)
    agreements = re.findall(r"all ([\d,]+) rows agree", first)
    assert len(agreements) > 1 and "0" not in agreements
    held = bucket.objects("warehouse/")
    manifests = {key for key in held if re.fullmatch(r"flights/timelines/[^/]+/\d+\.json", key)}
    assert len(manifests) >= MONTHS, sorted(held)[:50]
    assert not list(Path(variables["TIDEMARK_HOME"]).rglob("*.parquet")), "all data are in the bucket"
    assert "no checkpoint was added" in demonstrate(variables)


def demonstrate(variables: dict[str, str]) -> str:
    """Runs the demo; returns what it said."""
    command = [sys.executable, "-m", "devstack.demo"]
    done = subprocess.run(
        command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout
