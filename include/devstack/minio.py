"""`make setup-minio`: builds MinIO, an object store, for tests and the demo; no other part of the project needs it.

Go fetches the source by the module proxy that this machine uses for Go, and compiles it into a cache outside the source
tree. You can kill this at any point and repeat it: moving the program to its final path is the last step.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tidemark.errors import TidemarkError

MODULE = "github.com/minio/minio"
VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
SUM = "h1:/qdoYujxF5MBLDMVLeiYJ/7fBa1HikX39Dvzb9Ji8pA="
"""Go's checksum of the module: other source is not built."""
VARIABLE = "TIDEMARK_TEST_MINIO"
"""The environment variable that names another program."""
MISSING = "MinIO is not built: make setup-minio"
"""Why its tests are skipped; as an instruction."""
_GO_NEXT = "install Go 1.21 or newer, then make setup-minio again; without it, tests on MinIO are skipped."


def find_program(env: Mapping[str, str]) -> Path:
    """Returns the path of the program, whether or not it exists."""
    base = Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(env.get(VARIABLE) or base / "tidemark" / f"minio-{VERSION}" / "minio")


def is_here(env: Mapping[str, str]) -> bool:
    """Whether MinIO has been built."""
    return os.access(find_program(env), os.X_OK)


def build(env: Mapping[str, str]) -> None:
    """Builds MinIO, at a low priority, unless it is there; of two callers at a time, one builds and one waits.

    Raises:
        TidemarkError: there is no Go, the source has another checksum, or it could not be fetched or compiled.
    """
    program = find_program(env)
    program.parent.mkdir(parents=True, exist_ok=True)
    with (program.parent / "lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if is_here(env):
            return
        go = shutil.which("go", path=env.get("PATH", os.defpath))
        if go is None:
            raise TidemarkError("Go is required to build MinIO, and PATH has none", next=_GO_NEXT)
        _say(f"building MinIO {VERSION}; this takes minutes, once")
        _refuse_other_source(go, env)
        with tempfile.TemporaryDirectory(dir=program.parent) as part:
            command = ["nice", "-n", "10", go, "install", "-trimpath", f"{MODULE}@{VERSION}"]
            if subprocess.run(command, env={**env, "GOBIN": part}, check=False).returncode:
                raise TidemarkError("Go could not build MinIO, see above", next=_GO_NEXT)
            Path(part, "minio").replace(program)


def _refuse_other_source(go: str, env: Mapping[str, str]) -> None:
    command = [go, "mod", "download", "-json", f"{MODULE}@{VERSION}"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = {"Error": done.stderr.strip() or "no answer"}
    if "Error" in answer:
        sys.stderr.write(f"{answer['Error']}\n")
        raise TidemarkError("Go could not fetch MinIO, see above", next="check the network, then make setup-minio.")
    if answer["Sum"] != SUM:
        raise TidemarkError(
            f"the source of MinIO has the checksum {answer['Sum']}, not {SUM}",
            safe="nothing was built.",
            next="find out what the module proxy serves (go env GOPROXY).",
        )


def main() -> int:
    """Builds MinIO, or prints a three-line error.

    Returns:
        The exit code.
    """
    try:
        build(os.environ)
    except TidemarkError as error:
        _say(str(error))
        return error.code
    _say("MinIO is ready for tests")
    return 0


def _say(message: str) -> None:
    print(f"setup: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
