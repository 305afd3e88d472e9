"""Checks of the embedded stack: Java, jars, locked packages, disk space, free ports and healthy services."""

import os
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from devstack import control, jars
from devstack.addresses import DEFAULT_PORTS, is_free, recorded_addresses
from devstack.airflow_services import health_page
from devstack.java import INSTALL, NEWEST_TRIED, OLDEST, find_java
from devstack.services import GROUPS
from tidemark.cli.doctor import Finding, existing_folder, kafka_answers, packages_agree, spark_answers
from tidemark.embedded_services import recorded_service
from tidemark.model.core.names import S3Url
from tidemark.settings import Settings

GIB = 1024**3
DISK_NEEDED = 2 * GIB
MEMORY_NEEDED = 6 * GIB
LOCKED = ("apache-airflow", "pyspark", "delta-spark", "deltalake", "great-expectations", "duckdb")


def _java(_: Settings) -> Finding:
    java = find_java(os.environ)
    if java is None:
        return Finding(check="java", verdict="missing", detail=f"no Java {OLDEST} or newer", remedy=INSTALL)
    detail = f"{java.major} in {java.home}"
    if java.major > NEWEST_TRIED:
        return Finding(check="java", verdict="note", detail=f"{detail}, newer than Spark supports", remedy=INSTALL)
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
    together = packages_agree(settings)
    if together.verdict != "ok":
        return together
    return Finding(check="packages", verdict="ok", detail=f"{len(LOCKED)} as locked")


def _locked_versions(lock: Path) -> dict[str, str]:
    lines = lock.read_text().splitlines() if lock.is_file() else []
    pins = (line.split()[0].partition("==") for line in lines if "==" in line and not line.startswith((" ", "#")))
    return {name: pinned for name, _, pinned in pins}


def _disk(settings: Settings) -> Finding:
    free = shutil.disk_usage(existing_folder(settings.home)).free
    detail = f"{free / GIB:.1f} GiB free"
    if free < DISK_NEEDED:
        return Finding(check="disk", verdict="missing", detail=detail, remedy=f"free {DISK_NEEDED // GIB} GiB")
    return Finding(check="disk", verdict="ok", detail=detail)


def _memory(_: Settings) -> Finding:
    total = psutil.virtual_memory().total
    detail = f"{total / GIB:.1f} GiB"
    if total < MEMORY_NEEDED:
        remedy = "set TIDEMARK_SPARK_DRIVER_MEMORY=1g, or start fewer services: tidemark up --only kafka,spark"
        return Finding(check="memory", verdict="note", detail=detail, remedy=remedy)
    return Finding(check="memory", verdict="ok", detail=detail)


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
    return Finding(check="ports", verdict="ok", detail="free, in use by this stack, or chosen by the next up")


def _kafka(settings: Settings) -> Finding:
    if settings.kafka_bootstrap is None and _is_stopped(settings, "kafka"):
        return _stopped("kafka")
    return kafka_answers(settings)


def _spark(settings: Settings) -> Finding:
    if settings.spark is None and _is_stopped(settings, "spark"):
        return _stopped("spark")
    return spark_answers(settings)


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


CHECKS = {
    "java": _java,
    "jars": _jars,
    "packages": _packages,
    "disk": _disk,
    "memory": _memory,
    "ports": _ports,
    "kafka": _kafka,
    "spark": _spark,
    "airflow": _airflow,
}
"""Checks by name; those of packages, Kafka and Spark replace Tidemark's checks, and call them."""
