"""The flights' checkpoints on a Spark cluster of processes: an executor dies in the middle, then a worker.

All operators and broadcast tables of `include/pipelines/flights.py`, over January and February, without its gate. State
and alerts are held against the demo's oracles, which use no code of ours, and their hashes against those of local mode.

The first checkpoint is folded as a DAG folds it, by spark-submit in client mode; its driver sends executors the
package, which is not on their path. The second one goes over a Connect server on the same cluster. Master, workers and
this server are started by the commands of docker-compose.yaml.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from devstack.demo.checking import Checker
from devstack.demo.flights_data import FlightRecord, read_flights
from devstack.demo.reference_data import read_airlines, read_planes
from devstack.demo.topic_loader import partition_of
from tests.support.cli import Command
from tests.support.kafka import Sent, Topics
from tests.support.spark_cluster import QUICK_JAVA, ROOT, connect_server, environment, standalone
from tidemark.airflow.spark_jobs import CHECKPOINT_JOB, SparkJob, fold
from tidemark.context import open_context
from tidemark.operations import checkpoints, reads
from tidemark.ports import PlanRequest
from tidemark.settings import load_settings

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
REAL = ROOT / "include" / "pipelines" / "flights.py"
HELD = Path(__file__).parent / "pipelines" / "held.py"
CUTS = [datetime(2013, month, 1, 5, tzinfo=UTC) for month in (1, 2, 3)]
"""New York's midnights; a checkpoint reads what was scheduled between two of them."""
PARTITIONS = {"flights": 4, "planes": 1, "airlines": 1}
PATIENCE = 240.0
"""Seconds. A cold executor uses a quarter of a minute of processor time before its first task of a process runs."""
EXECUTOR = "CoarseGrainedExecutorBackend"
CONF = f"""
spark.cores.max 2
spark.driver.host 127.0.0.1
spark.executor.cores 1
spark.executor.memory 512m
spark.executor.extraJavaOptions {QUICK_JAVA}
spark.scheduler.minRegisteredResourcesRatio 1.0
"""


def asked(month: int) -> PlanRequest:
    """What the DAG run of a month asks for."""
    start, end = CUTS[month - 1 : month + 1]
    return PlanRequest(origin="test", interval_start=start, interval_end=end, until_interval_end=True)


def declaration(words: dict[str, str]) -> str:
    """The flights' own file, with topics of this test, a function that can be held, and no gate."""
    text = REAL.read_text()
    changes = {f'KafkaSource("{name}"': f'KafkaSource("{topic}"' for name, topic in words.items()}
    changes |= {"function=knock_on_delays": "function=held(knock_on_delays)", "    gate=expectations,\n": ""}
    changes |= {"\nflights = Pipeline(": f"\n{HELD.read_text()}\n\nflights = Pipeline("}
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


class ClusterPipeline:
    """The pipeline twice: on the cluster, and on the Spark that tests share."""

    def __init__(self, topics: Topics, folder: Path, cluster: str, local: str) -> None:
        self.topics, self.folder = topics, folder / "held"
        self.folder.mkdir()
        self.names = {name: topics.make(partitions=count) for name, count in PARTITIONS.items()}
        self.cluster = Command(folder / "cluster-home", topics.bootstrap, cluster)
        self.local = Command(folder / "local-home", topics.bootstrap, local)
        for command in (self.cluster, self.local):
            command.declare(declaration(self.names), file="flights.py", folder=str(self.folder))

    def load(self) -> None:
        """All that was scheduled before the last cut, in the demo's order and partitions."""
        end = CUTS[-1].timestamp() * 1000
        self._send("flights", [record for record in read_flights() if record.timestamp_ms < end])
        self._send("planes", read_planes())
        self._send("airlines", read_airlines())

    def _send(self, name: str, records: list[FlightRecord]) -> None:
        sent = [Sent(r.value, r.key, partition_of(r, PARTITIONS[name]), r.timestamp_ms) for r in records]
        self.topics.produce(self.names[name], sent)

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
            # Each has its time: on a busy machine the JVMs' start alone has taken what both of them had.
            _until(lambda: bool(failed) or len(_executors()) >= 2, "two executors")
            _until(lambda: bool(failed) or len(self.began()) == 2, "two tasks")
            if not failed:
                kill()
        finally:
            (self.folder / "go").touch()
            thread.join(PATIENCE)
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

    def check_twin(self, month: int) -> None:
        """Makes the checkpoint in local mode too: it has the same hashes."""
        made = checkpoints.run_once(open_context(self.local.settings), "flights", asked(month)).checkpoint
        assert made is not None and made.id == month
        told = [Checker(context=c.context, pipeline="flights").hashes(made) for c in (self.cluster, self.local)]
        assert told[0] == told[1]
        assert set(told[0]) == {"aircraft", "routes", "rotations", "planes", "airlines"}

    def check(self) -> None:
        """Rows and totals of both checkpoints on the cluster are those of the data set."""
        context = self.cluster.context
        chain = reads.list_checkpoints(context, "flights")[::-1]
        assert [c.id for c in chain] == [1, 2]
        assert [c.sealed.facts.records for c in chain] == [27_004 + 3_338, 24_951]
        Checker(context=context, pipeline="flights").check(chain, chain)


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"no {what}"
        time.sleep(0.05)


def _executors() -> list[psutil.Process]:
    """Those of this test's workers; the one of an application that has ended may still be among them."""
    below = psutil.Process().children(recursive=True)
    return [process for process in below if EXECUTOR in _command(process)]


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def _above(process: psutil.Process, name: str) -> psutil.Process:
    """The JVM of this class that a process descends from."""
    return next(parent for parent in process.parents() if name in _command(parent))


@pytest.fixture
def line(
    topics: Topics, spark_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ClusterPipeline]:
    env = environment(tmp_path / "driver")
    (tmp_path / "driver" / "conf" / "spark-defaults.conf").write_text(CONF)
    for name in [n for n in os.environ if n.startswith(("SPARK_", "PYSPARK_"))]:
        monkeypatch.delenv(name)
    for name in ("JAVA_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_IP", "PYSPARK_PYTHON", "PYTHONPATH"):
        monkeypatch.setenv(name, env[name])
    with standalone(tmp_path / "cluster", workers=2, path="") as cluster:
        yield ClusterPipeline(topics, tmp_path, cluster, spark_server)


def test_an_executor_and_a_worker_die_in_the_middle_and_state_is_that_of_one_machine(
    line: ClusterPipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = {"TIDEMARK_SPARK_JAVA_OPTIONS": QUICK_JAVA}
    for name, value in (line.cluster.environment(TIDEMARK_ROOT=str(ROOT)) | quick).items():
        monkeypatch.setenv(name, value)
    context, said = open_context(load_settings()), list[str]()

    def submitted() -> None:
        planned = checkpoints.plan(context, "flights", asked(1))
        assert planned.slot is not None
        fold(SparkJob(context.settings, CHECKPOINT_JOB, "fold", said.append), "flights", planned.slot, asked(1))
        checkpoints.complete(context, "flights", planned.slot)

    line.load()
    line.while_held(submitted, lambda: _above(line.tasks()[0], EXECUTOR).kill())
    assert all(".zip/" in path for path in line.code())
    line.check_twin(1)

    with connect_server(tmp_path / "connect", line.cluster.spark) as address:
        connected = open_context(load_settings(spark=address))

        def once_more() -> None:
            checkpoints.run_once(connected, "flights", asked(2))

        line.while_held(once_more, lambda: _above(line.tasks()[0], "deploy.worker.Worker").kill())
    line.check_twin(2)
    line.check()
