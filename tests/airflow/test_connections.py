"""Airflow's connections as settings: precedence, what is refused, and that no value of one is shown anywhere."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.airflow.test_dag_runs import DagRun, states
from tests.support.airflow import AirflowPipeline
from tidemark.errors import UsageError
from tidemark.settings import Settings, load_settings

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]
SECRET = "canary/7d1f+="
SASL = {
    "bootstrap.servers": "kafka:9093",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "ann",
    "sasl.password": SECRET,
    "ssl.ca.location": "/etc/ssl/ca.pem",
    "group.id": "of the provider's operators",
}


@pytest.fixture(autouse=True)
def nothing_else(airflow_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No settings of this machine, and none left behind: what a task puts into the environment goes with it."""
    from tidemark.airflow import connection_lookup

    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith(("TIDEMARK_", "AWS_", "AIRFLOW_CONN_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "root").mkdir()
    monkeypatch.setenv("TIDEMARK_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(connection_lookup, "_PLACED", {})
    yield
    for name in set(os.environ) - set(before):
        del os.environ[name]


def connect(monkeypatch: pytest.MonkeyPatch, name: str, kind: str, **fields: Any) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps({"conn_type": kind, **fields}))


def task_settings() -> Settings:
    """The settings of a task."""
    from tidemark.airflow.connections import take_connections

    take_connections()
    return load_settings()


def test_every_default_connection_becomes_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "kafka_default", "kafka", extra=SASL)
    connect(
        monkeypatch, "spark_connect_default", "spark_connect", host="spark.example", port=443, login="ann",
        password=SECRET, extra={"use_ssl": True},
    )  # fmt: skip
    found = task_settings()
    assert found.kafka_bootstrap == "kafka:9093"
    assert (found.kafka_security_protocol, found.kafka_sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-256")
    assert found.kafka_sasl_password is not None and found.kafka_sasl_password.get_secret_value() == SECRET
    assert str(found.kafka_ssl_ca) == "/etc/ssl/ca.pem"
    assert os.environ["TIDEMARK_SPARK"] == "sc://spark.example:443/;use_ssl=true;user_id=ann"
    from pyspark.sql.connect.client import DefaultChannelBuilder

    built = DefaultChannelBuilder(found.spark_address)
    assert (built.token, built.use_ssl, built.userId) == (SECRET, True, "ann")
    assert "canary" not in f"{found!r}{found.model_dump_json()}"


def test_a_variable_takes_precedence_and_keeps_credentials_of_another_cluster_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connect(monkeypatch, "kafka_default", "kafka", extra=SASL)
    connect(monkeypatch, "spark_connect_default", "spark_connect", host="spark.example", password=SECRET)
    monkeypatch.setenv("TIDEMARK_KAFKA_BOOTSTRAP", "mine:9092")
    monkeypatch.setenv("TIDEMARK_SPARK", "sc://mine:15002")
    found = task_settings()
    assert (found.kafka_bootstrap, found.kafka_client_options) == ("mine:9092", {})
    assert found.spark_address == "sc://mine:15002"
    assert not [name for name, value in os.environ.items() if SECRET in value and name.startswith("TIDEMARK_")]


def test_one_field_by_a_variable_and_the_others_by_the_connection(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("of the file\n")
    connect(monkeypatch, "kafka_default", "kafka", extra=SASL | {"sasl.username": "its"})
    monkeypatch.setenv("TIDEMARK_KAFKA_SASL_PASSWORD_FILE", "")
    monkeypatch.setenv("TIDEMARK_KAFKA_SASL_MECHANISM", "PLAIN")
    found = task_settings()
    assert (found.kafka_sasl_mechanism, found.kafka_sasl_username) == ("PLAIN", "its")


def test_a_named_connection_is_taken_and_an_empty_name_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "kafka_default", "kafka", extra={"bootstrap.servers": "wrong:1"})
    connect(monkeypatch, "lake_kafka", "kafka", extra={"bootstrap.servers": "right:1"})
    monkeypatch.setenv("TIDEMARK_KAFKA_CONNECTION", "lake_kafka")
    assert task_settings().kafka_bootstrap == "right:1"
    monkeypatch.setenv("TIDEMARK_KAFKA_CONNECTION", "")
    connect(monkeypatch, "aws_default", "aws", login="k", password=SECRET)
    monkeypatch.setenv("TIDEMARK_WAREHOUSE", "s3://lake/house")
    monkeypatch.setenv("TIDEMARK_S3_CONNECTION", "")
    assert task_settings().kafka_bootstrap is None
    assert "AWS_ACCESS_KEY_ID" not in os.environ


def test_a_later_call_sees_a_changed_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "kafka_default", "kafka", extra=SASL)
    connect(monkeypatch, "spark_connect_default", "spark_connect", host="one", password=SECRET)
    assert task_settings().kafka_bootstrap == "kafka:9093"
    connect(monkeypatch, "kafka_default", "kafka", extra={"bootstrap.servers": "plain:9092"})
    connect(monkeypatch, "spark_connect_default", "spark_connect", host="two")
    found = task_settings()
    assert (found.kafka_bootstrap, found.kafka_client_options) == ("plain:9092", {})
    assert found.spark_address == "sc://two"


def test_an_airflow_without_connections_changes_nothing() -> None:
    found = task_settings()
    assert (found.kafka_bootstrap, found.spark_address) == (None, "local[*]")


def test_an_embedded_service_that_runs_takes_precedence_over_a_default_and_not_over_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    this = {"pid": os.getpid(), "started": psutil.Process().create_time()}
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "stack.json").write_text(
        json.dumps({"kafka": this | {"port": 9}, "spark": this | {"port": 8}})
    )
    connect(monkeypatch, "kafka_default", "kafka", extra=SASL)
    connect(monkeypatch, "spark_connect_default", "spark_connect", host="spark.example", password=SECRET)
    settings = task_settings()
    assert (settings.kafka_bootstrap, settings.kafka_client_options) == (None, {})
    assert "TIDEMARK_SPARK" not in os.environ and settings.spark_address == "sc://127.0.0.1:8"
    monkeypatch.setenv("TIDEMARK_KAFKA_CONNECTION", "kafka_default")
    monkeypatch.setenv("TIDEMARK_SPARK_CONNECTION", "spark_connect_default")
    settings = task_settings()
    assert (settings.kafka_bootstrap, settings.spark_address[:18]) == ("kafka:9093", "sc://spark.example")


def test_a_default_of_another_type_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "spark_connect_default", "http", host="spark.example", password=SECRET)
    assert task_settings().spark_address == "local[*]"
    monkeypatch.setenv("TIDEMARK_SPARK_CONNECTION", "spark_connect_default")
    with pytest.raises(UsageError, match="is of type http"):
        task_settings()


def test_the_default_of_aws_counts_for_a_bucket_without_other_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "aws_default", "aws", login="its", password=SECRET, extra={"region_name": "eu-north-1"})
    task_settings()
    assert "AWS_ACCESS_KEY_ID" not in os.environ, "the warehouse is a folder"
    monkeypatch.setenv("TIDEMARK_WAREHOUSE", "s3://lake/house")
    monkeypatch.setenv("AWS_PROFILE", "mine")
    task_settings()
    assert "AWS_ACCESS_KEY_ID" not in os.environ and os.environ["AWS_PROFILE"] == "mine"
    monkeypatch.delenv("AWS_PROFILE")
    assert task_settings().s3_region == "eu-north-1"
    assert os.environ["AWS_ACCESS_KEY_ID"] == "its"
    connect(monkeypatch, "aws_default", "aws", login="next", password=SECRET)
    task_settings()
    assert os.environ["AWS_ACCESS_KEY_ID"] == "next", "what comes from a connection may be replaced"


@pytest.mark.parametrize(
    ("variable", "name", "fields", "wrong"),
    [
        ("TIDEMARK_KAFKA_CONNECTION", "mine", None, "Airflow has no connection mine"),
        ("TIDEMARK_SPARK_CONNECTION", "mine", None, "Airflow has no connection mine"),
        ("", "kafka_default", {"extra": SASL | {"sasl.oauthbearer.config": SECRET}}, "has sasl.oauthbearer.config"),
        ("", "kafka_default", {"extra": SASL | {"ssl.ca.pem": SECRET}}, "ssl.ca.pem"),
        ("", "kafka_default", {"extra": SASL, "host": "canary"}, "has a host"),
        ("", "kafka_default", {"extra": {"group.id": "canary"}}, "no bootstrap.servers"),
        ("", "kafka_default", {"extra": SASL | {"sasl.mechanism": "canary"}}, "TIDEMARK_KAFKA_SASL_MECHANISM"),
        ("", "kafka_default", {"extra": SASL | {"security.protocol": "SSL"}}, "uses no TIDEMARK_KAFKA_SASL_"),
        ("", "spark_connect_default", {"host": "h", "extra": {"x-canary": SECRET}}, "has x-canary"),
        ("", "spark_connect_default", {"host": "h", "schema": "canary"}, "a schema"),
        ("", "spark_connect_default", {"host": "h/canary", "password": SECRET}, "more than a name and a port"),
        ("", "spark_connect_default", {"password": SECRET}, "no host"),
        ("", "spark_connect_default", {"host": "h", "password": SECRET, "extra": {"use_ssl": False}}, "over TLS only"),
    ],
)
def test_a_connection_that_is_not_fully_honoured_is_refused_by_name(
    variable: str, name: str, fields: dict[str, Any] | None, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        monkeypatch.setenv(variable, name)
    if fields is not None:
        connect(monkeypatch, name, name.removesuffix("_default"), **fields)
    with pytest.raises(UsageError, match=wrong) as refused:
        task_settings()
    assert SECRET not in f"{refused.value!s}{refused.value.__cause__}{refused.value.__context__}"
    assert "canary" not in str(refused.value).replace("x-canary", "")
    assert name in refused.value.what and refused.value.safe == "nothing was read or written."
    assert not [v for v in os.environ if v in ("TIDEMARK_KAFKA_BOOTSTRAP", "TIDEMARK_SPARK", "TIDEMARK_SPARK_TOKEN")]


def test_a_child_has_them_in_its_environment_and_not_on_its_command_line(
    monkeypatch: pytest.MonkeyPatch, child_of_task: Callable[[], tuple[dict[str, str], str]]
) -> None:
    connect(monkeypatch, "kafka_default", "kafka", extra=SASL)
    variables, command = child_of_task()
    assert SECRET not in command
    assert variables["TIDEMARK_KAFKA_SASL_PASSWORD"] == SECRET


def test_a_dag_run_shows_no_value_of_its_connections(
    world: AirflowPipeline, dag_run: DagRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.delenv("TIDEMARK_SPARK")
    connect(monkeypatch, "kafka_default", "kafka", extra=SASL)
    connect(monkeypatch, "spark_connect_default", "spark_connect", host="nowhere", port=1, password=SECRET)
    monkeypatch.setenv("TIDEMARK_ROOT", str(Path(__file__).parents[2]))
    world.drive("a", 3)
    run = dag_run(day=1)
    assert states(run) == dict.fromkeys(("plan", "fold", "validate", "complete"), "success")
    assert os.environ["TIDEMARK_SPARK_TOKEN"] == SECRET
    assert "canary" not in "".join(capfd.readouterr()) + caplog.text
    stored = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert stored and not [path for path in stored if SECRET.encode() in path.read_bytes()]


def test_a_registry_comes_from_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(
        monkeypatch, "schema_registry_default", "http", host="registry.example", port=8081, schema="https",
        login="ann", password=SECRET, extra={"ssl_ca": "/etc/ssl/ca.pem"},
    )  # fmt: skip
    found = task_settings()
    assert found.schema_registry == "https://registry.example:8081"
    assert found.schema_registry_user == "ann" and str(found.schema_registry_ssl_ca) == "/etc/ssl/ca.pem"
    assert found.schema_registry_password is not None
    assert found.schema_registry_password.get_secret_value() == SECRET
    assert "canary" not in f"{found!r}{found.model_dump_json()}"


def test_a_registry_may_have_a_path_and_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "reg", "http", host="http://registry.example/apis/ccompat/v7", port=8080)
    monkeypatch.setenv("TIDEMARK_SCHEMA_REGISTRY_CONNECTION", "reg")
    assert task_settings().schema_registry == "http://registry.example:8080/apis/ccompat/v7"


@pytest.mark.parametrize(("fields", "named"), [({"host": "r", "extra": {"verify": False}}, "verify"), ({}, "no host")])
def test_a_connection_to_a_registry_that_cannot_be_honoured(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], named: str
) -> None:
    connect(monkeypatch, "schema_registry_default", "http", **fields)
    with pytest.raises(UsageError, match=named):
        task_settings()
