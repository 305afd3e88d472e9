"""A command ends as soon as its work is done, but not before threads, exit functions and output are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import Command

REMAINING = """
import atexit, sys, threading, time

class Kept:
    def __del__(self):
        print("deleted", file=sys.stderr, flush=True)

def work():
    time.sleep(0.3)
    print("worked", file=sys.stderr, flush=True)

kept = Kept()
atexit.register(print, "registered", file=sys.stderr, flush=True)
threading.Thread(target=work).start()
"""
EARLY = "import atexit, sys; atexit.register(print, 'early', file=sys.stderr, flush=True)\n"


@pytest.fixture
def tidemark(tmp_path: Path) -> Command:
    command = Command(tmp_path, "127.0.0.1:1", "sc://127.0.0.1:1")
    command.declare(REMAINING)
    return command


def test_threads_and_exit_functions_come_first_and_nothing_is_deleted(tidemark: Command) -> None:
    ended = tidemark.process("run", "nobody")
    assert ended.code == 3
    assert ended.err.splitlines()[-2:] == ["worked", "registered"]


def test_a_package_that_was_there_first_gets_its_turn(tidemark: Command, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(EARLY)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    ended = tidemark.process("run", "nobody", PYTHONPATH=path)
    assert ended.code == 3
    assert ended.err.splitlines()[-4:] == ["worked", "registered", "early", "deleted"]


def test_a_defect_is_reported_and_the_process_ends_as_usual(tidemark: Command) -> None:
    script = (
        "import sys; from tidemark.cli import main\n"
        "sys.argv = ['tidemark', '--version']; import typer\n"
        "def fail(*_, **__): raise RuntimeError('a defect')\n"
        "typer.echo = fail; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], env=tidemark.environment(), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "RuntimeError: a defect" in ended.stderr


def test_output_that_cannot_be_written_is_an_error(tidemark: Command) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "tidemark.cli.main", "topic", "load", "planes", "--replace", "--json"],
            env=tidemark.environment(PYTHONUNBUFFERED=""), stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert ended.returncode == 120
    assert "No space left on device" in ended.stderr
