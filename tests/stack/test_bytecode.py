"""Bytecode is written at set-up where Python is told not to write it, and nowhere but in the environment."""

import os
import subprocess
import venv
from pathlib import Path

import pytest

from tidemark.stack import bytecode

FORBIDDEN = {bytecode.FORBIDDEN: "1"}


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment with a package of two modules, one of which imports what lies outside."""
    made = tmp_path / "environment"
    venv.create(made, symlinks=True)
    package = _packages(made) / "inside"
    package.mkdir()
    (package / "__init__.py").write_text("import outside\n")
    (package / "unused.py").write_text("")
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "outside.py").write_text("")
    return made


def _packages(environment: Path) -> Path:
    return next(environment.glob("lib/python*/site-packages"))


def _cached(folder: Path) -> list[str]:
    return sorted(path.name.split(".")[0] for path in folder.rglob("*.pyc"))


def _variables(tmp_path: Path, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k != bytecode.FORBIDDEN}
    return kept | {"PYTHONPATH": str(tmp_path / "sources")} | more


def test_bytecode_of_what_is_imported_is_where_python_looks_for_it(environment: Path, tmp_path: Path) -> None:
    variables = _variables(tmp_path, **FORBIDDEN)
    count = bytecode.write(environment, variables, ("inside", "nobody.has.it"))
    assert (count, _cached(environment / "lib"), _cached(tmp_path / "sources")) == (1, ["__init__"], [])
    assert not list(environment.glob("bytecode-*"))
    told = subprocess.run(
        [environment / "bin" / "python", "-v", "-c", "import inside"],
        env=variables, capture_output=True, text=True, check=True,
    ).stderr  # fmt: skip
    read = [line for line in told.splitlines() if "code object from" in line and "inside" in line]
    assert len(read) == 1
    assert ".pyc" in read[0]


def test_where_python_writes_it_nothing_is_done(environment: Path, tmp_path: Path) -> None:
    assert bytecode.write(environment, _variables(tmp_path), ("inside",)) == 0
    assert not _cached(environment / "lib")


def test_a_module_that_has_changed_since_is_read_anew(environment: Path, tmp_path: Path) -> None:
    variables = _variables(tmp_path, **FORBIDDEN)
    bytecode.write(environment, variables, ("inside",))
    (_packages(environment) / "inside" / "__init__.py").write_text("print('changed since')\n")
    command = [environment / "bin" / "python", "-c", "import inside"]
    told = subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout
    assert told == "changed since\n"
