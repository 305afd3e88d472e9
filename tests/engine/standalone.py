"""A Spark standalone cluster of child processes: a master and workers from pyspark's own classes, on 127.0.0.1."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tidemark.stack.services import require_java
from tidemark.stack.spark_server import LOGGING, find_spark_home

PATIENCE = 60.0
"""Seconds until a master listens, and until its workers have registered."""
ROOT = Path(__file__).resolve().parents[2]
PATH = os.pathsep.join([str(ROOT / "include"), str(ROOT)])
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a Spark that ends soon: the second compiler would cost more than its code saves."""


@contextmanager
def standalone(folder: Path, workers: int, path: str = PATH) -> Iterator[str]:
    """The address (`spark://...`) of a cluster with so many workers, of one core and 512 MB each.

    Args:
        folder: of logs and of the workers' files.
        workers: how many.
        path: their `PYTHONPATH`, where executors find Python code by themselves.
    """
    with ExitStack() as stack:
        options = ["--port", "0", "--webui-port", "0"]
        master = stack.enter_context(_child(folder / "master", "master.Master", options, path))
        address = _said(master, r"Starting Spark master at (spark://\S+)")
        logs = []
        for n in range(workers):
            own = folder / f"worker-{n}"
            options = [
                "--cores",
                "1",
                "--memory",
                "512m",
                "--webui-port",
                "0",
                "--work-dir",
                str(own / "work"),
                address,
            ]
            logs.append(stack.enter_context(_child(own, "worker.Worker", options, path)))
        for log in logs:
            _said(log, r"Successfully registered with master (\S+)")
        yield address


def environment(folder: Path) -> dict[str, str]:
    """What daemons, executors and drivers run with: this Python, this checkout, no surrounding Spark's variables."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    conf = folder / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    (conf / "log4j2.properties").write_text(LOGGING.replace("= warn", "= info"))
    return env | {
        "JAVA_HOME": str(require_java().home),
        "SPARK_HOME": str(find_spark_home()),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": PATH,
    }


@contextmanager
def _child(folder: Path, name: str, options: Sequence[str], path: str) -> Iterator[Path]:
    """The log of a daemon, which is stopped by its own process at the end."""
    env, log = environment(folder) | {"PYTHONPATH": path}, folder / "log"
    command = [f"{find_spark_home()}/bin/spark-class", f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1"]
    with log.open("wb") as output:
        daemon = subprocess.Popen([*command, *options], env=env, stdout=output, stderr=subprocess.STDOUT, cwd=folder)
        try:
            yield log
        finally:
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def _said(log: Path, pattern: str) -> str:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found = re.search(pattern, log.read_text())
        if found:
            return found[1]
        time.sleep(0.1)
    raise AssertionError(f"{log} does not say {pattern}:\n{log.read_text()[-2000:]}")
