"""`make setup-axe`: fetches axe-core, with which the browser tests check that the pages are accessible.

The Ivy in pyspark fetches the jar in which Deque ships the script from Maven Central, or from the mirror in your Maven
settings, into a cache outside the source tree. You can kill this at any point and repeat it.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

from devstack.maven_artifact import MavenArtifact, cache_folder, fetch_once, say
from tidemark.errors import TidemarkError

VERSION = "4.11.3"
VARIABLE = "TIDEMARK_TEST_AXE"
"""The environment variable that names another folder for the script."""
MISSING = "axe-core is not here: make setup-axe"
"""Why its tests are skipped; as an instruction."""
SCRIPT = "axe.min.js"
ARTIFACT = MavenArtifact(
    title=f"axe-core {VERSION}",
    organisation="com.deque.html.axe-core",
    name="playwright",
    version=VERSION,
    kind="jar",
    sha256="d1826017531758d02c08c0e3ae796eac7441b51924487207429da89a5eed6ddf",
    command="make setup-axe",
)


def find_script(env: Mapping[str, str]) -> Path:
    """Returns the file of the script, whether or not it exists."""
    return cache_folder(env, VARIABLE, f"axe-core-{VERSION}") / SCRIPT


def is_here(env: Mapping[str, str]) -> bool:
    """Whether axe-core has been fetched."""
    return find_script(env).is_file()


def unpack(jar: Path, folder: Path) -> None:
    """Writes the script of the jar into a new folder; it names its licence in its first lines."""
    folder.mkdir()
    with ZipFile(jar) as packed:
        (folder / SCRIPT).write_bytes(packed.read(SCRIPT))


def main() -> int:
    """Fetches axe-core, or prints a three-line error.

    Returns:
        The exit code.
    """
    folder = find_script(os.environ).parent
    try:
        fetch_once(ARTIFACT, folder, os.environ, lambda: is_here(os.environ), unpack)
    except TidemarkError as error:
        say(str(error))
        return error.code
    say("axe-core is ready for tests")
    return 0


if __name__ == "__main__":
    sys.exit(main())
