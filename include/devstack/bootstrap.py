"""Sets up a checkout: creates `.venv` and `.jars` with a Python, a Java and a network. `make setup` runs this file.

It needs only the standard library. You can kill it at any point and repeat it: it writes a stamp last, and if the stamp
is there, a second run does not use the network.
"""

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# If this runs as a file, sys.path starts with this folder, whose modules must not shadow others.
sys.path[0] = str(ROOT / "include")

from devstack import jars  # noqa: E402
from devstack.java import INSTALL, Java, find_java  # noqa: E402
from tidemark.errors import TidemarkError  # noqa: E402

OLDEST_PYTHON = (3, 11)
NEXT_UNTRIED_PYTHON = (3, 14)
STAMP = ROOT / ".venv" / "tidemark.stamp"
JRE_PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless")


def main() -> int:
    """Set up the checkout, or print a three-line error that names the missing part.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(description="Create .venv and .jars in this checkout.")
    parser.add_argument("--s3", action="store_true", help="also fetch the jars for a warehouse in a bucket")
    parser.add_argument("--image", action="store_true", help="without the packages that only development needs")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if set-up is needed")
    arguments = parser.parse_args()
    _use_supported_python()
    try:
        if arguments.check:
            return 0 if _is_ready() else 1
        with _lock(ROOT / ".jars" / "setup.lock"):
            return _set_up(for_image=arguments.image) or (_set_up_s3() if arguments.s3 else 0)
    except TidemarkError as error:
        print(f"setup: {error}", file=sys.stderr)
        return error.code


def fingerprint(root: Path) -> str:
    """Return a hash of the files and versions that the environment depends on; if it differs, set-up is needed."""
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


def _set_up(*, for_image: bool) -> int:
    java = _java()
    if _is_ready():
        return 0
    STAMP.unlink(missing_ok=True)
    python = _environment(ROOT / ".venv")
    with tempfile.TemporaryDirectory() as folder:
        _install(python, _image_lock(Path(folder)) if for_image else ROOT / "requirements.lock")
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
            "Java 17 or newer is required, and neither JAVA_HOME nor PATH has one",
            next=f"{INSTALL}    (or set JAVA_HOME), then make setup again.",
        )
    return java


def _install_jre() -> bool:
    """Install a headless JRE if this user may do so without a password."""
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
    """Create the virtual environment, or keep the existing one if it runs with this Python."""
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


def _image_lock(folder: Path) -> Path:
    """Write the part of the lock that the image needs, and return its path."""
    lock, names = (ROOT / "requirements.lock").read_text(), set((ROOT / "requirements.image").read_text().split())
    blocks = re.split(r"^(?=\S)", lock, flags=re.MULTILINE)
    path = folder / "image.lock"
    path.write_text("".join(block for block in blocks if block.partition("==")[0] in names))
    return path


def _install(python: Path, lock: Path) -> None:
    """Install exactly the locked packages, with their hashes checked, then the project as an editable package.

    Compiles bytecode at once: with PYTHONDONTWRITEBYTECODE set, as in most container images, each of many processes
    would compile its imports again.
    """
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
    """Install the locked uv with the new environment's pip."""
    installed = python.with_name("uv")
    if not installed.exists():
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirement:
            requirement.write(locked_block(lock.read_text(), "uv"))
            requirement.flush()
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            _must_run([*pip, "--require-hashes", "--no-deps", "-r", requirement.name])
    return str(installed)


def locked_block(lock: str, package: str) -> str:
    """Return the lines of one package in a lock file: its pin and its hashes."""
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
    """Continue with a supported Python, which most machines have even if their `python3` is another version."""
    if OLDEST_PYTHON <= sys.version_info[:2] < NEXT_UNTRIED_PYTHON:
        return
    for minor in (13, 12, 11):
        other = shutil.which(f"python3.{minor}")
        # The name may be a version manager's shim that only reports that no version is chosen.
        if other and _succeeds([other, "-c", ""]):
            os.execv(other, [other, *sys.argv])  # noqa: S606
    version = ".".join(map(str, sys.version_info[:2]))
    print(f"setup: Python 3.11, 3.12 or 3.13 is required, this is {version}", file=sys.stderr)
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
            next="read the message above (network, disk?), then make setup again.",
        )


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0


def _say(message: str) -> None:
    print(f"setup: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
