"""Kafka that asks who is there: both clients prove themselves by the same settings, and READ on the topic suffices."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.kafka.secured import SecuredBroker
from tests.support.certificates import Authority
from tests.support.cli import Command
from tests.support.kafka import Topics
from tests.support.kafka_broker import running
from tests.support.readings import plan_of
from tidemark.declare.pipeline import TopicPattern
from tidemark.environment import find_pipeline
from tidemark.errors import BrokerError
from tidemark.kafka.log import KafkaLog
from tidemark.model.core.offsets import TopicPartition
from tidemark.operations import reads
from tidemark.settings import Settings, load_settings

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
PASSWORD = 'canary-7d1f "quoted" back\\slash; semi=colon'
"""What a JAAS configuration could trip over."""
BUSES = ["a", "b", "a", "c", "a", "b"]
PIPELINES = Path(__file__).resolve().parents[1] / "airflow" / "pipelines"


@dataclass
class SecuredTopic:
    """A secured broker whose topic `trips` a user `reader` and a certificate `reader` may read, and nothing else."""

    broker: SecuredBroker
    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        """The settings of somebody with a password, which stands in a file."""
        file = self.folder / "password"
        file.write_text(f"{PASSWORD}\n")
        return {
            "TIDEMARK_KAFKA_BOOTSTRAP": self.broker.address,
            "TIDEMARK_KAFKA_SECURITY_PROTOCOL": "sasl_ssl",
            "TIDEMARK_KAFKA_SASL_USERNAME": "reader",
            "TIDEMARK_KAFKA_SASL_PASSWORD_FILE": str(file),
            "TIDEMARK_KAFKA_SSL_CA": str(self.broker.authority.path),
        }

    def settings(self, **fields: object) -> Settings:
        """The same as settings; `fields` win."""
        given = {name.removeprefix("TIDEMARK_").lower(): value for name, value in self.variables.items()}
        return load_settings(root=self.folder, **(given | fields))

    def log(self, settings: Settings, timeout: float = 3) -> KafkaLog:
        return KafkaLog(settings.kafka_address, timeout=timeout, options=settings.kafka_client_options)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredTopic]:
    with running(SecuredBroker(tmp_path_factory.mktemp("secured"))) as broker:
        topics = Topics(broker.address, broker.client)
        topics.make("trips")
        topics.make("hidden")
        at = "2024-03-01T01:00:00Z"
        topics.produce("trips", [json.dumps({"bus": b, "miles": 3, "ended_at": at}).encode() for b in BUSES])
        broker.admit("reader", PASSWORD)
        broker.allow_reading("reader", "trips")
        broker.allow_reading("CN=certified", "trips")
        yield SecuredTopic(broker, tmp_path_factory.mktemp("client"))


@pytest.fixture(scope="module")
def certified(secured: SecuredTopic) -> Settings:
    """Settings of somebody with a certificate and no password."""
    key, certificate = secured.broker.authority.signed("certified")
    return load_settings(
        root=secured.folder,
        kafka_bootstrap=secured.broker.certified,
        kafka_security_protocol="SSL",
        kafka_ssl_ca=secured.broker.authority.path,
        kafka_ssl_certificate=certificate,
        kafka_ssl_key=key,
    )


def _commands() -> str:
    told = []
    for process in psutil.process_iter():
        try:
            told.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return "\n".join(told)


def test_read_suffices_for_a_checkpoint_and_the_password_is_written_nowhere(
    secured: SecuredTopic, spark_stack: Settings, tmp_path: Path
) -> None:
    tidemark = Command(tmp_path / "home", secured.broker.address, spark_stack.spark_address)
    tidemark.declare(PIPELINES / "trips.py", file="trips.py")
    made = tidemark("run", "trips", "--json", **secured.variables).ok()
    assert made.json["records"] == len(BUSES)
    table = reads.read_state(tidemark.context, "trips", "buses")
    assert {row["bus"]: row["trips"] for row in table.to_pylist()} == Counter(BUSES)
    kept = [p for folder in (tidemark.home, spark_stack.home) for p in folder.rglob("*") if p.is_file()]
    assert any(p.suffix == ".json" for p in kept)
    assert any(p.suffix == ".log" for p in kept)
    assert [p for p in kept if b"canary-7d1f" in p.read_bytes()] == []
    assert "canary-7d1f" not in made.out + made.err + _commands()


def test_a_pattern_finds_what_may_be_read_only(secured: SecuredTopic) -> None:
    log = secured.log(secured.settings())
    assert {tp.topic for tp in log.partitions(TopicPattern(".*"), "read_committed")} == {"trips"}
    with pytest.raises(BrokerError, match="[Aa]uthorization"):
        log.partitions("hidden", "read_committed")


def test_a_certificate_takes_the_place_of_a_password_for_both_clients(
    secured: SecuredTopic, certified: Settings, spark_stack: Settings
) -> None:
    found = secured.log(certified).partitions("trips", "read_committed")
    assert [bounds.end for bounds in found.values()] == [len(BUSES)]
    assert _read_by_spark(certified, spark_stack) == len(BUSES)


def test_a_wrong_password_is_told_within_15_seconds_and_nothing_is_written(
    secured: SecuredTopic, tmp_path: Path
) -> None:
    tidemark = Command(tmp_path / "home", secured.broker.address, "local[1]")
    tidemark.declare(PIPELINES / "trips.py", file="trips.py")
    wrong = tmp_path / "wrong"
    wrong.write_text("canary-9e2a")
    began = time.monotonic()
    refused = tidemark("run", "trips", **secured.variables | {"TIDEMARK_KAFKA_SASL_PASSWORD_FILE": str(wrong)})
    assert time.monotonic() - began < 15
    refused.failed(1, "refused the name, the password or the mechanism", "TIDEMARK_KAFKA_SASL_*")
    assert "canary-9e2a" not in refused.err
    assert tidemark.objects("trips") == {}


def test_another_authority_is_told_as_such(secured: SecuredTopic, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    with pytest.raises(BrokerError, match="no TLS connection was established .*certificate") as refused:
        secured.log(secured.settings(kafka_ssl_ca=stranger.path)).topic_ids(["trips"])
    assert "TIDEMARK_KAFKA_SSL_CA" in refused.value.next


@pytest.mark.parametrize("wrong", ["password", "authority"])
def test_what_spark_is_refused_is_an_error_of_the_broker_in_time(
    secured: SecuredTopic, spark_stack: Settings, tmp_path: Path, wrong: str
) -> None:
    (tmp_path / "password").write_text("canary-9e2a")
    fields = {"kafka_sasl_password_file": tmp_path / "password"}
    if wrong == "authority":
        fields = {"kafka_ssl_ca": Authority(tmp_path, "stranger").path}
    began = time.monotonic()
    with pytest.raises(BrokerError, match="Kafka did not answer") as refused:
        _read_by_spark(secured.settings(**fields), spark_stack)
    assert time.monotonic() - began < 15
    assert "canary" not in str(refused.value)


def _read_by_spark(settings: Settings, stack: Settings) -> int:
    from tidemark.engine.read.source import KafkaOptions, read_ranges
    from tidemark.engine.session.session import SparkSettings, open_session
    from tidemark.engine.session.spark_errors import translate_spark_errors

    options = KafkaOptions(bootstrap=settings.kafka_address, client=settings.kafka_java_options)
    pipeline = find_pipeline("trips", [PIPELINES])
    plan = plan_of(pipeline, 1, {TopicPartition("trips", 0): (0, len(BUSES))})
    spark = open_session(SparkSettings(master=stack.spark_address), f"secured-{time.monotonic_ns()}", 1)
    try:
        with translate_spark_errors():
            return int(read_ranges(spark, plan, next(iter(pipeline.inputs)), options).count())
    finally:
        spark.stop()
