"""A Spark standalone cluster of child processes on 127.0.0.1, started with the commands of docker-compose.yaml."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from devstack.addresses import LOOPBACK, accepts
from devstack.services import require_java
from devstack.spark_server import LOGGING
from tests.support.compose import example
from tests.support.java_options import ONE_COMPILER
from tidemark.engine.session.installation import spark_home

PATIENCE = 60.0
"""Seconds that a master may take to listen, and a worker to register."""
ROOT = Path(__file__).resolve().parents[2]
PATH = os.pathsep.join([str(ROOT / "include"), str(ROOT)])
QUICK_JAVA = f"{ONE_COMPILER} -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""For Spark processes that end soon: a collector with its own threads would cost more than it saves, and bytecode
verification would take a tenth of the processor time."""


@contextmanager
def standalone(folder: Path, workers: int, path: str = PATH) -> Iterator[str]:
    """Runs a cluster for the duration of the block and yields its address (`spark://...`).

    Args:
        folder: folder for logs and the workers' files.
        workers: number of workers, each with one core and 512 MB.
        path: `PYTHONPATH` of the daemons, where executors find Python code.
    """
    with ExitStack() as stack:
        listen = {"--host": LOOPBACK, "--port": "0", "--webui-port": "0"}
        master = stack.enter_context(_child(folder / "master", _command("spark-master", listen), path))
        address = _said(master, r"Starting Spark master at (spark://\S+)")
        logs = []
        for n in range(workers):
            own = folder / f"worker-{n}"
            size = {"--cores": "1", "--memory": "512m", "--work-dir": str(own / "work")}
            command = _command(f"spark-worker-{n + 1}", {"--host": LOOPBACK, "--webui-port": "0", **size})
            logs.append(stack.enter_context(_child(own, [*command[:-1], address], path)))
        for log in logs:
            _said(log, r"Successfully registered with master (\S+)")
        yield address


def environment(folder: Path) -> dict[str, str]:
    """The environment of daemons, executors and drivers: this Python and checkout, no inherited Spark variables."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    conf = folder / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    (conf / "log4j2.properties").write_text(LOGGING.replace("= warn", "= info"))
    return env | {
        "JAVA_HOME": str(require_java().home),
        "SPARK_HOME": str(spark_home()),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": PATH,
    }


@contextmanager
def connect_server(folder: Path, master: str) -> Iterator[str]:
    """Runs a Connect server on a cluster, configured as in docker-compose.yaml, and yields its address (`sc://...`)."""
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        port = free.getsockname()[1]
    jars = str(ROOT / ".jars" / "spark" / "*")
    places = {
        "spark.master": master,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.memory": "768m",
        "spark.driver.extraClassPath": jars,
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.executor.extraClassPath": jars,
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": PATH,
        "spark.pyspark.python": sys.executable,
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
    }
    folder.mkdir(parents=True, exist_ok=True)
    properties = example().properties("spark-connect") | places
    (folder / "properties").write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    command = _command("spark-connect", {"--properties-file": str(folder / "properties")})
    command[-1] = command[-1].replace("/opt/tidemark", str(ROOT))
    with _child(folder, command, PATH) as log:
        until = time.monotonic() + PATIENCE
        while not accepts(port):
            assert time.monotonic() < until, log.read_text()[-2000:]
            time.sleep(0.2)
        yield f"sc://{LOOPBACK}:{port}"


def _command(service: str, options: Mapping[str, str]) -> list[str]:
    """The command that runs a service of docker-compose.yaml as a process of this machine."""
    return example().process(service, spark_home(), options)


@contextmanager
def _child(folder: Path, command: Sequence[str], path: str) -> Iterator[Path]:
    """Starts a daemon, yields its log file, and stops the daemon at the end of the block."""
    env, log = environment(folder) | {"PYTHONPATH": path}, folder / "log"
    with log.open("wb") as output:
        daemon = subprocess.Popen(command, env=env, stdout=output, stderr=subprocess.STDOUT, cwd=folder)
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
