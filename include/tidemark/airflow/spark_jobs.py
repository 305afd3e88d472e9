"""Runs an entry point of `tidemark.jobs`: in this process over Spark Connect, or in a child through spark-submit.

Either way, each checkpoint is one Spark application. The child has its own process group, so killing the task also
kills the driver's JVM; if a process survives a SIGKILL of the task, the next attempt fences it.
"""

import importlib.util
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark import errors
from tidemark.airflow.connections import take_connections
from tidemark.errors import EngineError, TidemarkError
from tidemark.model.core.names import S3Url

if TYPE_CHECKING:
    from tidemark.ports import PlanRequest
    from tidemark.settings import Settings

_log = logging.getLogger(__name__)

CHECKPOINT_JOB = "tidemark.jobs.checkpoint_job"
COMPACTION_JOB = "tidemark.jobs.compaction_job"
GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL to the child's process group."""


def spark_job(entry: str, verb: str, say: Callable[[str], object]) -> "SparkJob":
    """Returns a job on the Spark that the settings name; arguments as for `SparkJob`."""
    from tidemark.settings import load_settings

    take_connections()
    return SparkJob(load_settings(), entry, verb, say)


def fold(job: "SparkJob", pipeline: str, slot: str, request: "PlanRequest") -> dict[str, Any]:
    """Executes the plan at a slot up to its seal; `job` is `spark_job(CHECKPOINT_JOB, "fold", …)`.

    Raises:
        TidemarkError: as for `SparkJob.execute`.
    """
    from pydantic import TypeAdapter

    from tidemark.ports import PlanRequest

    return job.execute(pipeline, slot, TypeAdapter(PlanRequest).dump_json(request).decode())


class SparkJob:
    """One execution of an entry point.

    Args:
        settings: the settings that name the Spark to use.
        entry: the entry point's module, with a function `verb` and a `main`.
        verb: the function to call in-process.
        say: called with each line that a child writes.
    """

    def __init__(self, settings: "Settings", entry: str, verb: str, say: Callable[[str], object]) -> None:
        self._settings = settings
        self._entry = entry
        self._verb = verb
        self._say = say
        self._child: subprocess.Popen[str] | None = None

    def execute(self, *arguments: str) -> dict[str, Any]:
        """Executes and returns the entry point's answer.

        Raises:
            TidemarkError: the error of the entry point, from this process or the child.
        """
        if self._settings.spark_address.startswith("sc://"):
            answer: dict[str, Any] = getattr(import_module(self._entry), self._verb)(*arguments)
            return answer
        with tempfile.TemporaryDirectory(prefix="tidemark-") as folder:
            return self._submit(arguments, Path(folder) / "answer.json")

    def kill(self) -> None:
        """Ends the child and all of its processes; does nothing if there is no child."""
        child = self._child
        if child is None or child.poll() is not None:
            return
        _log.warning("ending spark-submit and its driver (process group %d)", child.pid)
        os.killpg(child.pid, signal.SIGTERM)
        try:
            child.wait(GRACE)
        except subprocess.TimeoutExpired:
            _log.warning("the driver did not end within %.0f s: killing it", GRACE)
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()

    def _submit(self, arguments: tuple[str, ...], answer: Path) -> dict[str, Any]:
        from tidemark.engine.session.installation import spark_home

        home = spark_home()
        command = [*submit_command(self._settings, home), str(_file_of(self._entry)), *arguments, str(answer)]
        with subprocess.Popen(
            command,
            env=submit_environment(self._settings, home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as child:
            self._child = child
            try:
                for line in child.stdout or ():
                    self._say(line.rstrip())
                code = child.wait()
            finally:
                self.kill()
        return _read_answer(answer, code)


def submit_command(settings: "Settings", home: Path) -> list[str]:
    """Returns the command line up to the application. It contains no secret, because `ps` shows it to all users."""
    from tidemark.engine.session.class_archive import jar_conf

    profiles = ("spark", "s3") if isinstance(settings.warehouse, S3Url) else ("spark",)
    conf = {"spark.log.level": "WARN"}
    conf |= jar_conf(settings.spark_address, [settings.jar_folder / profile for profile in profiles], conf, home)
    return [
        str(home / "bin" / "spark-submit"),
        "--master",
        settings.spark_address,
        "--driver-memory",
        settings.spark_driver_memory,
        *(["--driver-java-options", settings.spark_java_options] if settings.spark_java_options else []),
        *(part for name, value in conf.items() for part in ("--conf", f"{name}={value}")),
    ]


def submit_environment(settings: "Settings", home: Path) -> dict[str, str]:
    """Returns the child's environment: this interpreter for driver and executors, and this package on their path."""
    from tidemark.engine.session.installation import package_path

    env = dict(os.environ)
    env["SPARK_HOME"] = str(home)
    env["PYSPARK_PYTHON"] = env["PYSPARK_DRIVER_PYTHON"] = sys.executable
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [package_path(), env.get("PYTHONPATH")]))
    env["TIDEMARK_ROOT"] = str(settings.root)
    return env


def _read_answer(answer: Path, code: int) -> dict[str, Any]:
    if not answer.is_file():
        raise EngineError(
            f"spark-submit ended with exit code {code} before it answered",
            safe="every completed checkpoint is intact; nothing was published.",
            next="read the driver's log above, or run tidemark doctor.",
        )
    body: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    if "error" not in body:
        return body
    kind = getattr(errors, body["error"], EngineError)
    raised: TidemarkError = kind(body["what"], safe=body["safe"], next=body["next"])
    raise raised


def _file_of(entry: str) -> Path:
    """The file of a module, which spark-submit takes; the module is not imported."""
    spec = importlib.util.find_spec(entry)
    if spec is None or spec.origin is None:
        raise EngineError(f"no entry point {entry}", next="install Tidemark again.")
    return Path(spec.origin)
