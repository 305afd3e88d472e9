"""`make setup-registry`: fetches Apicurio, a schema registry, for tests; no other part of the project needs it.

The Ivy in pyspark fetches the archive, 142 MB, from Maven Central, or from the mirror in your Maven settings, into a
cache outside the source tree. You can kill this at any point and repeat it.
"""

import os
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

from devstack.maven_artifact import MavenArtifact, cache_folder, fetch_once, say
from tidemark.errors import TidemarkError

VERSION = "2.6.13.Final"
"""The last line that runs on Java 17."""
VARIABLE = "TIDEMARK_TEST_APICURIO"
"""The environment variable that names another folder for the program."""
MISSING = "Apicurio is not here: make setup-registry"
"""Why its tests are skipped; as an instruction."""
RUNNER = f"apicurio-registry-app-{VERSION}-runner.jar"
ARTIFACT = MavenArtifact(
    title=f"Apicurio {VERSION} (142 MB)",
    organisation="io.apicurio",
    name="apicurio-registry-app",
    version=VERSION,
    kind="tar.gz",
    classifier="all",
    sha256="3cda1b34aa020fb4ac4dd6a66018d757e81e437f97e20a1f92d366b70091c6ba",
    command="make setup-registry",
)


def find_folder(env: Mapping[str, str]) -> Path:
    """Returns the folder of the program, whether or not it exists."""
    return cache_folder(env, VARIABLE, f"apicurio-{VERSION}")


def is_here(env: Mapping[str, str]) -> bool:
    """Whether Apicurio has been fetched."""
    return (find_folder(env) / RUNNER).is_file()


def unpack(archive: Path, folder: Path) -> None:
    """Unpacks the archive into a new folder."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")


def main() -> int:
    """Fetches Apicurio, or prints a three-line error.

    Returns:
        The exit code.
    """
    try:
        fetch_once(ARTIFACT, find_folder(os.environ), os.environ, lambda: is_here(os.environ), unpack)
    except TidemarkError as error:
        say(str(error))
        return error.code
    say("Apicurio is ready for tests")
    return 0


if __name__ == "__main__":
    sys.exit(main())
