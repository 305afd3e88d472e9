"""Finds the machine's Java and its version. Needs only the standard library, because set-up runs it."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

OLDEST = 17
NEWEST_TRIED = 21
"""Spark 4.1 supports Java 17 and 21; a later version is used only if there is no other."""

PACKAGED = Path("/usr/lib/jvm")
"""The folder in which Linux packages install every Java, even those that are not on PATH."""

INSTALL = "sudo apt-get install -y openjdk-17-jre-headless"


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java that answered to `-version`."""

    home: Path
    major: int

    @property
    def executable(self) -> Path:
        """The launcher inside `home`."""
        return self.home / "bin" / "java"


def find_java(env: Mapping[str, str]) -> Java | None:
    """Return the best Java >= 17 of JAVA_HOME, PATH and the usual folder of Linux packages.

    Args:
        env: the environment to search.

    Returns:
        The first one that Spark supports, else the first one that is recent enough, else None.
    """
    usable = []
    for launcher in _launchers(env):
        major = major_version(launcher)
        if major is None or major < OLDEST:
            continue
        java = Java(home=launcher.resolve().parent.parent, major=major)
        if major <= NEWEST_TRIED:
            return java
        usable.append(java)
    return usable[0] if usable else None


def major_version(launcher: Path) -> int | None:
    """Return the major version that a `java` launcher prints, or None if it does not run."""
    try:
        answer = subprocess.run([str(launcher), "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found.group(1)) if found and answer.returncode == 0 else None


def _launchers(env: Mapping[str, str]) -> Iterator[Path]:
    seen: set[Path] = set()
    candidates = [Path(env["JAVA_HOME"]) / "bin" / "java"] if env.get("JAVA_HOME") else []
    on_path = shutil.which("java", path=env.get("PATH", os.defpath))
    if on_path:
        candidates.append(Path(on_path))
    candidates.extend(sorted(PACKAGED.glob("*/bin/java")))
    for candidate in candidates:
        if candidate.is_file() and candidate.resolve() not in seen:
            seen.add(candidate.resolve())
            yield candidate
