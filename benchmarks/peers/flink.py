"""Apache Flink: a resident job with RocksDB and incremental checkpoints, driven over its REST API.

The job runs in one JVM with two task slots (Flink's own local cluster). It reads the topic only up to given offsets, so
that a run begins when all records are in the topic, as for every other peer; the job itself never stops.
"""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.csv as pv

from benchmarks.needed import flink_files
from benchmarks.peers.batch import ends_of
from benchmarks.peers.places import COLUMNS, JARS, PARTITIONS, Place
from benchmarks.peers.setup_flink import flink_jars
from devstack.services import require_java

TASKS = 2
RETAINED = 30
"""The number of checkpoints that a job retains; a newer one subsumes the oldest, and no command deletes one."""
PATIENCE = 900.0
_NEVER = "20 d"
OPENS = [f"--add-opens=java.base/{p}=ALL-UNNAMED" for p in ("java.lang", "java.util", "java.time", "java.nio")]
CLIENT = ("kafka-clients-*.jar", "jackson-*.jar", "lz4-java-*.jar", "snappy-java-*.jar", "zstd-jni-*.jar")


@dataclass
class FlinkPeer:
    """One job.

    Attributes:
        place: the topic and folder of the peer.
        memory: the maximum heap of the JVM, which uses more memory outside the heap for RocksDB.
        pause: the seconds between two polls of a file or of the REST API.
        number: the number of the last request to the job.
        restored: the savepoint from which the job starts, if any.
        newest: the folder of the last checkpoint.
    """

    place: Place
    memory: str = "1g"
    pause: float = 0.002
    number: int = 0
    restored: str | None = None
    job: str = field(init=False)
    least: int = field(init=False, default=RETAINED)
    newest: str = field(init=False, default="")
    savepoints: dict[str, str] = field(init=False, default_factory=dict)
    phases: dict[str, float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.checkpoints = f"{self.place.folder}/checkpoints"
        self.start(self.restored)

    def start(self, restored: str | None = None) -> None:
        """Starts the JVM, from a savepoint or checkpoint if one is given, and waits until the job runs."""
        self.control = Path(self.place.folder).parent / f"{Path(self.place.folder).name}-control"
        shutil.rmtree(self.control, ignore_errors=True)
        self.control.mkdir(parents=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.rest = f"http://127.0.0.1:{port}"
        options = self._options(port) | ({"execution.state-recovery.path": restored} if restored else {})
        arguments = [self.place.bootstrap, self.place.topic, str(PARTITIONS), str(self.control)]
        java = [str(require_java().executable), f"-Xmx{self.memory}", *OPENS, "-cp", class_path(self.place.classes)]
        command = [*java, "FlinkTotals", *arguments, *(f"{name}={value}" for name, value in options.items())]
        with (self.control / "log").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.control)
        self.job = self._running()

    def take(self) -> None:
        """Lets the job read to the topic's end, then triggers a checkpoint."""
        began = time.perf_counter()
        self.number += 1
        asked = {"number": str(self.number)} | ends_of(self.place)
        self._say("limits", json.dumps(asked))
        self._until(lambda: self._all_say("reached", str(self.number)))
        read = time.perf_counter()
        made = self._ask(f"jobs/{self.job}/checkpoints", {"checkpointType": "CONFIGURED"})
        self.newest = f"{self.checkpoints}/{self.job}/chk-{made['checkpointId']}"
        self.phases = {"read": read - began, "checkpoint": time.perf_counter() - read}

    def savepoint(self, name: str) -> None:
        """Triggers a savepoint in RocksDB's own format, which is faster than the canonical one."""
        body = {"target-directory": f"{self.place.folder}/savepoints", "cancel-job": False, "formatType": "NATIVE"}
        self.savepoints[name] = self._ask(f"jobs/{self.job}/savepoints", body)["location"]

    def restore(self, name: str) -> None:
        """Ends the job and starts it from the savepoint in a new JVM."""
        self.close()
        self.start(self.savepoints[name])

    def forked(self, name: str, place: Place) -> "FlinkPeer":
        """Starts another JVM from the same savepoint."""
        return FlinkPeer(place, restored=self.savepoints[name])

    def mark(self) -> str:
        """Returns the folder of the last checkpoint."""
        return self.newest

    def needed(self, marks: Sequence[str]) -> dict[Path, str]:
        """Returns the checkpoints' own files, and the shared files that they name."""
        return dict.fromkeys(flink_files([Path(mark) for mark in marks]), "state")

    def keep(self, marks: Sequence[str]) -> None:
        """Does nothing: the job was started with the number of checkpoints to retain."""

    def drop(self, marks: Sequence[str]) -> None:
        """Waits until Flink has deleted the subsumed checkpoints, which it does in the background."""
        kept = {Path(mark).name for mark in marks}
        job = Path(marks[0]).parent
        self._until(lambda: {path.name for path in job.glob("chk-*")} <= kept)

    def back_to(self, mark: str) -> None:
        """Ends the job and starts it from the checkpoint in a new JVM."""
        self.close()
        self.start(mark)

    def upkeep(self) -> None:
        """Does nothing: Flink does its maintenance in the background."""

    def rows(self) -> pa.Table:
        """Has the job write the state of every key to files, and reads them."""
        self.number += 1
        self._say("dump", str(self.number))
        self._until(lambda: self._all_say("dumped", str(self.number)))
        parts = [self.control / f"rows-{n}.csv" for n in range(TASKS)]
        types = {"key": pa.string(), **dict.fromkeys(COLUMNS[1:], pa.int64())}
        options = {
            "read_options": pv.ReadOptions(column_names=list(COLUMNS)),
            "convert_options": pv.ConvertOptions(column_types=types),
        }
        table = pa.concat_tables(pv.read_csv(part, **options) for part in parts if part.stat().st_size)
        at = table["last_at"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
        return table.set_column(COLUMNS.index("last_at"), "last_at", at)

    def resident(self) -> dict[str, float]:
        """The current memory of the process in megabytes, and the CPU seconds that it has used so far."""
        process = psutil.Process(self.process.pid)
        times = process.cpu_times()
        return {"mb": round(process.memory_info().rss / 1e6), "cpu_seconds": round(times.user + times.system, 2)}

    def close(self) -> None:
        """Ends the JVM."""
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _options(self, port: int) -> dict[str, str]:
        scratch = self.control / "tmp"
        return {
            "rest.bind-port": str(port),
            "rest.bind-address": "127.0.0.1",
            "rest.address": "127.0.0.1",
            "io.tmp.dirs": str(scratch),
            "taskmanager.memory.managed.size": "512m",
            "taskmanager.numberOfTaskSlots": str(TASKS),
            "state.backend.type": "rocksdb",
            "execution.checkpointing.incremental": "true",
            "execution.checkpointing.interval": _NEVER,
            "execution.checkpointing.dir": f"file://{self.checkpoints}",
            "execution.checkpointing.num-retained": str(RETAINED),
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "restart-strategy.type": "none",
        }

    def _running(self) -> str:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise RuntimeError(f"Flink ended:\n{(self.control / 'log').read_text(errors='replace')[-3000:]}")
            try:
                jobs = self._get("jobs/overview")["jobs"]
            except (OSError, RuntimeError):
                jobs = []
            for job in jobs:
                if job["state"] == "RUNNING" and job["tasks"]["running"] == job["tasks"]["total"]:
                    found: str = job["jid"]
                    return found
            time.sleep(0.05)
        raise RuntimeError(f"Flink's job does not run after {PATIENCE:.0f} s")

    def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Triggers an operation and waits until it has completed."""
        request = urllib.request.Request(  # noqa: S310
            f"{self.rest}/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        trigger = _answer(request)["request-id"]
        until = time.monotonic() + PATIENCE
        while (found := self._get(f"{path}/{trigger}"))["status"]["id"] != "COMPLETED":
            assert time.monotonic() < until, f"Flink has not ended {path}"
            time.sleep(self.pause)
        operation: dict[str, Any] = found["operation"]
        if "failure-cause" in operation:
            raise RuntimeError(f"Flink: {operation['failure-cause']}")
        return operation

    def _get(self, path: str) -> dict[str, Any]:
        return _answer(urllib.request.Request(f"{self.rest}/{path}"))  # noqa: S310

    def _say(self, name: str, text: str) -> None:
        part = self.control / f"{name}.part"
        part.write_text(text)
        part.replace(self.control / name)

    def _all_say(self, name: str, text: str) -> bool:
        files = [self.control / f"{name}-{n}" for n in range(TASKS)]
        return all(file.exists() and file.read_text() == text for file in files)

    def _until(self, holds: Any) -> None:
        until = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < until, "Flink's job does not answer"
            if self.process.poll() is not None:
                raise RuntimeError(f"Flink ended:\n{(self.control / 'log').read_text(errors='replace')[-3000:]}")
            time.sleep(self.pause)


def _answer(request: urllib.request.Request) -> dict[str, Any]:
    """Sends a request to the REST API and returns its answer; an error shows the body of the response."""
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            found: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"Flink: {error.code} {error.read().decode(errors='replace')[:2000]}") from error
    return found


def class_path(classes: str) -> str:
    """The class path with the compiled job, Flink, and Kafka's client with its dependencies."""
    client = [str(jar) for pattern in CLIENT for jar in sorted((JARS / "kafka").glob(pattern))]
    return os.pathsep.join([classes, f"{flink_jars()}/*", *client])
