"""Checkpoints on a Spark cluster of processes: an executor dies in the middle, then a worker; state is as it has to be.

The first checkpoint is folded as a DAG folds it, by spark-submit in client mode; its driver sends executors the
package, which is not on their path. The second one goes over a Connect server on the same cluster. Master, workers and
this server are started by the commands of docker-compose.yaml.
"""

import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.command import Command
from tests.engine.standalone import QUICK_JAVA, ROOT, connect_server, environment, standalone
from tests.kafka.topics import Sent, Topics
from tidemark.airflow.jobs import SparkJob, fold
from tidemark.ports import PlanRequest
from tidemark.settings import load_settings
from tidemark.wiring import open_runtime

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]
DECLARATION = Path(__file__).parent / "pipelines" / "rides.py"
SENT = [[(f"bus {n % 7}", n) for n in range(40)], [(f"bus {n % 5}", 3 * n) for n in range(30)]]
"""Per checkpoint: bus and miles of each ride."""
UIDS = ("buses", "miles")
CONF = f"""
spark.cores.max 2
spark.driver.host 127.0.0.1
spark.executor.cores 1
spark.executor.memory 512m
spark.executor.extraJavaOptions {QUICK_JAVA}
spark.scheduler.minRegisteredResourcesRatio 1.0
"""


def oracle(batches: list[list[tuple[str, int]]]) -> dict[str, dict[str, tuple[int, int, int]]]:
    """Per operator and bus: rides, the farthest one or all miles, and the last checkpoint that had one of them."""
    miles: dict[str, list[int]] = defaultdict(list)
    changed: dict[str, int] = {}
    for checkpoint, batch in enumerate(batches, start=1):
        for bus, far in batch:
            miles[bus].append(far)
            changed[bus] = checkpoint
    return {
        "buses": {bus: (len(each), max(each), changed[bus]) for bus, each in miles.items()},
        "miles": {bus: (len(each), sum(each), changed[bus]) for bus, each in miles.items()},
    }


class Line:
    """One pipeline twice: on the cluster, and on the Spark that tests share."""

    def __init__(self, topics: Topics, folder: Path, cluster: str, local: str) -> None:
        self.topics, self.topic, self.folder = topics, topics.make(partitions=2), folder / "held"
        self.folder.mkdir()
        self.cluster = Command(folder / "cluster-home", topics.bootstrap, cluster)
        self.local = Command(folder / "local-home", topics.bootstrap, local)
        for command in (self.cluster, self.local):
            command.declare(DECLARATION, topic=self.topic, folder=str(self.folder))

    def send(self, rides: list[tuple[str, int]]) -> None:
        bodies = [json.dumps({"bus": bus, "miles": miles}).encode() for bus, miles in rides]
        self.topics.produce(self.topic, [Sent(body, partition=n % 2) for n, body in enumerate(bodies)])

    def while_held(self, work: Callable[[], None], kill: Callable[[], None]) -> None:
        """Does the work; when two tasks are in the middle of theirs, kills, and lets all tasks go on."""
        for mark in self.folder.iterdir():
            mark.unlink()
        failed: list[BaseException] = []

        def watched() -> None:
            try:
                work()
            except BaseException as error:  # told below, in the test's own thread
                failed.append(error)

        thread = threading.Thread(target=watched)
        thread.start()
        try:
            _until(lambda: bool(failed) or len(self.began()) == 2, "two tasks")
            if not failed:
                kill()
        finally:
            (self.folder / "go").touch()
            thread.join(180)
        assert not thread.is_alive()
        if failed:
            raise failed[0]

    def began(self) -> list[Path]:
        """The marks of tasks that were held; one who was killed while it wrote its mark has left an empty one."""
        return [mark for mark in self.folder.glob("began-*") if mark.stat().st_size]

    def code(self) -> set[str]:
        """Where the tasks that were held have Tidemark from."""
        return {mark.read_text() for mark in self.began()}

    def tasks(self) -> list[psutil.Process]:
        """The Python workers that are held."""
        return [psutil.Process(int(mark.name.removeprefix("began-"))) for mark in self.began()]

    def shown(self, command: Command) -> dict[str, Any]:
        """Rows per operator of the newest checkpoint, and the hash of each."""
        found: dict[str, Any] = {}
        for uid in UIDS:
            rows = [tuple(row.values()) for row in command.runtime.state_table("rides", uid).to_pylist()]
            found[uid] = {row[0]: row[1:] for row in rows}
            found[f"hash of {uid}"] = command.runtime.state_hash("rides", uid)[1].sha256
        return found


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 150
    while not holds():
        assert time.monotonic() < deadline, f"no {what}"
        time.sleep(0.05)


def _above(process: psutil.Process, name: str) -> psutil.Process:
    """The JVM of this class that a process descends from."""
    return next(parent for parent in process.parents() if name in " ".join(parent.cmdline()))


@pytest.fixture
def line(topics: Topics, spark_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    env = environment(tmp_path / "driver")
    (tmp_path / "driver" / "conf" / "spark-defaults.conf").write_text(CONF)
    for name in [n for n in os.environ if n.startswith(("SPARK_", "PYSPARK_"))]:
        monkeypatch.delenv(name)
    for name in ("JAVA_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_IP", "PYSPARK_PYTHON", "PYTHONPATH"):
        monkeypatch.setenv(name, env[name])
    with standalone(tmp_path / "cluster", workers=2, path="") as cluster:
        yield Line(topics, tmp_path, cluster, spark_server)


def test_an_executor_and_a_worker_die_in_the_middle_and_state_is_that_of_one_machine(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, quick = PlanRequest(origin="test"), {"TIDEMARK_SPARK_JAVA_OPTIONS": QUICK_JAVA}
    for name, value in (line.cluster.environment(TIDEMARK_ROOT=str(ROOT)) | quick).items():
        monkeypatch.setenv(name, value)
    runtime, said = open_runtime(load_settings()), list[str]()

    def submitted() -> None:
        planned = runtime.plan("rides", asked)
        fold(SparkJob(runtime.settings, "checkpoint", "fold", said.append), "rides", planned.slot, asked)
        runtime.complete("rides", planned.slot)

    line.send(SENT[0])
    line.while_held(submitted, lambda: _above(line.tasks()[0], "CoarseGrainedExecutorBackend").kill())
    assert all(".zip/" in path for path in line.code())
    line.local("run", "rides").ok()
    assert line.shown(line.cluster) == line.shown(line.local)
    assert {uid: line.shown(line.cluster)[uid] for uid in UIDS} == oracle(SENT[:1])

    line.send(SENT[1])
    with connect_server(tmp_path / "connect", line.cluster.spark) as address:

        def typed() -> None:
            line.cluster.process("run", "rides", TIDEMARK_SPARK=address).ok()

        line.while_held(typed, lambda: _above(line.tasks()[0], "deploy.worker.Worker").kill())
    line.local("run", "rides").ok()
    assert line.shown(line.cluster) == line.shown(line.local)
    assert {uid: line.shown(line.cluster)[uid] for uid in UIDS} == oracle(SENT)
    assert [c.id for c in line.cluster.runtime.checkpoints("rides")] == [2, 1]
