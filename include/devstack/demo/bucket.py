"""`make demo WAREHOUSE=s3`: the demo over a bucket of moto's server, a child of the stack that forgets at its end.

A home of its own, because runs of an Airflow belong to the checkpoints of one warehouse.
"""

import importlib.util
import json
import socket
import sys
import time
from http.client import HTTPConnection
from pathlib import Path

from devstack import processes
from devstack.addresses import LOOPBACK, accepts
from devstack.services import service_environment
from tidemark.errors import TidemarkError
from tidemark.settings import Settings

VARIABLE, S3 = "WAREHOUSE", "s3"
_NAME = "s3"
_BUCKET = "demo"
_PATIENCE = 60.0
_KEYS = {"AWS_ACCESS_KEY_ID": "demo", "AWS_SECRET_ACCESS_KEY": "demo", "AWS_EC2_METADATA_DISABLED": "true"}
"""moto's server asks for some and compares them with nothing."""


def variables(settings: Settings) -> dict[str, str]:
    """Starts the store where it does not run; returns what leads every process of the demo to it.

    Raises:
        TidemarkError: moto is not installed, its server does not answer, or has forgotten the demo's checkpoints.
    """
    home = settings.home.with_name(f"{settings.home.name}-{S3}")
    port = _running(settings.model_copy(update={"home": home}))
    return _KEYS | {
        "TIDEMARK_HOME": str(home),
        "TIDEMARK_WAREHOUSE": f"s3://{_BUCKET}/warehouse",
        "TIDEMARK_S3_ENDPOINT": f"http://{LOOPBACK}:{port}",
    }


def _running(settings: Settings) -> int:
    told = settings.home / "demo" / "bucket.json"
    record = processes.load_record(settings.home, _NAME)
    if record is not None and record.is_running:
        return int(json.loads(told.read_text())["port"])
    if told.exists():
        raise TidemarkError(
            "the demo's bucket has gone with the server that kept it in memory",
            safe="nothing was started.",
            next=f"rm -r {settings.home}    (the rest of that demo), then make demo {VARIABLE}={S3} again.",
        )
    if importlib.util.find_spec("moto") is None:
        raise TidemarkError("moto is not installed, so there is no store to show", next="make setup")
    return _started(settings, told)


def _started(settings: Settings, told: Path) -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port = int(probe.getsockname()[1])
    settings.home.mkdir(parents=True, exist_ok=True)
    argv = (sys.executable, "-m", "devstack.demo.store", LOOPBACK, str(port))
    processes.start(_NAME, argv, service_environment(settings), settings.home)
    if not processes.wait_until(lambda: accepts(port), time.monotonic() + _PATIENCE):
        raise TidemarkError(
            "moto's server does not answer",
            safe="nothing else was started.",
            next=f"look at {processes.log_path(settings.home, _NAME)}, then make demo {VARIABLE}={S3} again.",
        )
    connection = HTTPConnection(LOOPBACK, port, timeout=10)
    connection.request("PUT", f"/{_BUCKET}")
    connection.getresponse().read()
    connection.close()
    processes.write_whole(told, json.dumps({"port": port}))
    return port
