"""`make setup-flink`: fetches Apache Flink for the comparison; no other part of the project needs it.

The jars are in the package `apache-flink-libraries`, which pip downloads from the index configured on this machine.
They are unpacked into a cache outside the source tree, after the package is verified against the checksum below.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

VERSION = "2.3.0"
PACKAGE = f"apache-flink-libraries=={VERSION}"
SHA256 = "38ece876553286b3a285cf344c2d2038f8a7ca10da5df54d5107250386d64151"
VARIABLE = "TIDEMARK_TEST_FLINK"
"""The environment variable that names another folder for the jars."""
INSIDE = "pyflink/lib/"


def flink_jars() -> Path:
    """The folder of Flink's jars, whether or not it exists."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get(VARIABLE) or base / "tidemark" / f"flink-{VERSION}")


def is_here() -> bool:
    """Whether the jars have been fetched; renaming the folder to its final name is the last step of a fetch."""
    return flink_jars().is_dir()


def unpack(package: Path, folder: Path) -> None:
    """Verifies a package and unpacks its jars into a folder that must not exist yet.

    Raises:
        ValueError: the checksum of the package differs from `SHA256`; nothing was unpacked.
    """
    with package.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != SHA256:
        raise ValueError(f"{package.name} has the SHA-256 sum {found}, not {SHA256}: nothing was unpacked")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as part, zipfile.ZipFile(package) as archive:
        jars = Path(part, "lib")
        jars.mkdir()
        for name in archive.namelist():
            if name.startswith(INSIDE) and name.endswith(".jar"):
                (jars / Path(name).name).write_bytes(archive.read(name))
        jars.rename(folder)


def main() -> int:
    """Fetches Flink, unless it is already there."""
    if is_here():
        sys.stderr.write(f"Flink {VERSION} is here already\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="tidemark-flink-") as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
        done = subprocess.run(command, check=False)
        if done.returncode:
            sys.stderr.write(f"pip could not fetch {PACKAGE}; nothing was changed. Next: read what pip says above.\n")
            return 1
        (package,) = Path(folder).glob("*.whl")
        unpack(package, flink_jars())
    sys.stderr.write(f"Flink {VERSION} is ready for make bench\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
