"""The embedded Kafka: one KRaft broker, which is also its controller, from the broker's jars.

Its data are in `<home>/kafka/data`, and survive the end of the process, however it ends.
"""

import base64
import os
import shutil
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from devstack.addresses import LOOPBACK, Addresses, accepts
from devstack.java import Java
from devstack.processes import rotated_log
from devstack.services import Service, require_java, service_environment
from tidemark.errors import TidemarkError
from tidemark.settings import Settings

PATIENCE = 90.0
FORMAT_TIMEOUT = 60.0


def prepare_broker(settings: Settings, addresses: Addresses) -> tuple[Service, ...]:
    """Write the broker's configuration, format its storage once, and return how to start it.

    Args:
        settings: the stack's settings.
        addresses: the stack's ports.

    Returns:
        The one service.
    """
    java = require_java()
    folder = settings.home / "kafka"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "data").exists():
        _format(settings, addresses, java)
    configuration = folder / "server.properties"
    configuration.write_text(server_properties(addresses, folder / "data"))
    argv = (*_launcher(settings, java), "-Xmx512m", "-XX:+UseSerialGC", "kafka.Kafka", str(configuration))
    return (
        Service(
            name="kafka",
            argv=argv,
            env=service_environment(settings),
            is_healthy=lambda _: accepts(addresses.kafka_port) and broker_answers(addresses.of("kafka")),
            patience=PATIENCE,
        ),
    )


def server_properties(addresses: Addresses, data: Path) -> str:
    """Return the broker's configuration.

    The state-log settings are for a cluster of one broker: with the defaults, transactions never start. Internal topics
    have one partition, so that the first consumer group and the first transaction start fast. A record may have 16 MiB,
    so that the topic's limit applies.
    """
    listen = f"{LOOPBACK}:{addresses.kafka_port}"
    control = f"{LOOPBACK}:{addresses.kafka_controller_port}"
    values = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{listen},CONTROLLER://{control}",
        "advertised.listeners": f"PLAINTEXT://{listen},CONTROLLER://{control}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": control,
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "message.max.bytes": str(16 * 1024 * 1024),
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
    }
    return "".join(f"{name}={value}\n" for name, value in values.items())


def broker_answers(bootstrap: str, options: Mapping[str, str] | None = None) -> bool:
    """Return whether a broker at these bootstrap servers answers a metadata request within two seconds.

    Args:
        bootstrap: `host:port`, several separated by commas.
        options: more librdkafka settings, for security.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **(options or {})})
        return bool(client.list_topics(timeout=2.0).brokers)
    except KafkaException:
        return False


def _launcher(settings: Settings, java: Java) -> tuple[str, ...]:
    logging = "-Dorg.slf4j.simpleLogger"
    return (
        str(java.executable),
        f"{logging}.showDateTime=true",
        f"{logging}.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSZ",
        "-cp",
        str(settings.jar_folder / "kafka" / "*"),
    )


def _format(settings: Settings, addresses: Addresses, java: Java) -> None:
    """Format the storage in a folder next to its final place and rename it: a kill leaves no half-formatted storage."""
    folder = settings.home / "kafka"
    partial = folder / "data.partial"
    shutil.rmtree(partial, ignore_errors=True)
    configuration = folder / "format.properties"
    configuration.write_text(server_properties(addresses, partial))
    tool = ("kafka.tools.StorageTool", "format", "--standalone", "-t", _cluster_id(), "-c", str(configuration))
    log = rotated_log(settings.home, "kafka-format")
    with log.open("wb") as output:
        answer = subprocess.run(
            [*_launcher(settings, java), *tool],
            env=service_environment(settings),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=FORMAT_TIMEOUT,
            check=False,
        )
    if answer.returncode != 0:
        raise TidemarkError(
            f"the broker's storage could not be formatted (exit code {answer.returncode})",
            safe="no data were touched.",
            next="tidemark logs kafka-format; tidemark doctor",
        )
    os.replace(partial, folder / "data")


def _cluster_id() -> str:
    """Return an id like Kafka's: 22 characters of URL-safe base64, without a leading dash, which is for options."""
    return "T" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
