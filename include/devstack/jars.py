"""Jars: resolved with the Ivy in pyspark, then compared with a committed list of SHA-256 sums.

This module needs only the standard library, because set-up runs it before any package is installed. Each profile has
its own folder: the broker's jars must never be on Spark's class path, and the jars for S3 are fetched only on request.
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
"""The additional jars that Spark needs for a warehouse in a bucket."""
LISTS = Path(__file__).parent / "jars"
SUMS = LISTS / "jars.sha256"


@dataclass(frozen=True, slots=True, kw_only=True)
class JarProblem:
    """One jar that differs from the list."""

    jar: str
    complaint: str

    def __str__(self) -> str:
        return f"{self.jar}: {self.complaint}"


def expected_sums(sums: Path = SUMS, profiles: Sequence[str] = PROFILES) -> dict[str, str]:
    """Return the committed list of some profiles: `profile/file.jar` to its SHA-256."""
    pairs = (line.split(maxsplit=1) for line in sums.read_text().splitlines() if line.strip())
    return {name.strip(): digest for digest, name in pairs if name.partition("/")[0] in profiles}


def find_problems(folder: Path, sums: Path = SUMS, profiles: Sequence[str] = PROFILES) -> list[JarProblem]:
    """Compare a jars folder with the list.

    Args:
        folder: the folder with one sub-folder per profile.
        sums: the list to compare with.
        profiles: the profiles to compare.

    Returns:
        Every missing, altered or unexpected jar, sorted by name; empty if all jars are right.
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
    problems += [JarProblem(jar=profile, complaint="the list has no jars for it") for profile in set(profiles) - listed]
    for name, path in present.items():
        if name not in expected:
            problems.append(JarProblem(jar=name, complaint="not in the list"))
        elif _digest(path) != expected[name]:
            problems.append(JarProblem(jar=name, complaint="wrong SHA-256 sum"))
    return sorted(problems, key=lambda problem: problem.jar)


def quarantine(folder: Path, problems: list[JarProblem]) -> Path:
    """Move wrong files out of the class path, so that they cannot run by accident.

    Args:
        folder: the jars folder.
        problems: the result of `find_problems`.

    Returns:
        The folder to which the wrong files were moved.
    """
    away = folder / "quarantine"
    away.mkdir(parents=True, exist_ok=True)
    for problem in problems:
        path = folder / problem.jar
        if path.exists():
            path.replace(away / problem.jar.replace("/", "-"))
    return away


def check(folder: Path, sums: Path = SUMS, profiles: Sequence[str] = PROFILES) -> None:
    """Move jars that differ from the list out of the way, and raise an error if there are any.

    Raises:
        TidemarkError: jars differ; the message names each file.
    """
    problems = find_problems(folder, sums, profiles)
    if not problems:
        return
    away = quarantine(folder, problems)
    named = "; ".join(str(problem) for problem in problems)
    raise TidemarkError(
        f"jars differ from the committed list: {named}",
        safe=f"nothing was started; wrong files are in {away.name}/ next to the jars.",
        next="make setup, which fetches them again; if a sum is wrong again, do not use that source.",
    )


def fetch(folder: Path, java: Path, ivy: Path, env: Mapping[str, str], profiles: Sequence[str] = PROFILES) -> None:
    """Resolve profiles in parallel into new folders, and check them.

    Args:
        folder: the parent of the profiles' folders, which are replaced.
        java: the launcher for Ivy.
        ivy: the Ivy jar of the pyspark wheel.
        env: the environment, which may name proxies.
        profiles: the profiles to resolve.

    Raises:
        TidemarkError: Ivy could not resolve a profile, or a jar has a wrong sum.
    """
    folder.mkdir(parents=True, exist_ok=True)
    options, settings = ivy_options(folder, env)
    launcher = (str(java), *options)
    running = {}
    for profile in profiles:
        shutil.rmtree(folder / profile, ignore_errors=True)
        with (folder / f"{profile}.log").open("wb") as log:
            # One cache per checkout and profile, because Ivy's cache has no lock, and set-ups may run in parallel.
            cache = f"-Divy.default.ivy.user.dir={folder / 'ivy' / profile}"
            command = [*launcher, cache, "-cp", str(ivy), "org.apache.ivy.Main", "-warn", *settings]
            command += _ivy_arguments(profile, folder)
            running[profile] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=dict(env))
    failed = [profile for profile, process in running.items() if process.wait() != 0]
    if failed:
        raise TidemarkError(
            f"Ivy could not resolve the jars of {' and '.join(failed)}",
            next=f"read the end of {folder.name}/{failed[0]}.log (network, proxy?), then make setup again.",
        )
    check(folder, profiles=profiles)
    shutil.rmtree(folder / "ivy", ignore_errors=True)


def ivy_options(folder: Path, env: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return options of Java and arguments of Ivy for the proxies and the Maven mirror of this machine.

    Args:
        folder: where to write Ivy's settings.
        env: the environment, which may name proxies.
    """
    return _proxy_options(env), _write_settings(folder, Path(env.get("HOME", os.path.expanduser("~"))))


def _ivy_arguments(profile: str, folder: Path) -> list[str]:
    pattern = f"{folder}/{profile}/[artifact]-[revision].[ext]"
    return ["-ivy", str(LISTS / f"{profile}.xml"), "-retrieve", pattern, "-types", "jar", "bundle"]


def _proxy_options(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the proxies as Java options, because Java does not read the usual proxy variables."""
    options: list[str] = []
    for scheme in ("http", "https"):
        value = env.get(f"{scheme}_proxy") or env.get(f"{scheme.upper()}_PROXY")
        proxy = urlsplit(value) if value else None
        if proxy and proxy.hostname:
            options.append(f"-D{scheme}.proxyHost={proxy.hostname}")
            options.append(f"-D{scheme}.proxyPort={proxy.port or 80}")
    return tuple(options)


def _write_settings(folder: Path, user_home: Path) -> tuple[str, ...]:
    """Return Ivy settings for the mirror in the user's Maven settings; without a mirror, Ivy's default applies."""
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
