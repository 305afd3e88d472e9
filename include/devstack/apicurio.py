"""`make setup-registry`: fetches Apicurio, a schema registry, for tests; no other part of the project needs it.

The Ivy in pyspark fetches the archive from Maven Central, or from the mirror in your Maven settings, into a cache
outside the source tree. You can kill this at any point and repeat it: renaming the folder to its final name is the last
step.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from devstack.jars import ivy_options
from devstack.java import find_java
from tidemark.errors import TidemarkError

VERSION = "2.6.13.Final"
"""The last line that runs on Java 17."""
SHA256 = "3cda1b34aa020fb4ac4dd6a66018d757e81e437f97e20a1f92d366b70091c6ba"
VARIABLE = "TIDEMARK_TEST_APICURIO"
"""The environment variable that names another folder for the program."""
MISSING = "Apicurio is not here: make setup-registry"
"""Why its tests are skipped; as an instruction."""
RUNNER = f"apicurio-registry-app-{VERSION}-runner.jar"
_IVY_FILE = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="tidemark" module="apicurio"/>
  <configurations><conf name="default"/></configurations>
  <dependencies defaultconf="default->*">
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{VERSION}" transitive="false">
      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


def find_folder(env: Mapping[str, str]) -> Path:
    """Returns the folder of the program, whether or not it exists."""
    base = Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(env.get(VARIABLE) or base / "tidemark" / f"apicurio-{VERSION}")


def is_here(env: Mapping[str, str]) -> bool:
    """Whether Apicurio has been fetched."""
    return (find_folder(env) / RUNNER).is_file()


def fetch(env: Mapping[str, str]) -> None:
    """Fetches Apicurio unless it is there; of two callers at a time, one fetches and one waits.

    Raises:
        TidemarkError: there is no Java, the archive could not be fetched, or it has another checksum.
    """
    folder = find_folder(env)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "apicurio.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if is_here(env):
            return
        _say(f"fetching Apicurio {VERSION}, 142 MB, once")
        with tempfile.TemporaryDirectory(dir=folder.parent) as part:
            archive = _downloaded(Path(part), env)
            unpack(archive, Path(part, "program"))
            Path(part, "program").rename(folder)


def unpack(archive: Path, folder: Path) -> None:
    """Verifies an archive and unpacks it into a new folder.

    Raises:
        TidemarkError: the checksum differs; nothing was unpacked.
    """
    with archive.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != SHA256:
        raise TidemarkError(
            f"the archive of Apicurio has the SHA-256 sum {found}, not {SHA256}",
            safe="nothing was unpacked.",
            next="find out what your mirror of Maven Central serves.",
        )
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")


def _downloaded(part: Path, env: Mapping[str, str]) -> Path:
    java = find_java(env)
    if java is None:
        raise TidemarkError("Java 17 is required to fetch Apicurio", next="install Java, then make setup-registry.")
    (part / "ivy.xml").write_text(_IVY_FILE)
    launcher, settings = ivy_options(part, env)
    ivy = sorted(Path(sys.prefix).glob("lib/python*/site-packages/pyspark/jars/ivy-*.jar"))[-1]
    command = [str(java.executable), *launcher, f"-Divy.default.ivy.user.dir={part / 'ivy'}", "-cp", str(ivy)]
    command += ["org.apache.ivy.Main", "-warn", *settings, "-ivy", str(part / "ivy.xml"), "-types", "tar.gz"]
    command += ["-retrieve", f"{part}/[artifact]-[revision].[ext]"]
    done = subprocess.run(command, env=dict(env), capture_output=True, text=True, check=False)
    found = list(part.glob("apicurio-registry-app-*.tar.gz"))
    if done.returncode or not found:
        sys.stderr.write(done.stdout[-2000:] + done.stderr[-2000:])
        raise TidemarkError("Ivy could not fetch Apicurio, see above", next="check the network, then repeat.")
    return found[0]


def main() -> int:
    """Fetches Apicurio, or prints a three-line error.

    Returns:
        The exit code.
    """
    try:
        fetch(os.environ)
    except TidemarkError as error:
        _say(str(error))
        return error.code
    _say("Apicurio is ready for tests")
    return 0


def _say(message: str) -> None:
    print(f"setup: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
