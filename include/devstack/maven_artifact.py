"""One file of Maven Central, for tests: fetched with the Ivy in pyspark, and compared with a committed SHA-256 sum."""

import fcntl
import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from devstack.jars import ivy_options
from devstack.java import find_java
from tidemark.errors import TidemarkError

_IVY_FILE = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="tidemark" module="{name}"/>
  <configurations><conf name="default"/></configurations>
  <dependencies defaultconf="default->*">
    <dependency org="{organisation}" name="{name}" rev="{version}" transitive="false">
      <artifact name="{name}" type="{kind}" ext="{kind}"{classifier}/>
    </dependency>
  </dependencies>
</ivy-module>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MavenArtifact:
    """A file of Maven Central.

    Attributes:
        title: its name in messages.
        organisation, name, version: its coordinates.
        kind: the end of its name, as in `jar`.
        sha256: of its bytes.
        classifier: of a file next to the main one; empty = the main one.
        command: the target of make that fetches it, for messages.
    """

    title: str
    organisation: str
    name: str
    version: str
    kind: str
    sha256: str
    command: str
    classifier: str = ""


def cache_folder(env: Mapping[str, str], variable: str, name: str) -> Path:
    """Returns the folder that a variable names, or `name` in the user's cache, outside the source tree."""
    base = Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(env.get(variable) or base / "tidemark" / name)


def fetch_once(
    artifact: MavenArtifact,
    folder: Path,
    env: Mapping[str, str],
    is_here: Callable[[], bool],
    unpack: Callable[[Path, Path], None],
) -> None:
    """Fetches an artifact and unpacks it unless it is there; of two callers at a time, one fetches and one waits.

    You can kill this at any point and repeat it: renaming the folder to its final name is the last step.

    Args:
        artifact: the file.
        folder: the folder to unpack it to.
        env: the environment, which may name proxies.
        is_here: whether `folder` is complete.
        unpack: unpacks the file into a new folder.

    Raises:
        TidemarkError: there is no Java, the file could not be fetched, or it has another checksum.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if is_here():
            return
        say(f"fetching {artifact.title}, once")
        with tempfile.TemporaryDirectory(dir=folder.parent) as part:
            file = _fetch(artifact, Path(part), env)
            check(artifact, file)
            unpack(file, Path(part, "unpacked"))
            Path(part, "unpacked").rename(folder)


def check(artifact: MavenArtifact, file: Path) -> None:
    """Compares a file with the committed sum.

    Raises:
        TidemarkError: the sum differs.
    """
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != artifact.sha256:
        raise TidemarkError(
            f"{artifact.title} has the SHA-256 sum {found}, not {artifact.sha256}",
            safe="nothing was unpacked.",
            next="find out what your mirror of Maven Central serves.",
        )


def say(message: str) -> None:
    """Prints a line of set-up."""
    print(f"setup: {message}", file=sys.stderr, flush=True)


def _fetch(artifact: MavenArtifact, part: Path, env: Mapping[str, str]) -> Path:
    java = find_java(env)
    if java is None:
        raise TidemarkError(
            f"Java 17 is required to fetch {artifact.title}", next=f"install Java, then {artifact.command}."
        )
    classifier = f' m:classifier="{artifact.classifier}"' if artifact.classifier else ""
    text = _IVY_FILE.format(
        organisation=artifact.organisation,
        name=artifact.name,
        version=artifact.version,
        kind=artifact.kind,
        classifier=classifier,
    )
    (part / "ivy.xml").write_text(text)
    launcher, settings = ivy_options(part, env)
    ivy = sorted(Path(sys.prefix).glob("lib/python*/site-packages/pyspark/jars/ivy-*.jar"))[-1]
    command = [str(java.executable), *launcher, f"-Divy.default.ivy.user.dir={part / 'ivy'}", "-cp", str(ivy)]
    command += ["org.apache.ivy.Main", "-warn", *settings, "-ivy", str(part / "ivy.xml"), "-types", artifact.kind]
    command += ["-retrieve", f"{part}/[artifact]-[revision].[ext]"]
    done = subprocess.run(command, env=dict(env), capture_output=True, text=True, check=False)
    found = list(part.glob(f"{artifact.name}-*.{artifact.kind}"))
    if done.returncode or not found:
        sys.stderr.write(done.stdout[-2000:] + done.stderr[-2000:])
        raise TidemarkError(f"Ivy could not fetch {artifact.title}, see above", next="check the network, then repeat.")
    return found[0]
