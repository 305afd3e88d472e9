"""How to reproduce a page of measurements: command, seed, cores, versions."""

import importlib.metadata
import os
import platform
from collections.abc import Mapping
from typing import Any

PACKAGES = ("pyspark", "delta-spark", "deltalake", "duckdb", "pyarrow", "confluent-kafka")


def made_by(command: str, seed: int) -> dict[str, Any]:
    """The facts of a run on this machine.

    Args:
        command: the command that repeats the run.
        seed: the seed of the generated data.
    """
    return {"command": command, "seed": seed, "cores": os.cpu_count(), "versions": versions()}


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that the measurements depend on."""
    found = {name: importlib.metadata.version(name) for name in PACKAGES}
    return found | {"python": platform.python_version()}


def told(facts: Mapping[str, Any]) -> str:
    """Formats the facts as a sentence."""
    packages = ", ".join(f"{package} {version}" for package, version in facts["versions"].items())
    return f"Made by `{facts['command']}` (seed {facts['seed']}, {facts['cores']} cores; {packages})."
