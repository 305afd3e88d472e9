"""`make demo WAREHOUSE=s3`: runs the demo over a bucket in moto's server, which loses its contents when it stops.

This demo has a separate home, because the runs in an Airflow belong to the checkpoints of one warehouse.
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
"""moto's server requires credentials but does not check them."""


def variables(settings: Settings) -> dict[str, str]:
    """Starts the store if it does not run; returns the variables with which the demo's processes find it.

    Raises:
        TidemarkError: moto is not installed, its server does not answer, or it has lost the demo's checkpoints.
    """
    home = settings.home.with_name(f"{settings.home.name}-{S3}")
    port = _running_port(settings.model_copy(update={"home": home}))
    return _KEYS | {
        "TIDEMARK_HOME": str(home),
        "TIDEMARK_WAREHOUSE": f"s3://{_BUCKET}/warehouse",
        "TIDEMARK_S3_ENDPOINT": f"http://{LOOPBACK}:{port}",
    }


def _running_port(settings: Settings) -> int:
    port_file = settings.home / "demo" / "bucket.json"
    record = processes.load_record(settings.home, _NAME)
    if record is not None and record.is_running:
        return int(json.loads(port_file.read_text())["port"])
    if port_file.exists():
        raise TidemarkError(
            "the demo's bucket has gone with the server that kept it in memory",
            safe="nothing was started.",
            next=f"rm -r {settings.home}    (the rest of that demo), then make demo {VARIABLE}={S3} again.",
        )
    if importlib.util.find_spec("moto") is None:
        raise TidemarkError("moto is not installed, so there is no store for the demo", next="make setup")
    return _start(settings, port_file)


def _start(settings: Settings, port_file: Path) -> int:
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
            next=f"read {processes.log_path(settings.home, _NAME)}, then make demo {VARIABLE}={S3} again.",
        )
    connection = HTTPConnection(LOOPBACK, port, timeout=10)
    connection.request("PUT", f"/{_BUCKET}")
    connection.getresponse().read()
    connection.close()
    processes.write_whole(port_file, json.dumps({"port": port}))
    return port
