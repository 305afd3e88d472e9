"""The services of the embedded stack, and their common environment."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from devstack.java import INSTALL, Java, find_java
from tidemark.errors import TidemarkError
from tidemark.settings import STACK_VARIABLE, Settings

Group = Literal["kafka", "spark", "airflow"]
GROUPS: tuple[Group, ...] = ("kafka", "spark", "airflow")

SERVICES: dict[str, Group] = {
    "kafka": "kafka",
    "spark": "spark",
    "airflow-api-server": "airflow",
    "airflow-scheduler": "airflow",
    "airflow-dag-processor": "airflow",
    "airflow-triggerer": "airflow",
}
"""Every service and its group, in the order in which they start."""

LISTENERS: dict[Group, str] = {"kafka": "kafka", "spark": "spark", "airflow": "airflow-api-server"}
"""The service of each group that clients connect to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One child process: how to start it, and how to check that it works.

    Attributes:
        name: one of `SERVICES`.
        argv: the command line, without secrets.
        env: its complete environment.
        is_healthy: called repeatedly after the start, with the start time of the process.
        patience: seconds within which it must become healthy.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    is_healthy: Callable[[float], bool]
    patience: float

    @property
    def group(self) -> Group:
        """The group that it belongs to."""
        return SERVICES[self.name]


def require_java() -> Java:
    """Return the Java for servers.

    Raises:
        TidemarkError: no Java is recent enough.
    """
    java = find_java(os.environ)
    if java is None:
        raise TidemarkError(
            "Java 17 or newer is required, and neither JAVA_HOME nor PATH has one",
            safe="nothing was started.",
            next=f"{INSTALL}    (or set JAVA_HOME), then tidemark up again.",
        )
    return java


def service_environment(settings: Settings) -> dict[str, str]:
    """Return the environment of every child: this one, all settings as variables, and the project's Python first."""
    env = dict(os.environ)
    binaries = Path(sys.executable).parent
    loopback = "127.0.0.1,localhost"
    env["PATH"] = os.pathsep.join([str(binaries), env.get("PATH", os.defpath)])
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(settings.root / "include"), env.get("PYTHONPATH")]))
    for name in ("no_proxy", "NO_PROXY"):
        env[name] = ",".join(filter(None, [env.get(name), loopback]))
    env.update(settings_environment(settings))
    env[STACK_VARIABLE] = str(settings.home)
    return env


def settings_environment(settings: Settings) -> dict[str, str]:
    """Return the settings as variables, without secrets, so that a child finds the same home in any folder."""
    variables = {
        "TIDEMARK_ROOT": str(settings.root),
        "TIDEMARK_HOME": str(settings.home),
        "TIDEMARK_WAREHOUSE": str(settings.warehouse),
        "TIDEMARK_PIPELINES": os.pathsep.join(map(str, settings.pipelines)),
        "TIDEMARK_KAFKA_BOOTSTRAP": settings.kafka_bootstrap,
        "TIDEMARK_SPARK": settings.spark,
        "TIDEMARK_JARS": str(settings.jars) if settings.jars else None,
        "TIDEMARK_S3_ENDPOINT": settings.s3_endpoint,
        "TIDEMARK_S3_REGION": settings.s3_region,
        "TIDEMARK_S3_PATH_STYLE": None if settings.s3_path_style is None else str(settings.s3_path_style).lower(),
        "TIDEMARK_CRASH_AT": settings.crash_at,
    }
    return {name: value for name, value in variables.items() if value}
