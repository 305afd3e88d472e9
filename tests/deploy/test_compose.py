"""docker-compose.yaml, which no test starts: its form, its promises, and that its services are those of the stack."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from devstack import airflow_home, apicurio
from devstack.addresses import Addresses
from devstack.airflow_services import COMPONENTS, LOCAL_SETTINGS, airflow_environment
from devstack.broker import server_properties
from devstack.credentials import Credentials
from devstack.env_file import SECRETS, complete
from devstack.spark_server import server_configuration
from tests.support.compose import FILE, ROOT, VARIABLE, Compose, UnsetError, example
from tests.support.schema_registry import API
from tidemark.engine.session.session import STATIC_CONF
from tidemark.kafka.schema_registry import RegistryLogin
from tidemark.model.core.names import S3Url
from tidemark.settings import PREFIX, Settings, load_settings

ADDRESSES = Addresses(kafka_port=1, kafka_controller_port=2, spark_port=3, airflow_port=4)
ONE_SHOTS = {"object-store-bucket", "doctor", "airflow-init"}
WANTED = {
    *(
        "postgres",
        "kafka",
        "schema-registry",
        "object-store",
        "spark-master",
        "spark-worker-1",
        "spark-worker-2",
        "spark-connect",
    ),
    *("airflow-apiserver", "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer"),
    *ONE_SHOTS,
}
TYPES: dict[str, type | tuple[type, ...]] = {
    "build": str,
    "command": list,
    "configs": list,
    "depends_on": dict,
    "entrypoint": list,
    "environment": dict,
    "healthcheck": dict,
    "image": str,
    "init": bool,
    "ports": list,
    "restart": str,
    "volumes": list,
}
"""What a service may say, of the Compose Specification: a misspelt word would be refused by Compose only."""
HEALTH = {"test", "interval", "timeout", "retries", "start_period"}


@pytest.fixture(scope="module")
def compose() -> Compose:
    return example()


def test_services_are_said_in_words_of_the_specification(compose: Compose) -> None:
    assert set(compose.services) == WANTED
    assert {key for key in compose.whole if not key.startswith("x-")} == {"name", "services", "configs", "volumes"}
    for name, service in compose.services.items():
        assert set(service) <= set(TYPES), f"{name}: {set(service) - set(TYPES)}"
        for key, value in service.items():
            assert isinstance(value, TYPES[key]), f"{name}: {key}"
        for value in service.get("environment", {}).values():
            assert isinstance(value, str), f"{name}: {value!r} is not quoted"
        assert all(isinstance(word, str) for word in service.get("command", []))


def test_who_serves_has_a_health_check_and_whoever_needs_it_waits_for_it(compose: Compose) -> None:
    for name, service in compose.services.items():
        if name in ONE_SHOTS:
            assert service.get("restart", "no") == "no"
            continue
        assert service["restart"] == "unless-stopped", name
        assert set(service["healthcheck"]) == HEALTH, name
        assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
    for name, service in compose.services.items():
        for needed, how in service.get("depends_on", {}).items():
            right = "service_completed_successfully" if needed in ONE_SHOTS else "service_healthy"
            assert how == {"condition": right}, f"{name} waits for {needed}"


def _needed(compose: Compose, name: str) -> set[str]:
    direct = set(compose.services[name].get("depends_on", {}))
    return direct.union(*(_needed(compose, other) for other in direct))


def test_airflow_starts_last(compose: Compose) -> None:
    others = {name for name in WANTED if not name.startswith("airflow-")}
    for name, *_ in COMPONENTS:
        assert _needed(compose, _service(name)) >= others | {"airflow-init"}


def test_nothing_listens_beyond_this_machine(compose: Compose) -> None:
    ports = [port for service in compose.services.values() for port in service.get("ports", [])]
    assert len(ports) == 5
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in ports), ports


def test_every_image_is_pinned_and_ours_is_built_here(compose: Compose) -> None:
    for name, service in compose.services.items():
        tag = service["image"].partition(":")[2]
        assert re.match(r"\d+\.\d+", tag), f"{name}: {service['image']}"
        assert (service.get("build") == ".") == service["image"].startswith("tidemark:")
    base = re.findall(r"^FROM (\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert len(base) == 1
    assert re.fullmatch(r"python:3\.11\.\d+-slim-bookworm", base[0])


def test_volumes_and_configs_that_are_used_are_declared(compose: Compose) -> None:
    used = {volume.partition(":")[0] for service in compose.services.values() for volume in service.get("volumes", [])}
    folders = {name for name in used if name.startswith("./")}
    assert used - folders == set(compose.whole["volumes"])
    assert all((ROOT / folder).is_dir() for folder in folders)
    configs = {each["source"] for service in compose.services.values() for each in service.get("configs", [])}
    assert configs == set(compose.whole["configs"])


@pytest.mark.parametrize("secret", SECRETS)
def test_no_secret_has_a_default(secret: str) -> None:
    with pytest.raises(UnsetError, match=f"{secret}: run make env"):
        _ = Compose({name: "x" for name in SECRETS if name != secret}).whole


def test_no_secret_is_written_out_and_every_variable_is_in_the_example() -> None:
    used = {name for _, name, *_ in VARIABLE.findall(FILE.read_text()) if name}
    example = set(re.findall(r"^#?([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert set(SECRETS) <= used <= example
    raw: dict[str, Any] = yaml.safe_load(FILE.read_text())
    for service in raw["services"].values():
        for name, value in service.get("environment", {}).items():
            if re.search("PASSWORD|SECRET|KEY|CONN", name) and not name.endswith("_FILE"):
                assert re.search(r"\$\{\w+:\?run make env\}", value), name


def test_secrets_are_made_once_for_the_owner_only(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("TIDEMARK_STATSD=s:1\nPOSTGRES_PASSWORD=mine\nAIRFLOW_JWT_SECRET=\n")
    assert complete(path) == [name for name in SECRETS if name != "POSTGRES_PASSWORD"]
    made = dict(line.split("=", 1) for line in path.read_text().splitlines())
    assert set(made) == {"TIDEMARK_STATSD", *SECRETS}
    assert made["POSTGRES_PASSWORD"] == "mine"
    assert len(made["AIRFLOW_JWT_SECRET"]) >= 64
    assert all(re.fullmatch(r"[\w=-]+", made[name]) for name in SECRETS)
    assert path.stat().st_mode & 0o777 == 0o600
    assert complete(path) == []
    assert dict(line.split("=", 1) for line in path.read_text().splitlines()) == made
    assert load_settings(root=tmp_path).statsd == "s:1"


def _service(component: str) -> str:
    return component.replace("api-server", "apiserver")


def test_airflows_home_is_that_of_the_stack(compose: Compose, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    init = compose.services["airflow-init"]
    assert init["command"][-1].startswith("python -m devstack.airflow_home && ")
    for name, value in (init["environment"] | {"AIRFLOW_HOME": str(tmp_path)}).items():
        monkeypatch.setenv(name, value)
    airflow_home.main()
    passwords = Path(init["environment"]["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"])
    made = tmp_path / passwords.relative_to("/opt/airflow")
    assert json.loads(made.read_text()) == {"admin": init["environment"]["AIRFLOW_ADMIN_PASSWORD"]}
    assert made.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "config" / "airflow_local_settings.py").read_text() == LOCAL_SETTINGS


def test_airflow_is_started_as_by_the_stack(compose: Compose, tmp_path: Path) -> None:
    credentials = Credentials(
        airflow_admin_password="a", airflow_jwt_secret="j", airflow_secret_key="s", airflow_fernet_key="f"
    )
    stack = airflow_environment(load_settings(root=tmp_path), ADDRESSES, credentials)
    wanted = {name: value for name, value in stack.items() if name.startswith("AIRFLOW__")}
    for name, arguments, _ in COMPONENTS:
        service = compose.services[_service(name)]
        assert service["command"] == ["airflow", *arguments]
        given = {n: v for n, v in service["environment"].items() if n.startswith("AIRFLOW__")}
        assert set(given) - set(wanted) == {"AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK"}
        assert set(wanted) <= set(given)
        # Places, addresses and secrets are its own; all else is the same.
        places = re.compile("KEY|SECRET|URL|FOLDER|PORT|HOST|CONN|FILE$")
        for option in (n for n in wanted if not places.search(n)):
            assert given[option] == wanted[option], option


def test_the_broker_has_the_settings_of_the_stack(compose: Compose, tmp_path: Path) -> None:
    lines = server_properties(ADDRESSES, tmp_path).splitlines()
    wanted = {
        "KAFKA_" + name.upper().replace(".", "_"): value for name, value in (line.split("=", 1) for line in lines)
    }
    given: dict[str, str] = compose.services["kafka"]["environment"]
    places = {n for n in wanted if re.search("LISTENERS|LOG_DIRS|QUORUM", n)}
    assert {n: given.get(n) for n in set(wanted) - places} == {n: wanted[n] for n in set(wanted) - places}


def test_the_registry_is_the_one_of_the_tests_and_the_containers_ask_it(compose: Compose) -> None:
    registry = compose.services["schema-registry"]
    assert registry["image"].partition(":")[2] == apicurio.VERSION
    kafka = compose.services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert f"PLAINTEXT://{registry['environment']['KAFKA_BOOTSTRAP_SERVERS']}" in kafka.split(",")
    address = RegistryLogin(address=compose.services["doctor"]["environment"]["TIDEMARK_SCHEMA_REGISTRY"])
    parts = urlsplit(address.address_of("default"))
    assert (parts.hostname, str(parts.port)) == ("schema-registry", registry["environment"]["QUARKUS_HTTP_PORT"])
    assert parts.path == API


def test_the_connect_server_has_the_configuration_of_the_stack(compose: Compose, tmp_path: Path) -> None:
    given, wanted = compose.properties("spark-connect"), server_configuration(load_settings(root=tmp_path), ADDRESSES)
    places = {n for n in wanted if re.search(r"master$|host$|ddress$|port$|dir$|ClassPath|JavaOptions", n)}
    assert {n: given.get(n) for n in set(wanted) - places} == {n: wanted[n] for n in set(wanted) - places}
    assert {n: given.get(n) for n in STATIC_CONF} == dict(STATIC_CONF)
    # Both sides have every jar that the stack's server has: those of s3a:// too.
    jars = wanted["spark.driver.extraClassPath"].replace(str(tmp_path), "/opt/tidemark")
    assert given["spark.driver.extraClassPath"] == given["spark.executor.extraClassPath"] == jars
    executors = {"spark.executor.extraClassPath", "spark.executor.memory", "spark.executorEnv.PYTHONPATH"}
    assert set(given) - set(wanted) == {*executors, "spark.pyspark.python"}
    command = " ".join(compose.services["spark-connect"]["command"])
    driver = re.findall(r"/opt/tidemark/(\S+\.py)", command)
    assert all((ROOT / path).is_file() for path in driver)
    assert len(driver) == 1


def test_the_settings_of_the_containers_are_settings(compose: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    for service in (s for s in compose.services.values() if s["image"].startswith("tidemark:")):
        given = {n: v for n, v in service["environment"].items() if n.startswith(PREFIX)}
        assert {n.removeprefix(PREFIX).lower() for n in given} <= set(Settings.model_fields)
        with monkeypatch.context() as patched:
            for name, value in given.items():
                patched.setenv(name, value)
            settings = load_settings(root="/opt/tidemark")
        assert str(settings.warehouse) == "s3://tidemark/warehouse"
        assert settings.spark_address == "sc://spark-connect:15002"
        store = urlsplit(settings.s3_endpoint or "")
        assert f"-s3.port={store.port}" in compose.services[str(store.hostname)]["command"]
        assert {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} <= set(service["environment"])


def test_the_bucket_is_there_and_its_conditional_puts_are_tried_before_anything_is_written(compose: Compose) -> None:
    (url,) = {s["environment"]["TIDEMARK_WAREHOUSE"] for s in compose.services.values() if s.get("build")}
    made = " ".join(compose.services["object-store-bucket"]["command"])
    assert f"s3.bucket.create -name {S3Url.parsed(url).bucket}'" in made
    assert "object-store-bucket" in _needed(compose, "doctor"), "whose check of the warehouse lets writers race"
    assert compose.services["doctor"]["command"] == ["tidemark", "doctor"]
    writers = {_service(name) for name, *_ in COMPONENTS}
    assert all("doctor" in _needed(compose, name) for name in writers)
    assert "warehouse" not in compose.whole["volumes"], "nobody can write beside the bucket"


def test_identities_of_the_object_store_are_json(compose: Compose) -> None:
    told: dict[str, Any] = json.loads(compose.whole["configs"]["object-store-identities"]["content"])
    keys = told["identities"][0]["credentials"][0]
    environment = compose.services["doctor"]["environment"]
    assert keys == {"accessKey": environment["AWS_ACCESS_KEY_ID"], "secretKey": environment["AWS_SECRET_ACCESS_KEY"]}


def test_the_image_copies_what_exists_and_what_is_not_ignored() -> None:
    text = (ROOT / "Dockerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert all((ROOT / path).exists() for path in copied)
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {path.split("/")[0] for path in copied} == allowed
    assert not allowed & {".env", ".venv", ".jars", ".tidemark", ".git"}
    assert "python include/devstack/bootstrap.py --s3" in text, "or no Spark of the containers reaches the bucket"
    assert re.search(r"^USER tidemark$", text, re.MULTILINE)


def test_set_up_begins_with_what_the_image_has_copied_by_then(tmp_path: Path) -> None:
    before = (ROOT / "Dockerfile").read_text().partition("RUN python include")[0]
    for line in re.findall(r"^COPY (.*)$", before, re.MULTILINE):
        *sources, target = line.split()
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, tmp_path / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, tmp_path / target)
    check = [sys.executable, "-I", str(tmp_path / "include/devstack/bootstrap.py"), "--check"]
    asked = subprocess.run(check, capture_output=True, text=True, timeout=60, check=False)
    assert (asked.returncode, asked.stderr) == (1, "")  # it looked, and found that all is still to do


def test_the_page_has_every_setting_with_its_value_in_the_containers(compose: Compose) -> None:
    lines = (ROOT / "docs/deploy.md").read_text().splitlines()
    rows = [
        [cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in lines if "`TIDEMARK_" in line
    ]
    told = {row[0]: row[1] for row in rows if len(row) == 3 and row[0].startswith(PREFIX)}
    image = dict(re.findall(r"(TIDEMARK_\w+)=(\S+)", (ROOT / "Dockerfile").read_text()))
    given = image | {n: v for n, v in compose.services["doctor"]["environment"].items() if n.startswith(PREFIX)}
    users = {PREFIX + name.upper() for name in set(Settings.model_fields) - {"crash_at"}}
    assert told == {name: given.get(name, "–") for name in users}
