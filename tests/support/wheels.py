"""Builds the wheel from a copy of the checkout, and installs it in new virtual environments."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).with_name("uv")
OTHERS = ("3.11", "3.12", "3.13")
"""Versions of Python that the wheel supports."""


def build_wheel(folder: Path) -> Path:
    """Builds the wheel below a folder, from a copy: a build writes next to its sources."""
    source = folder / "source"
    (source / "include").mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    compiled = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "include/tidemark", source / "include/tidemark", ignore=compiled)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    run([*command, "--wheel-dir", str(folder), str(source)])
    (built,) = folder.glob("*.whl")
    return built


@dataclass(frozen=True)
class Installation:
    """A virtual environment with the wheel."""

    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def run(self, *command: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a program of the environment outside the checkout, without any of its variables."""
        return run(
            [str(self.folder / "bin" / command[0]), *command[1:]],
            env=plain_environment() | (env or {}),
            cwd=self.folder,
        )

    def packages(self) -> set[str]:
        """Names of the installed packages."""
        listed = run([str(UV), "pip", "list", "--quiet", "--python", str(self.python), "--format", "freeze"])
        return {line.partition("==")[0] for line in listed.stdout.split()}


def install_wheel(wheel: Path, extras: str, folder: Path, python: str = sys.executable) -> Installation:
    """Installs the wheel and its extras (`read,cli`; empty = none) with the locked versions of its requirements."""
    constraints = folder.with_suffix(".txt")
    constraints.write_text(re.sub(r"\s*\\\n(\s+--hash=\S+(\s*\\\n)?)*", "\n", (ROOT / "requirements.lock").read_text()))
    return _install(wheel, extras, folder, constraints, python)


def install_lowest(wheel: Path, extras: str, folder: Path) -> Installation:
    """Installs the wheel and its extras with the lowest versions that its own requirements allow."""
    constraints = folder.with_suffix(".txt")
    chosen = [word for extra in extras.split(",") for word in ("--extra", extra)]
    quiet = ["--quiet", "--no-annotate", "--no-header", "--no-emit-index-url", "--output-file", str(constraints)]
    options = [*chosen, "--resolution", "lowest-direct", "--python", sys.executable, *quiet]
    run([str(UV), "pip", "compile", str(ROOT / "pyproject.toml"), *options])
    return _install(wheel, extras, folder, constraints, sys.executable)


def _install(wheel: Path, extras: str, folder: Path, constraints: Path, python: str) -> Installation:
    run([str(UV), "venv", "--quiet", "--python", python, str(folder)])
    made = Installation(folder)
    wanted = f"{wheel}[{extras}]" if extras else str(wheel)
    options = ["--quiet", "--python", str(made.python), "--constraint", str(constraints)]
    run([str(UV), "pip", "install", *options, wanted])
    return made


def plain_environment() -> dict[str, str]:
    """The environment of a user without a checkout."""
    ours = ("TIDEMARK_", "AIRFLOW_", "PYTHONPATH", "VIRTUAL_ENV", "SPARK_", "PYSPARK_", "OTEL_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


@cache
def pythons() -> dict[str, str]:
    """The supported interpreters of this machine by version; that of the tests is always one."""
    found = {f"{sys.version_info[0]}.{sys.version_info[1]}": sys.executable}
    for version in OTHERS:
        asked = subprocess.run(
            [str(UV), "python", "find", "--no-python-downloads", version], capture_output=True, text=True, check=False
        )
        candidates = [asked.stdout.strip(), *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))]
        working = [path for path in candidates if path and _is_version(path, version)]
        if working:
            found.setdefault(version, working[0])
    return found


def _is_version(path: str, version: str) -> bool:
    answer = subprocess.run(
        [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip() == version


def run(
    command: list[str], env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command; its output is in the error if it fails."""
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done
