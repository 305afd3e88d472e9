"""The entry points of `spark_jobs/` as processes of their own: answer and exit code, before any Spark starts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidemark.engine.session.job_result import write_result
from tidemark.errors import GateFailedError

ROOT = Path(__file__).resolve().parents[2]
REQUEST = json.dumps({"origin": "test"})


@pytest.mark.parametrize(
    ("entry", "arguments"), [("checkpoint", ("nowhere", "t1/1.1", REQUEST)), ("compact", ("nowhere",))]
)
def test_an_error_is_the_answer_and_its_code_that_of_the_process(
    tmp_path: Path, entry: str, arguments: tuple[str, ...]
) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("TIDEMARK_")}
    env |= {"TIDEMARK_ROOT": str(tmp_path), "TIDEMARK_PIPELINES": str(tmp_path), "PYTHONPATH": str(ROOT / "include")}
    path = tmp_path / "answer.json"
    command = [sys.executable, str(ROOT / "spark_jobs" / f"{entry}.py"), *arguments, str(path)]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 3, done.stderr
    told = json.loads(path.read_text())
    assert told["error"] == "NotFoundError"
    assert "nowhere" in told["what"]
    assert told["next"]


def test_what_a_verb_returns_is_the_answer(tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    assert write_result(str(path), lambda: {"slot": "t1/1.1", "completed": [1]}) == 0
    assert json.loads(path.read_text()) == {"slot": "t1/1.1", "completed": [1]}


def test_an_error_of_nobodys_leaves_no_answer(tmp_path: Path) -> None:
    def broken() -> dict[str, object]:
        raise ZeroDivisionError

    path = tmp_path / "answer.json"
    with pytest.raises(ZeroDivisionError):
        write_result(str(path), broken)
    assert not path.exists()


def test_an_error_of_ours_is_written_with_its_three_lines(tmp_path: Path) -> None:
    def refused() -> dict[str, object]:
        raise GateFailedError("gate failed", safe="all", next="mend")

    path = tmp_path / "answer.json"
    assert write_result(str(path), refused) == GateFailedError.code == 5
    assert json.loads(path.read_text()) == {
        "error": "GateFailedError", "what": "gate failed", "safe": "all", "next": "mend",
    }  # fmt: skip
