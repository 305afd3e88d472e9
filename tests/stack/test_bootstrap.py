"""Set-up: what needs no network is tried here; the rest is what every test run has just been through."""

import os
import subprocess
import sys
import time
from importlib.util import cache_from_source, find_spec
from pathlib import Path

import pytest

from devstack import java
from tests.stack.homes import ROOT

BOOTSTRAP = ROOT / "include" / "devstack" / "bootstrap.py"


def test_a_second_setup_is_quick_and_needs_no_network() -> None:
    unreachable = {"https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9", "PATH": "/usr/bin:/bin"}
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    check = subprocess.run([base, BOOTSTRAP, "--check"], capture_output=True, text=True, check=False)
    assert check.returncode == 0, f"make setup first\n{check.stderr}"
    began = time.monotonic()
    answer = subprocess.run([base, BOOTSTRAP], env=unreachable, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
    assert time.monotonic() - began < 2


def test_packages_have_their_bytecode_whatever_python_may_write() -> None:
    found = find_spec("great_expectations")
    assert found is not None and found.origin is not None
    assert Path(cache_from_source(found.origin)).is_file()


def test_the_lock_has_hashes_and_names_no_host() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    pins = [line for line in lock.splitlines() if line and not line.startswith((" ", "#"))]
    assert all("==" in pin and pin.endswith("\\") for pin in pins)


def test_the_block_of_one_package_is_cut_from_the_lock() -> None:
    cut = "import sys; from devstack import bootstrap; print(bootstrap.locked_block(sys.argv[1], 'b'), end='')"
    lock = "a==1 \\\n    --hash=x\nb==2 \\\n    --hash=y \\\n    --hash=z\nbc==3 \\\n    --hash=w\n"
    answer = subprocess.run(
        [sys.executable, "-c", cut, lock], cwd=ROOT / "include", capture_output=True, text=True, check=True
    )
    assert answer.stdout == "b==2 \\\n    --hash=y \\\n    --hash=z\n"


@pytest.mark.parametrize(("printed", "major"), [('openjdk version "17.0.15"', 17), ('java version "1.8.0_402"', 8)])
def test_the_major_version_is_read_from_what_java_prints(tmp_path: Path, printed: str, major: int) -> None:
    assert java.major_version(_fake_java(tmp_path, printed)) == major


def test_an_old_java_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "PACKAGED", tmp_path / "none")
    old = _fake_java(tmp_path, 'openjdk version "11.0.2"')
    assert java.find_java({"JAVA_HOME": str(old.parents[1]), "PATH": ""}) is None


def test_a_released_java_is_preferred_to_a_newer_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = _fake_java(tmp_path / "newer", 'openjdk version "25"')
    _fake_java(tmp_path / "jvm" / "j21", 'openjdk version "21.0.1"')
    monkeypatch.setattr(java, "PACKAGED", tmp_path / "jvm")
    found = java.find_java({"JAVA_HOME": str(newer.parents[1]), "PATH": ""})
    assert found is not None
    assert found.major == 21


def _fake_java(folder: Path, printed: str) -> Path:
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(f"#!/bin/sh\necho '{printed}' >&2\n")
    launcher.chmod(0o755)
    return launcher


@pytest.mark.parametrize(
    ("made", "given", "used"),
    [
        (False, [], "python3"),
        (True, [], ".venv/bin/python"),
        (True, ["PYTHON=python3.13"], "python3.13"),
    ],
)
def test_a_setup_keeps_the_python_that_the_environment_was_made_with(
    tmp_path: Path, made: bool, given: list[str], used: str
) -> None:
    python = tmp_path / ".venv/bin/python"
    if made:
        python.parent.mkdir(parents=True)
        python.symlink_to(sys.executable)
    told = subprocess.run(
        ["make", "-n", "--no-print-directory", "-f", str(ROOT / "Makefile"), "setup", *given],
        cwd=tmp_path, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.split()[0] == used
