"""Entry points of `tidemark.jobs`, run in-process and as a child: answers, errors, and the end of a killed driver."""

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tidemark.errors import EngineError, GateFailedError
from tidemark.settings import Settings, load_settings

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]
ANSWER = "import json, sys\njson.dump({body}, open(sys.argv[-1], 'w'))\nprint('a line')\nsys.exit({code})\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, airflow_home: Path) -> Callable[[str, str], Settings]:
    """`project(spark, text)`: settings of a project with the entry point `some_job`; spark-submit is Python here."""
    from tidemark.airflow import spark_jobs as jobs

    def make(spark: str, text: str) -> Settings:
        (tmp_path / "some_job.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "some_job", raising=False)
        monkeypatch.setattr(jobs, "submit_command", lambda settings, home: [sys.executable])
        return load_settings(root=tmp_path, spark=spark)

    return make


def test_in_process_the_entry_point_is_called(project: Callable[[str, str], Settings]) -> None:
    from tidemark.airflow.spark_jobs import SparkJob

    settings = project("sc://nowhere:1", "def add(a, b):\n    return {'sum': a + b}\n")
    assert SparkJob(settings, "some_job", "add", print).execute("1", "2") == {"sum": "12"}


def test_a_child_answers_by_file_and_its_lines_are_logged(project: Callable[[str, str], Settings]) -> None:
    from tidemark.airflow.spark_jobs import SparkJob

    lines: list[str] = []
    settings = project("local[2]", ANSWER.format(body={"slot": "t1/1.1"}, code=0))
    assert SparkJob(settings, "some_job", "fold", lines.append).execute("x") == {"slot": "t1/1.1"}
    assert lines == ["a line"]


def test_a_childs_error_arrives_as_itself(project: Callable[[str, str], Settings]) -> None:
    from tidemark.airflow.spark_jobs import SparkJob

    body = {"error": "GateFailedError", "what": "gate failed", "safe": "all", "next": "mend"}
    with pytest.raises(GateFailedError, match="gate failed"):
        SparkJob(project("local[2]", ANSWER.format(body=body, code=5)), "some_job", "fold", print).execute()


def test_a_child_without_an_answer_is_an_engine_error(project: Callable[[str, str], Settings]) -> None:
    from tidemark.airflow.spark_jobs import SparkJob

    with pytest.raises(EngineError, match="exit code 137"):
        SparkJob(project("local[2]", "import os\nos._exit(137)\n"), "some_job", "fold", print).execute()


def test_killing_the_task_kills_all_that_the_child_started(project: Callable[[str, str], Settings]) -> None:
    from tidemark.airflow.spark_jobs import SparkJob

    text = "import subprocess, time\nprint(subprocess.Popen(['sleep', '60']).pid, flush=True)\ntime.sleep(60)\n"
    lines: list[str] = []
    job = SparkJob(project("local[2]", text), "some_job", "fold", lines.append)
    failed: list[BaseException] = []

    def execute() -> None:
        try:
            job.execute()
        except EngineError as error:
            failed.append(error)

    thread = threading.Thread(target=execute)
    thread.start()
    deadline = time.monotonic() + 20
    while not lines and time.monotonic() < deadline:
        time.sleep(0.05)
    job.kill()
    thread.join(20)
    assert failed
    grandchild = int(lines[0])
    # It got the signal together with the child, and may need a moment longer.
    while _is_alive(grandchild) and time.monotonic() < deadline + 20:
        time.sleep(0.05)
    assert not _is_alive(grandchild)


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_no_secret_is_on_the_command_line(airflow_home: Path, tmp_path: Path) -> None:
    from tidemark.airflow.spark_jobs import submit_command
    from tidemark.engine.session.installation import spark_home

    settings = load_settings(root=tmp_path, spark="local[2]", airflow_database="postgresql://user:hunter2@host/db")
    assert "hunter2" not in " ".join(submit_command(settings, spark_home()))
