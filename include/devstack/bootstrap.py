"""Set-up from nothing: a Python, a Java and a network become `.venv` and `.jars`. Run as a file by `make setup`.

Standard library only. Safe to kill at any point and to repeat: the stamp, written last, tells whether all is there, and
then a second run touches no network.
"""

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Run as a file, the first entry of sys.path is this folder, whose modules must not shadow anybody's.
sys.path[0] = str(ROOT / "include")

from devstack import jars  # noqa: E402
from devstack.java import INSTALL, Java, find_java  # noqa: E402
from tidemark.errors import TidemarkError  # noqa: E402

OLDEST_PYTHON = (3, 11)
NEXT_UNTRIED_PYTHON = (3, 14)
STAMP = ROOT / ".venv" / "tidemark.stamp"
JRE_PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless")


def main() -> int:
    """Set the checkout up, or say in three lines what is missing.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(description="Create .venv and .jars in this checkout.")
    parser.add_argument("--s3", action="store_true", help="fetch the jars for a warehouse in a bucket as well")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when set-up is needed")
    arguments = parser.parse_args()
    _use_supported_python()
    try:
        if arguments.check:
            return 0 if _is_ready() else 1
        with _lock(ROOT / ".jars" / "setup.lock"):
            return _set_up() or (_set_up_s3() if arguments.s3 else 0)
    except TidemarkError as error:
        print(f"setup: {error}", file=sys.stderr)
        return error.code


def fingerprint(root: Path) -> str:
    """What the environment was made from: it is stale as soon as one of these has changed."""
    project = tomllib.loads((root / "pyproject.toml").read_text())
    installed = [project["project"], project["build-system"], project["tool"]["setuptools"]]
    made_from = [
        root / "requirements.lock",
        root / "include/devstack/pyproject.toml",
        Path(__file__),
        *sorted(jars.LISTS.glob("*")),
    ]
    digest = hashlib.sha256(f"{sys.version_info[:2]} {root} {installed}".encode())
    for path in made_from:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _set_up() -> int:
    java = _java()
    if _is_ready():
        return 0
    STAMP.unlink(missing_ok=True)
    python = _environment(ROOT / ".venv")
    _install(python)
    if jars.find_problems(ROOT / ".jars"):
        _say("fetching jars")
        jars.fetch(ROOT / ".jars", java.executable, _ivy(python), os.environ)
    partial = STAMP.with_suffix(".partial")
    partial.write_text(fingerprint(ROOT))
    partial.replace(STAMP)
    _say("ready")
    return 0


def _set_up_s3() -> int:
    folder = ROOT / ".jars"
    if jars.find_problems(folder, profiles=jars.S3_PROFILES):
        _say("fetching jars for S3")
        ivy = _ivy(ROOT / ".venv" / "bin" / "python")
        jars.fetch(folder, _java().executable, ivy, os.environ, jars.S3_PROFILES)
    _say("ready for S3")
    return 0


def _is_ready() -> bool:
    made_from = STAMP.read_text() if STAMP.is_file() else None
    return made_from == fingerprint(ROOT) and not jars.find_problems(ROOT / ".jars")


def _java() -> Java:
    java = find_java(os.environ)
    if java is None and _install_jre():
        java = find_java(os.environ)
    if java is None:
        raise TidemarkError(
            "Java 17 or newer is needed, and neither JAVA_HOME nor PATH has one",
            next=f"{INSTALL}    (or set JAVA_HOME), then make setup again.",
        )
    return java


def _install_jre() -> bool:
    """Install a headless JRE where this user may do so without being asked for a password."""
    return any(_apt_install(package) for package in JRE_PACKAGES)


def _apt_install(package: str) -> bool:
    if shutil.which("apt-get") is None:
        return False
    prefix = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if prefix and (shutil.which("sudo") is None or not _succeeds([*prefix, "true"])):
        return False
    _say(f"installing {package}")
    install = [*prefix, "apt-get", "install", "-y", "--no-install-recommends", package]
    return _succeeds(install) or (_succeeds([*prefix, "apt-get", "update"]) and _succeeds(install))


def _environment(venv: Path) -> Path:
    """Create the virtual environment, or keep the one that is there when it still runs with this Python."""
    python = venv / "bin" / "python"
    right_version = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]!r})"
    if not (python.exists() and _succeeds([str(python), "-c", right_version])):
        _say("creating .venv")
        create = [sys.executable, "-m", "venv", "--clear", str(venv)]
        if not _succeeds(create) and not (_apt_install("python3-venv") and _succeeds(create)):
            raise TidemarkError(
                "this Python cannot create a virtual environment with pip",
                next="sudo apt-get install -y python3-venv    (or use another Python), then make setup again.",
            )
    return python


def _install(python: Path) -> None:
    """Install exactly the lock, hashes checked, then the project itself as an editable package.

    Bytecode is written at once: where PYTHONDONTWRITEBYTECODE is set, as in most images of containers, each of many
    processes would compile what it imports anew.
    """
    lock = ROOT / "requirements.lock"
    uv = shutil.which("uv") or _uv_from_lock(python, lock)
    _say("installing the locked packages")
    pip = [uv, "pip"]
    options = ["--quiet", "--python", str(python)]
    hashed = ["--require-hashes", "--build-constraints", str(lock), str(lock)]
    _must_run([*pip, "sync", *options, "--compile-bytecode", *hashed])
    itself = [
        "--no-deps",
        "--no-build-isolation",
        "--editable",
        str(ROOT),
        "--editable",
        str(ROOT / "include/devstack"),
    ]
    _must_run([*pip, "install", *options, *itself])


def _uv_from_lock(python: Path, lock: Path) -> str:
    """Have the new environment's own pip install the one uv that the lock names."""
    installed = python.with_name("uv")
    if not installed.exists():
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirement:
            requirement.write(locked_block(lock.read_text(), "uv"))
            requirement.flush()
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            _must_run([*pip, "--require-hashes", "--no-deps", "-r", requirement.name])
    return str(installed)


def locked_block(lock: str, package: str) -> str:
    """The lines of one package in a lock file: its pin and its hashes."""
    block: list[str] = []
    for line in lock.splitlines():
        if block and not line.startswith(" "):
            break
        if block or line.startswith(f"{package}=="):
            block.append(line)
    return "\n".join(block) + "\n"


def _ivy(python: Path) -> Path:
    found = sorted(python.parents[1].glob("lib/python*/site-packages/pyspark/jars/ivy-*.jar"))
    if not found:
        raise TidemarkError("the installed pyspark has no Ivy", next="rm -r .venv, then make setup again.")
    return found[-1]


def _use_supported_python() -> None:
    """Go on under a supported Python; most machines whose `python3` is another one have it beside."""
    if OLDEST_PYTHON <= sys.version_info[:2] < NEXT_UNTRIED_PYTHON:
        return
    for minor in (13, 12, 11):
        other = shutil.which(f"python3.{minor}")
        # A version manager may have put a name there that only says that the version is not chosen.
        if other and _succeeds([other, "-c", ""]):
            os.execv(other, [other, *sys.argv])  # noqa: S606
    version = ".".join(map(str, sys.version_info[:2]))
    print(f"setup: Python 3.11, 3.12 or 3.13 is needed, this is {version}", file=sys.stderr)
    print("Next: sudo apt-get install -y python3.11 python3.11-venv, then make setup again.", file=sys.stderr)
    sys.exit(1)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _must_run(command: list[str]) -> None:
    if subprocess.run(command, check=False).returncode != 0:
        raise TidemarkError(
            f"{Path(command[0]).name} {command[1]} failed, see above",
            next="look at the message above (network, disk?), then make setup again.",
        )


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0


def _say(message: str) -> None:
    print(f"setup: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
