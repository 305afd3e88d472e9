"""What services are started with: loopback only, and no secret where others can read it."""

import socket
import stat
from pathlib import Path

import pytest

from devstack import spark_server
from devstack.addresses import Addresses, choose_addresses
from devstack.airflow_services import COMPONENTS, LOCAL_SETTINGS, airflow_environment
from devstack.broker import server_properties
from devstack.control import up
from devstack.credentials import ensure_credentials, load_credentials, secrets_path
from devstack.services import settings_environment
from tidemark.errors import NotFoundError, UsageError
from tidemark.settings import Settings, load_settings

ADDRESSES = Addresses(kafka_port=1001, kafka_controller_port=1002, spark_port=1003, airflow_port=1004)
NONE: frozenset[str] = frozenset()


def test_secrets_are_made_once_into_a_file_for_the_owner_only(home_settings: Settings) -> None:
    made = ensure_credentials(home_settings.home)
    path = secrets_path(home_settings.home)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    assert ensure_credentials(home_settings.home) == made == load_credentials(home_settings.home)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(made.airflow_jwt_secret) >= 64
    assert made.airflow_admin_password not in repr(made)


def test_airflow_gets_its_secrets_by_environment_and_never_by_argument(home_settings: Settings) -> None:
    made = ensure_credentials(home_settings.home)
    env = airflow_environment(home_settings, ADDRESSES, made)
    assert env["AIRFLOW__API_AUTH__JWT_SECRET"] == made.airflow_jwt_secret
    assert env["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == "http://127.0.0.1:1004/execution/"
    assert env["AIRFLOW__CORE__LOAD_EXAMPLES"] == "False"
    assert env["TIDEMARK_HOME"] == str(home_settings.home)
    assert made.airflow_admin_password not in env.values()
    assert [name for name, *_ in COMPONENTS] == [
        "airflow-api-server",
        "airflow-scheduler",
        "airflow-dag-processor",
        "airflow-triggerer",
    ]


def test_a_surrounding_airflow_does_not_leak_in(home_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS", "True")
    env = airflow_environment(home_settings, ADDRESSES, ensure_credentials(home_settings.home))
    assert "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS" not in env


def test_where_airflows_metrics_and_spans_go_is_left_to_whoever_starts_the_stack(
    home_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {"AIRFLOW__METRICS__OTEL_ON": "True", "AIRFLOW__TRACES__OTEL_ON": "True", "OTEL_TRACES_EXPORTER": "x"}
    for name, value in wanted.items():
        monkeypatch.setenv(name, value)
    env = airflow_environment(home_settings, ADDRESSES, ensure_credentials(home_settings.home))
    assert wanted.items() <= env.items()


def test_a_set_airflow_database_stays_out_of_what_other_children_see(home_settings: Settings) -> None:
    settings = home_settings.model_validate(
        {**home_settings.model_dump(), "airflow_database": "postgresql://u:hidden-word@h/d"}
    )
    assert not any("hidden-word" in value for value in settings_environment(settings).values())
    env = airflow_environment(settings, ADDRESSES, ensure_credentials(settings.home))
    assert env["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] == "postgresql://u:hidden-word@h/d"


def test_heavy_imports_are_preloaded_in_the_scheduler_only() -> None:
    compile(LOCAL_SETTINGS, "airflow_local_settings.py", "exec")
    assert 'if "scheduler" in sys.argv:' in LOCAL_SETTINGS


def test_everything_listens_on_the_loopback_interface_only(home_settings: Settings) -> None:
    broker = server_properties(ADDRESSES, Path("/data"))
    assert "listeners=PLAINTEXT://127.0.0.1:1001,CONTROLLER://127.0.0.1:1002" in broker
    server = spark_server.server_configuration(home_settings, ADDRESSES)
    assert server["spark.connect.grpc.binding.address"] == "127.0.0.1"
    assert server["spark.driver.bindAddress"] == "127.0.0.1"


def test_the_spark_server_keeps_the_rules_that_delta_needs(home_settings: Settings) -> None:
    server = spark_server.server_configuration(home_settings, ADDRESSES)
    delta = "spark.databricks.delta"
    assert server[f"{delta}.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"] == "false"
    assert server[f"{delta}.vacuum.logging.enabled"] == "false"
    assert server[f"{delta}.snapshotPartitions"] == "2"
    assert server["spark.driver.memory"] == "2g"


def test_ports_are_chosen_once_and_kept(home_settings: Settings) -> None:
    first = choose_addresses(home_settings, NONE, NONE)
    assert choose_addresses(home_settings, NONE, NONE) == first
    assert len({first.kafka_port, first.kafka_controller_port, first.spark_port, first.airflow_port}) == 4


def test_a_port_that_was_set_and_is_taken_is_refused_by_name(home_settings: Settings) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        settings = home_settings.model_copy(update={"spark_port": port})
        with pytest.raises(UsageError, match=f"port {port} of TIDEMARK_SPARK_PORT is taken"):
            choose_addresses(settings, NONE, frozenset({"spark"}))
        assert choose_addresses(settings, NONE, frozenset({"kafka"})).spark_port == port


def test_an_unknown_service_is_a_usage_error(home_settings: Settings) -> None:
    with pytest.raises(UsageError, match="there is no service zookeeper"):
        up(home_settings, ["zookeeper"])


@pytest.mark.parametrize("groups", [("kafka",), ("spark",), ("kafka", "spark", "airflow")])
def test_up_outside_of_a_checkout_says_what_is_missing(tmp_path: Path, groups: tuple[str, ...]) -> None:
    settings = load_settings(root=tmp_path, home=tmp_path / "home")
    with pytest.raises(NotFoundError) as refused:
        up(settings, groups)
    what, safe, then = str(refused.value).splitlines()
    assert all(str(tmp_path / ".jars" / group) in what for group in groups if group != "airflow")
    assert (str(tmp_path / "dags") in what) == ("airflow" in groups)
    assert safe == "Safe: nothing was started."
    assert "TIDEMARK_ROOT" in then and "make setup" in then
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("given", ["", "-Xss2m"])
def test_the_server_has_the_parallel_collector(home_settings: Settings, given: str) -> None:
    settings = home_settings.model_copy(update={"spark_java_options": given})
    options = spark_server.server_configuration(settings, ADDRESSES)["spark.driver.extraJavaOptions"].split()
    assert [option for option in options if option.endswith("GC")] == ["-XX:+UseParallelGC"]
    assert set(given.split()) <= set(options)


def test_a_java_with_two_collectors_does_not_start_so_a_named_one_replaces_ours(home_settings: Settings) -> None:
    settings = home_settings.model_copy(update={"spark_java_options": "-Xss2m -XX:+UseZGC -XX:-UseAdaptiveSizePolicy"})
    options = spark_server.server_configuration(settings, ADDRESSES)["spark.driver.extraJavaOptions"].split()
    assert [option for option in options if option.endswith("GC")] == ["-XX:+UseZGC"]
