"""`tidemark doctor`: checks Tidemark's requirements before work starts, and names a remedy for each fault.

The only thing a check writes is a test file in the warehouse, which it removes again. Packages that extend the command
line add their own checks with `add_checks`.
"""

import os
import socket
import sys
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import typer

from tidemark.cli.extensions import added_checks
from tidemark.cli.output import JsonFlag, note, print_json, show_rows
from tidemark.engine.session.class_archive import jars_below
from tidemark.engine.session.installation import jar_packages, spark_home
from tidemark.errors import TidemarkError, UsageError
from tidemark.model.core.names import S3Url
from tidemark.redaction import redact
from tidemark.settings import Settings, load_settings

Verdict = Literal["ok", "note", "missing"]
_PATIENCE = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check.

    Attributes:
        check: name of the check.
        verdict: `missing` makes the command fail; a `note` does not.
        detail: what the check found.
        remedy: the command to type; None if all is well.
    """

    check: str
    verdict: Verdict
    detail: str
    remedy: str | None = None


Check = Callable[[Settings], Finding]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("doctor")(diagnose)


def diagnose(as_json: JsonFlag = False) -> None:
    """Check everything that Tidemark needs, and name a remedy for each fault. Exits 1 if anything is missing.

    Examples:
      tidemark doctor
      tidemark doctor --json
    """
    findings = examine(load_settings())
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        show_rows([{"check": f.check, "verdict": f.verdict, "detail": f.detail} for f in findings], as_json=False)
        for finding in findings:
            if finding.remedy:
                note(f"{finding.check}: {finding.remedy}")
    if any(finding.verdict == "missing" for finding in findings):
        raise typer.Exit(1)


def examine(settings: Settings) -> list[Finding]:
    """Runs every check; a check that raises an error becomes a finding, not a crash.

    Args:
        settings: the settings to check.

    Returns:
        One finding per check: Tidemark's own in their order, each replaced by a package's check of the same name, then
        the other ones of packages in the order in which they were added.
    """
    return [_run_check(name, check, settings) for name, check in {**_CHECKS, **added_checks()}.items()]


def _run_check(name: str, check: Check, settings: Settings) -> Finding:
    try:
        return check(settings)
    except (OSError, ValueError, TidemarkError) as error:
        return Finding(
            check=name, verdict="missing", detail=str(error).splitlines()[0], remedy="correct the setting that it names"
        )


def _python(_: Settings) -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    if (3, 11) <= sys.version_info[:2] < (3, 14):
        return Finding(check="python", verdict="ok", detail=found)
    return Finding(
        check="python",
        verdict="missing",
        detail=f"{found}; Tidemark needs 3.11 to 3.13",
        remedy="install it in an environment of one of these",
    )


def packages_agree(_: Settings) -> Finding:
    """Checks that pyspark is installed, and that pyspark-client, which shares its folder, has the same version.

    Airflow's Spark provider installs pyspark-client; Tidemark does not need it.
    """
    spark, client = _installed("pyspark"), _installed("pyspark-client")
    if spark is None:
        detail = "no pyspark: this environment reads checkpoints, but cannot make any"
        return Finding(check="packages", verdict="note", detail=detail, remedy="pip install 'tidemark[spark]'")
    if client not in (spark, None):
        detail = f"pyspark {spark} and pyspark-client {client} share one folder"
        return Finding(check="packages", verdict="missing", detail=detail, remedy="install the same version of both")
    detail = f"pyspark {spark}" if client is None else f"pyspark and pyspark-client {spark}"
    return Finding(check="packages", verdict="ok", detail=detail)


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _jars(settings: Settings) -> Finding:
    """Checks that a driver of Tidemark's own finds the jars of Delta and Kafka, or can resolve them."""
    if settings.spark_address.startswith("sc://") or _installed("pyspark") is None:
        return Finding(check="jars", verdict="ok", detail="none needed here: a Connect server brings its own")
    profiles = ("spark", "s3") if isinstance(settings.warehouse, S3Url) else ("spark",)
    folders = [settings.jar_folder / profile for profile in profiles]
    missing = jar_packages(folders, jars_below(*folders), spark_home())
    if missing:
        detail = f"Spark resolves {missing.replace(',', ', ')} when a driver starts"
        return Finding(check="jars", verdict="note", detail=detail, remedy="set TIDEMARK_JARS to a folder with them")
    return Finding(check="jars", verdict="ok", detail=f"in {settings.jar_folder} and in pyspark")


def _warehouse(settings: Settings) -> Finding:
    """Checks that only one writer can create a name: with a hard link on a disk, a conditional put in a bucket."""
    if isinstance(settings.warehouse, S3Url):
        return _bucket(settings, settings.warehouse)
    return _folder(settings.warehouse)


def _bucket(settings: Settings, url: S3Url) -> Finding:
    from tidemark.environment import open_bucket_folder, random_id
    from tidemark.storage.s3_store import refuse_racing_winners

    try:
        with open_bucket_folder(settings, url) as folder:
            refuse_racing_winners(folder, random_id)
    except TidemarkError as error:
        return Finding(check="warehouse", verdict="missing", detail=error.what, remedy=error.next)
    return Finding(check="warehouse", verdict="ok", detail=f"{url} lets only one writer create each name")


def _folder(warehouse: Path) -> Finding:
    folder = existing_folder(warehouse)
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
        remedy = "set TIDEMARK_WAREHOUSE to a folder that you may write to, on a disk that supports hard links"
        return Finding(check="warehouse", verdict="missing", detail=detail, remedy=remedy)
    finally:
        for path in (link, probe):
            with suppress(FileNotFoundError):  # the check may have failed before it created the file
                path.unlink()
    if not refused:
        detail = f"{folder}: a hard link replaced an existing name"
        return Finding(check="warehouse", verdict="missing", detail=detail, remedy="set TIDEMARK_WAREHOUSE elsewhere")
    return Finding(check="warehouse", verdict="ok", detail=f"{warehouse} supports hard links and fsync")


def kafka_answers(settings: Settings) -> Finding:
    """Checks that the configured brokers answer."""
    try:
        address, options = settings.kafka_address, settings.kafka_client_options
    except UsageError as error:
        return Finding(check="kafka", verdict="missing", detail=error.what, remedy=error.next)
    if _broker_answers(address, options):
        return Finding(check="kafka", verdict="ok", detail=f"{address} answers")
    remedy = "start it, or correct the TIDEMARK_KAFKA_* settings: address, protocol, user, password, CA"
    if settings.kafka_bootstrap is None:
        remedy = "tidemark logs kafka; tidemark up"
    return Finding(check="kafka", verdict="missing", detail=f"{address} does not answer", remedy=remedy)


def _broker_answers(bootstrap: str, options: Mapping[str, str]) -> bool:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **options})
        return bool(client.list_topics(timeout=_PATIENCE).brokers)
    except KafkaException:
        return False


def spark_answers(settings: Settings) -> Finding:
    """Checks that the configured Spark server accepts connections."""
    address, shown = settings.spark_address, redact(settings.spark_address)
    host, _, port = address.removeprefix("sc://").partition(";")[0].partition("/")[0].partition(":")
    if not address.startswith("sc://"):
        return Finding(check="spark", verdict="ok", detail=f"{shown}: each checkpoint starts its own")
    if _accepts(host, int(port or 15002)):
        return Finding(check="spark", verdict="ok", detail=f"{shown} answers")
    remedy = "tidemark logs spark; tidemark up" if settings.spark is None else "start it, or correct TIDEMARK_SPARK"
    return Finding(check="spark", verdict="missing", detail=f"{shown} does not answer", remedy=remedy)


def registries_answer(settings: Settings) -> Finding:
    """Checks that each schema registry in the settings answers, with the right that a checkpoint needs."""
    from tidemark.environment import open_registry
    from tidemark.kafka.schema_registry import registry_names

    names = registry_names(settings.schema_registry or "")
    if not names:
        detail = "none configured; formats with schemas of a registry need TIDEMARK_SCHEMA_REGISTRY"
        return Finding(check="registry", verdict="ok", detail=detail)
    registry, bad = open_registry(settings), list[TidemarkError]()
    for name in names:
        try:
            registry.probe(name)
        except TidemarkError as error:
            bad.append(error)
    if bad:
        detail = "; ".join(error.what for error in bad)
        remedy = "start it, or correct TIDEMARK_SCHEMA_REGISTRY and its credentials"
        return Finding(check="registry", verdict="missing", detail=detail, remedy=remedy)
    return Finding(check="registry", verdict="ok", detail=f"{', '.join(names)}: answers")


def _accepts(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=_PATIENCE).close()
    except OSError:
        return False
    return True


def existing_folder(path: Path) -> Path:
    """Returns the folder itself, or its nearest parent that exists."""
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


_CHECKS: dict[str, Check] = {
    "python": _python,
    "packages": packages_agree,
    "jars": _jars,
    "warehouse": _warehouse,
    "kafka": kafka_answers,
    "spark": spark_answers,
    "registry": registries_answer,
}
