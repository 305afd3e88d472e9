"""Jars: resolved by the Ivy inside pyspark, then held against a committed list of SHA-256 sums.

Standard library only, because set-up runs it before anything is installed. Profiles in folders of their own: the
broker's jars must never reach Spark's class path, and those for S3 are fetched only when somebody asks for them.
"""

import hashlib
import os
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree  # noqa: S405
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tidemark.errors import TidemarkError

PROFILES = ("kafka", "spark")
S3_PROFILES = ("s3",)
"""What a Spark needs besides for a warehouse in a bucket."""
LISTS = Path(__file__).parent / "jars"
SUMS = LISTS / "jars.sha256"


@dataclass(frozen=True, slots=True, kw_only=True)
class JarProblem:
    """One jar that is not what the list says."""

    jar: str
    complaint: str

    def __str__(self) -> str:
        return f"{self.jar}: {self.complaint}"


def expected_sums(sums: Path = SUMS, profiles: Sequence[str] = PROFILES) -> dict[str, str]:
    """The committed list of some profiles: `profile/file.jar` to its SHA-256."""
    pairs = (line.split(maxsplit=1) for line in sums.read_text().splitlines() if line.strip())
    return {name.strip(): digest for digest, name in pairs if name.partition("/")[0] in profiles}


def find_problems(folder: Path, sums: Path = SUMS, profiles: Sequence[str] = PROFILES) -> list[JarProblem]:
    """Compare a jars folder with the list.

    Args:
        folder: holds one sub-folder per profile.
        sums: the list to compare with.
        profiles: those to compare.

    Returns:
        Every missing, altered or unexpected jar, by name; empty when all is well.
    """
    expected = expected_sums(sums, profiles)
    present = {
        path.relative_to(folder).as_posix(): path
        for profile in profiles
        for path in (folder / profile).glob("*")
        if path.is_file()
    }
    problems = [JarProblem(jar=name, complaint="missing") for name in expected.keys() - present.keys()]
    listed = {name.partition("/")[0] for name in expected}
    problems += [JarProblem(jar=profile, complaint="the list has none of it") for profile in set(profiles) - listed]
    for name, path in present.items():
        if name not in expected:
            problems.append(JarProblem(jar=name, complaint="not in the list"))
        elif _digest(path) != expected[name]:
            problems.append(JarProblem(jar=name, complaint="wrong SHA-256 sum"))
    return sorted(problems, key=lambda problem: problem.jar)


def quarantine(folder: Path, problems: list[JarProblem]) -> Path:
    """Move what is wrong out of the class path, so that nothing runs it by accident.

    Args:
        folder: the jars folder.
        problems: what `find_problems` found in it.

    Returns:
        The folder that now holds the wrong files.
    """
    away = folder / "quarantine"
    away.mkdir(parents=True, exist_ok=True)
    for problem in problems:
        path = folder / problem.jar
        if path.exists():
            path.replace(away / problem.jar.replace("/", "-"))
    return away


def check(folder: Path, sums: Path = SUMS, profiles: Sequence[str] = PROFILES) -> None:
    """Stop at the first jar that is not what the list says, after moving it out of the way.

    Raises:
        TidemarkError: naming every such file.
    """
    problems = find_problems(folder, sums, profiles)
    if not problems:
        return
    away = quarantine(folder, problems)
    named = "; ".join(str(problem) for problem in problems)
    raise TidemarkError(
        f"jars are not what the committed list says: {named}",
        safe=f"nothing was started; wrong files are in {away.name}/ beside the jars.",
        next="make setup, which fetches them again; if a sum is wrong twice, do not use that source.",
    )


def fetch(folder: Path, java: Path, ivy: Path, env: Mapping[str, str], profiles: Sequence[str] = PROFILES) -> None:
    """Resolve profiles side by side into fresh folders, and check them.

    Args:
        folder: where the profiles' folders go; what is there is replaced.
        java: the launcher to run Ivy with.
        ivy: the Ivy jar of the pyspark wheel.
        env: the environment, for proxies.
        profiles: which.

    Raises:
        TidemarkError: Ivy could not resolve a profile, or a jar has a wrong sum.
    """
    folder.mkdir(parents=True, exist_ok=True)
    launcher = (str(java), *_proxy_options(env))
    settings = _write_settings(folder, Path(env.get("HOME", os.path.expanduser("~"))))
    running = {}
    for profile in profiles:
        shutil.rmtree(folder / profile, ignore_errors=True)
        with (folder / f"{profile}.log").open("wb") as log:
            # A cache per checkout and profile: Ivy's cache has no lock, and two checkouts may be set up at once.
            cache = f"-Divy.default.ivy.user.dir={folder / 'ivy' / profile}"
            command = [*launcher, cache, "-cp", str(ivy), "org.apache.ivy.Main", "-warn", *settings]
            command += _ivy_arguments(profile, folder)
            running[profile] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=dict(env))
    failed = [profile for profile, process in running.items() if process.wait() != 0]
    if failed:
        raise TidemarkError(
            f"Ivy could not resolve the jars of {' and '.join(failed)}",
            next=f"look at the end of {folder.name}/{failed[0]}.log (network, proxy?), then make setup again.",
        )
    check(folder, profiles=profiles)
    shutil.rmtree(folder / "ivy", ignore_errors=True)


def _ivy_arguments(profile: str, folder: Path) -> list[str]:
    pattern = f"{folder}/{profile}/[artifact]-[revision].[ext]"
    return ["-ivy", str(LISTS / f"{profile}.xml"), "-retrieve", pattern, "-types", "jar", "bundle"]


def _proxy_options(env: Mapping[str, str]) -> tuple[str, ...]:
    """Java does not read the usual proxy variables."""
    options: list[str] = []
    for scheme in ("http", "https"):
        value = env.get(f"{scheme}_proxy") or env.get(f"{scheme.upper()}_PROXY")
        proxy = urlsplit(value) if value else None
        if proxy and proxy.hostname:
            options.append(f"-D{scheme}.proxyHost={proxy.hostname}")
            options.append(f"-D{scheme}.proxyPort={proxy.port or 80}")
    return tuple(options)


def _write_settings(folder: Path, user_home: Path) -> tuple[str, ...]:
    """Ivy settings for the mirror in the user's own Maven settings; without one, Ivy's built-in resolver serves."""
    mirror = _maven_mirror(user_home / ".m2" / "settings.xml")
    if mirror is None:
        return ()
    root = ElementTree.Element("ivysettings")
    ElementTree.SubElement(root, "settings", {"defaultResolver": "mirror"})
    resolvers = ElementTree.SubElement(root, "resolvers")
    ElementTree.SubElement(resolvers, "ibiblio", {"name": "mirror", "m2compatible": "true", "root": mirror})
    settings = folder / "ivy-settings.xml"
    ElementTree.ElementTree(root).write(settings)
    return ("-settings", str(settings))


def _maven_mirror(maven_settings: Path) -> str | None:
    if not maven_settings.is_file():
        return None
    for mirror in ElementTree.parse(maven_settings).iterfind(".//{*}mirror"):  # noqa: S314
        if (mirror.findtext("{*}blocked") or "false") != "true":
            return mirror.findtext("{*}url")
    return None


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
