"""daft as a reader of a mirror, in a virtual environment of its own below the cache of the user.

daft 0.7.26 requires a pyarrow below 26, which is not the project's. The environment is made once for each list of
versions (`daft.txt`), by the package registry that this machine uses for uv.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.support.prerequisites import missing
from tests.support.wheels import UV, plain_environment

VERSIONS = Path(__file__).with_name("daft.txt")
_READ = """
import json, sys
import daft
path, versions, options = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
found = {v: daft.read_deltalake(path, version=v, **options).to_pylist() for v in versions}
print(json.dumps(found, default=str))
"""


class DaftError(AssertionError):
    """daft ended with an error; the message is its output."""


def read_with_daft(path: Path, versions: Sequence[int], **options: bool) -> Mapping[int, list[dict[str, Any]]]:
    """Returns the rows of some versions of a table.

    Raises:
        DaftError: daft cannot read them.
    """
    arguments = [str(path), json.dumps(list(versions)), json.dumps(options)]
    command = [str(_environment() / "bin" / "python"), "-c", _READ, *arguments]
    quiet = {"DAFT_PROGRESS_BAR": "0", "DO_NOT_TRACK": "1", "DAFT_ANALYTICS_ENABLED": "0"}
    env = plain_environment() | quiet
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise DaftError(done.stderr)
    rows: dict[str, list[dict[str, Any]]] = json.loads(done.stdout.splitlines()[-1])
    return {int(v): [row | {"balance": Decimal(row["balance"])} for row in found] for v, found in rows.items()}


def _environment() -> Path:
    """The folder of the environment; of two callers at a time, one makes it and one waits."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    wanted = hashlib.sha256(VERSIONS.read_bytes() + sys.version.encode()).hexdigest()
    folder = base / "tidemark" / f"daft-{wanted[:16]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            _call("venv", "--python", sys.executable, str(folder))
            _call("pip", "install", "--python", str(folder / "bin" / "python"), "--requirement", str(VERSIONS))
            (folder / "complete").touch()
    return folder


def _call(*command: str) -> None:
    done = subprocess.run([str(UV), *command, "--quiet"], capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        missing(f"daft, which uv could not install: {done.stderr.strip()}")
