"""What executors of a cluster are sent: this release, whole, and the same bytes for the same files."""

import subprocess
import sys
import zipfile

from tidemark.engine.session.installation import PACKAGE
from tidemark.engine.session.session import package_zip

IMPORT = "import tidemark.engine.process.process_worker as w, sys; print(w.__file__)"


def test_a_worker_imports_from_the_package_alone() -> None:
    made = package_zip()
    with zipfile.ZipFile(made) as whole:
        names = whole.namelist()
    assert set(names) == {p.relative_to(PACKAGE.parent).as_posix() for p in PACKAGE.rglob("*.py")}
    command = [sys.executable, "-c", IMPORT]
    told = subprocess.run(command, env={"PYTHONPATH": str(made)}, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == f"{made}/tidemark/engine/process/process_worker.py"


def test_the_same_files_are_the_same_bytes() -> None:
    first = package_zip()
    package_zip.cache_clear()
    second = package_zip()
    assert (first.name, first.read_bytes()) == (second.name, second.read_bytes())
    assert first != second
