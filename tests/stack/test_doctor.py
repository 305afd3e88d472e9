"""The doctor names what is missing and what to type."""

import json
import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from devstack import commands as stack_commands
from devstack import doctor, java
from tests.stack.homes import settings_for
from tidemark.cli import doctor as own
from tidemark.cli import extensions
from tidemark.cli.doctor import Finding, examine
from tidemark.settings import Settings

extensions.add_checks(lambda: doctor.CHECKS)


def _find(settings: Settings, check: str) -> Finding:
    return next(finding for finding in examine(settings) if finding.check == check)


def test_a_checkout_after_setup_lacks_nothing(home_settings: Settings) -> None:
    findings = examine(home_settings)
    assert [f for f in findings if f.verdict == "missing"] == []
    assert {f.check for f in findings if f.verdict == "note"} >= {"kafka", "spark", "airflow"}
    assert not any(home_settings.home.parent.glob("**/.tidemark-doctor-*"))


def test_without_java_on_a_broken_path_the_remedy_is_the_line_to_type(
    home_settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(java, "PACKAGED", tmp_path / "none")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    found = _find(home_settings, "java")
    assert found.verdict == "missing"
    assert found.remedy == "sudo apt-get install -y openjdk-17-jre-headless"


def test_a_checkout_without_jars_says_make_setup(tmp_path: Path) -> None:
    found = _find(settings_for(tmp_path / "home").model_copy(update={"root": tmp_path}), "jars")
    assert (found.verdict, found.remedy) == ("missing", "make setup")
    assert "52 more" in found.detail


def test_unequal_pysparks_are_told(home_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "version", lambda name: "4.2.0" if name == "pyspark-client" else version(name))
    found = _find(home_settings, "packages")
    assert (found.verdict, found.detail) == ("missing", "pyspark 4.1.3 and pyspark-client 4.2.0 share one folder")


def test_an_environment_without_pyspark_reads_only(home_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> str:
        if name.startswith("pyspark"):
            raise PackageNotFoundError
        return version(name)

    monkeypatch.setattr(own, "version", without)
    found = own.packages_agree(home_settings)
    assert (found.verdict, found.remedy) == ("note", "pip install 'tidemark[spark]'")


def test_a_warehouse_without_hard_links_is_refused(home_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    found = _find(home_settings, "warehouse")
    assert found.verdict == "missing"
    assert "Operation not permitted" in found.detail
    assert "TIDEMARK_WAREHOUSE" in str(found.remedy)


def test_a_full_disk_is_told(home_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "DISK_NEEDED", 10**18)
    assert _find(home_settings, "disk").verdict == "missing"


def test_a_broker_elsewhere_that_does_not_answer_is_missing(tmp_path: Path) -> None:
    settings = settings_for(tmp_path / "home", kafka_bootstrap="127.0.0.1:9", spark="sc://127.0.0.1:9")
    assert _find(settings, "kafka").verdict == "missing"
    assert _find(settings, "spark").verdict == "missing"


def test_the_command_fails_when_something_is_missing_and_prints_json_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TIDEMARK_KAFKA_BOOTSTRAP", "127.0.0.1:9")
    app = typer.Typer()
    own.register(app)
    stack_commands.register(app)
    answer = CliRunner().invoke(app, ["doctor", "--json"])
    assert answer.exit_code == 1
    verdicts = {finding["check"]: finding["verdict"] for finding in json.loads(answer.stdout)}
    assert verdicts["kafka"] == "missing"
    assert verdicts["python"] == "ok"
