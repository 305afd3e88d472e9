"""Examines everything that the stack needs before work starts, and says for each fault what to do.

A check never changes anything, except a file of its own in the warehouse, which it removes again.
"""

import os
import shutil
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import psutil

from devstack import control, jars
from devstack.addresses import DEFAULT_PORTS, accepts, is_free, recorded_addresses
from devstack.airflow_services import health_page
from devstack.broker import broker_answers
from devstack.java import INSTALL, NEWEST_TRIED, OLDEST, find_java
from devstack.services import GROUPS
from tidemark.errors import TidemarkError, UsageError
from tidemark.model.core.bucket_url import S3Url
from tidemark.redaction import redacted
from tidemark.settings import Settings, recorded_service

Verdict = Literal["ok", "note", "missing"]

GIB = 1024**3
DISK_NEEDED = 2 * GIB
MEMORY_NEEDED = 6 * GIB
LOCKED = ("apache-airflow", "pyspark", "pyspark-client", "delta-spark", "deltalake", "great-expectations", "duckdb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check.

    Attributes:
        check: what was looked at.
        verdict: `missing` makes the command fail; a `note` does not.
        detail: what was found.
        remedy: what to type; None when all is well.
    """

    check: str
    verdict: Verdict
    detail: str
    remedy: str | None = None


def examine(settings: Settings) -> list[Finding]:
    """Run every check; a check that itself breaks is a finding, not a crash.

    Args:
        settings: what is configured.

    Returns:
        One finding per check, in the order in which things are needed.
    """
    checks: dict[str, Callable[[Settings], Finding]] = {
        "python": _python,
        "java": _java,
        "jars": _jars,
        "packages": _packages,
        "disk": _disk,
        "memory": _memory,
        "warehouse": _warehouse,
        "ports": _ports,
        "kafka": _kafka,
        "spark": _spark,
        "airflow": _airflow,
    }
    return [_guarded(name, check, settings) for name, check in checks.items()]


def _guarded(name: str, check: Callable[[Settings], Finding], settings: Settings) -> Finding:
    try:
        return check(settings)
    except (OSError, ValueError, TidemarkError) as error:
        return Finding(
            check=name, verdict="missing", detail=str(error).splitlines()[0], remedy="tidemark logs; make setup"
        )


def _python(_: Settings) -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    if (3, 11) <= sys.version_info[:2] < (3, 14):
        return Finding(check="python", verdict="ok", detail=found)
    return Finding(
        check="python", verdict="missing", detail=f"{found}, 3.11 to 3.13 is needed", remedy="rm -r .venv; make setup"
    )


def _java(_: Settings) -> Finding:
    java = find_java(os.environ)
    if java is None:
        return Finding(check="java", verdict="missing", detail=f"no Java {OLDEST} or newer", remedy=INSTALL)
    detail = f"{java.major} in {java.home}"
    if java.major > NEWEST_TRIED:
        return Finding(
            check="java", verdict="note", detail=f"{detail}, newer than Spark is released for", remedy=INSTALL
        )
    return Finding(check="java", verdict="ok", detail=detail)


def _jars(settings: Settings) -> Finding:
    s3 = jars.S3_PROFILES if isinstance(settings.warehouse, S3Url) else ()
    problems = jars.find_problems(settings.jar_folder, profiles=(*jars.PROFILES, *s3))
    if problems:
        named = "; ".join(map(str, problems[:3])) + (f"; {len(problems) - 3} more" if len(problems) > 3 else "")
        return Finding(check="jars", verdict="missing", detail=named, remedy="make setup-s3" if s3 else "make setup")
    count = len(jars.expected_sums(profiles=(*jars.PROFILES, *s3)))
    return Finding(check="jars", verdict="ok", detail=f"{count} jars with the right SHA-256")


def _packages(settings: Settings) -> Finding:
    locked = _locked_versions(settings.root / "requirements.lock")
    wrong = []
    for package in LOCKED:
        try:
            installed = version(package)
        except PackageNotFoundError:
            installed = "nothing"
        if installed != locked.get(package, installed):
            wrong.append(f"{package} {installed} instead of {locked[package]}")
    if wrong:
        return Finding(check="packages", verdict="missing", detail="; ".join(wrong), remedy="rm -r .venv; make setup")
    if version("pyspark") != version("pyspark-client"):
        detail = f"pyspark {version('pyspark')} and pyspark-client {version('pyspark-client')} share one folder"
        return Finding(check="packages", verdict="missing", detail=detail, remedy="rm -r .venv; make setup")
    return Finding(check="packages", verdict="ok", detail=f"{len(LOCKED)} as locked")


def _locked_versions(lock: Path) -> dict[str, str]:
    lines = lock.read_text().splitlines() if lock.is_file() else []
    pins = (line.split()[0].partition("==") for line in lines if "==" in line and not line.startswith((" ", "#")))
    return {name: pinned for name, _, pinned in pins}


def _disk(settings: Settings) -> Finding:
    free = shutil.disk_usage(_existing(settings.home)).free
    detail = f"{free / GIB:.1f} GiB free"
    if free < DISK_NEEDED:
        return Finding(check="disk", verdict="missing", detail=detail, remedy=f"free {DISK_NEEDED // GIB} GiB")
    return Finding(check="disk", verdict="ok", detail=detail)


def _memory(_: Settings) -> Finding:
    total = psutil.virtual_memory().total
    detail = f"{total / GIB:.1f} GiB"
    if total < MEMORY_NEEDED:
        remedy = "set TIDEMARK_SPARK_DRIVER_MEMORY=1g, or start less: tidemark up --only kafka,spark"
        return Finding(check="memory", verdict="note", detail=detail, remedy=remedy)
    return Finding(check="memory", verdict="ok", detail=detail)


def _warehouse(settings: Settings) -> Finding:
    """The commit point needs a name that is given once: on a disk by a link and a sync, in a bucket by a put."""
    if isinstance(settings.warehouse, S3Url):
        return _bucket(settings, settings.warehouse)
    return _folder(settings.warehouse)


def _bucket(settings: Settings, url: S3Url) -> Finding:
    from tidemark.storage.s3_store import refuse_racing_winners
    from tidemark.system import random_id
    from tidemark.warehouse_location import open_bucket_folder

    try:
        with open_bucket_folder(settings, url) as folder:
            refuse_racing_winners(folder, random_id)
    except TidemarkError as error:
        return Finding(check="warehouse", verdict="missing", detail=error.what, remedy=error.next)
    return Finding(check="warehouse", verdict="ok", detail=f"{url} lets one writer win each name")


def _folder(warehouse: Path) -> Finding:
    folder = _existing(warehouse)
    probe = folder / f".tidemark-doctor-{uuid.uuid4().hex}"
    link = probe.with_suffix(".link")
    try:
        with probe.open("wb") as stream:
            stream.write(b"doctor")
            stream.flush()
            os.fsync(stream.fileno())
        os.link(probe, link)
        refused = False
        try:
            os.link(probe, link)
        except FileExistsError:
            refused = True
    except OSError as error:
        detail = f"{folder}: {error.strerror}"
        remedy = "set TIDEMARK_WAREHOUSE to a folder that you may write, on a disk with hard links"
        return Finding(check="warehouse", verdict="missing", detail=detail, remedy=remedy)
    finally:
        for path in (link, probe):
            with suppress(FileNotFoundError):  # whatever was not made need not be removed
                path.unlink()
    if not refused:
        detail = f"{folder}: a hard link replaced an existing name"
        return Finding(check="warehouse", verdict="missing", detail=detail, remedy="set TIDEMARK_WAREHOUSE elsewhere")
    return Finding(check="warehouse", verdict="ok", detail=f"{warehouse} takes hard links and syncs")


def _ports(settings: Settings) -> Finding:
    running = {group for group in GROUPS if recorded_service(settings.home, group)}
    taken = [
        f"{getattr(settings, field)} (TIDEMARK_{field.upper()})"
        for field in DEFAULT_PORTS
        if getattr(settings, field) and field.split("_")[0] not in running and not is_free(getattr(settings, field))
    ]
    if taken:
        remedy = "free them, or set the variables to other ports (0 lets Tidemark choose)"
        return Finding(check="ports", verdict="missing", detail=f"taken: {', '.join(taken)}", remedy=remedy)
    return Finding(check="ports", verdict="ok", detail="free, ours, or chosen at the next up")


def _kafka(settings: Settings) -> Finding:
    if settings.kafka_bootstrap is None and _is_stopped(settings, "kafka"):
        return _stopped("kafka")
    try:
        address, options = settings.kafka_address, settings.kafka_client_options
    except UsageError as error:
        return Finding(check="kafka", verdict="missing", detail=error.what, remedy=error.next)
    if broker_answers(address, options):
        return Finding(check="kafka", verdict="ok", detail=f"{address} answers")
    remedy = "start it, or correct the TIDEMARK_KAFKA_* settings: address, protocol, user, password, CA"
    if settings.kafka_bootstrap is None:
        remedy = "tidemark logs kafka; tidemark up"
    return Finding(check="kafka", verdict="missing", detail=f"{address} does not answer", remedy=remedy)


def _spark(settings: Settings) -> Finding:
    if settings.spark is None and _is_stopped(settings, "spark"):
        return _stopped("spark")
    address, shown = settings.spark_address, redacted(settings.spark_address)
    host, _, port = address.removeprefix("sc://").partition(";")[0].partition("/")[0].partition(":")
    if not address.startswith("sc://"):
        return Finding(check="spark", verdict="ok", detail=f"{shown}, started by each checkpoint")
    if accepts(int(port or 15002), host):
        return Finding(check="spark", verdict="ok", detail=f"{shown} answers")
    remedy = "tidemark logs spark; tidemark up" if settings.spark is None else "start it, or correct TIDEMARK_SPARK"
    return Finding(check="spark", verdict="missing", detail=f"{shown} does not answer", remedy=remedy)


def _airflow(settings: Settings) -> Finding:
    if _is_stopped(settings, "airflow"):
        return _stopped("airflow")
    addresses = recorded_addresses(settings.home)
    page = health_page(addresses.airflow_port) if addresses else None
    if page is None:
        detail, unwell = "the API server does not answer", ["api-server"]
    else:
        unwell = sorted(name for name, part in page.items() if part and part.get("status") not in ("healthy", None))
        detail = f"not healthy: {', '.join(unwell)}"
    if unwell:
        remedy = "tidemark down --only airflow; tidemark up; tidemark logs airflow-api-server"
        return Finding(check="airflow", verdict="missing", detail=detail, remedy=remedy)
    return Finding(check="airflow", verdict="ok", detail="all components are healthy")


def _is_stopped(settings: Settings, group: str) -> bool:
    return all(one.state == "stopped" for one in control.status(settings) if one.group == group)


def _stopped(group: str) -> Finding:
    return Finding(check=group, verdict="note", detail="stopped", remedy=f"tidemark up --only {group}")


def _existing(path: Path) -> Path:
    """The folder itself, or the nearest one above it that exists."""
    return next(folder for folder in (path, *path.parents) if folder.is_dir())
