"""`make setup-minio` without a network: each way to fail, with a small script in the place of Go.

The real build is behind every test on MinIO.
"""

import os
import subprocess
import sys
from pathlib import Path

from devstack import minio
from tests.stack.homes import ROOT
from tests.support.minio import needs_minio


def _setup(tmp_path: Path, path: str) -> "subprocess.CompletedProcess[str]":
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": path, "PYTHONPATH": str(ROOT / "include")}
    env.pop(minio.VARIABLE, None)
    command = [sys.executable, "-m", "devstack.minio"]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def _go(folder: Path, text: str) -> str:
    folder.mkdir(parents=True)
    (folder / "go").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "go").chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


def _left(tmp_path: Path) -> list[str]:
    return [path.name for path in tmp_path.rglob("cache/**/*") if path.is_file() and path.name != "lock"]


@needs_minio()
def test_what_was_built_is_used_without_go_and_without_a_network(tmp_path: Path) -> None:
    program = minio.find_program({"XDG_CACHE_HOME": str(tmp_path / "cache")})
    program.parent.mkdir(parents=True)
    program.symlink_to(minio.find_program(os.environ))
    done = _setup(tmp_path, "/nowhere")
    assert (done.returncode, done.stderr) == (0, "setup: MinIO is ready for tests\n")


def test_a_machine_without_go_is_told_what_is_missing(tmp_path: Path) -> None:
    done = _setup(tmp_path, "/nowhere")
    what, safe, following = done.stderr.splitlines()
    assert (done.returncode, what) == (1, "setup: Go is required to build MinIO, and PATH has none")
    assert safe.startswith("Safe: ") and following.startswith("Next: install Go")
    assert _left(tmp_path) == []


def test_source_with_another_checksum_is_not_built(tmp_path: Path) -> None:
    path = _go(tmp_path / "go", """test "$1" = mod && echo '{"Sum": "h1:other"}' || touch "$GOBIN/minio" """)
    done = _setup(tmp_path, path)
    assert done.returncode == 1 and "has the checksum h1:other, not h1:" in done.stderr
    assert _left(tmp_path) == []


def test_a_proxy_that_does_not_answer_is_told(tmp_path: Path) -> None:
    done = _setup(tmp_path, _go(tmp_path / "go", """echo '{"Error": "no route to the proxy"}'; exit 1"""))
    assert done.returncode == 1
    assert "no route to the proxy" in done.stderr and "Next: check the network" in done.stderr


def test_a_build_that_fails_leaves_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    fetched = f"""test "$1" = mod && echo '{{"Sum": "{minio.SUM}"}}' && exit 0"""
    done = _setup(tmp_path, _go(tmp_path / "broken", f"{fetched}; exit 2"))
    assert done.returncode == 1 and "Go could not build MinIO" in done.stderr
    assert _left(tmp_path) == []
    build = """test "$1" = install && echo built > "$GOBIN/minio" && chmod +x "$GOBIN/minio" """
    done = _setup(tmp_path, _go(tmp_path / "whole", f"{fetched}; {build}"))
    assert (done.returncode, _left(tmp_path)) == (0, ["minio"]), done.stderr
