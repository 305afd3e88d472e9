"""Kafka's address and credentials from an Airflow connection of type `kafka`, as its provider has it.

The extras of such a connection are options of librdkafka.
"""

from typing import TYPE_CHECKING, Any

from tidemark.airflow.connection_lookup import find_connection, place_fields, unfit_connection

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from tidemark.settings import Settings

DEFAULT = "kafka_default"
SETTINGS = {
    "bootstrap.servers": "kafka_bootstrap",
    "metadata.broker.list": "kafka_bootstrap",
    "security.protocol": "kafka_security_protocol",
    "sasl.mechanism": "kafka_sasl_mechanism",
    "sasl.mechanisms": "kafka_sasl_mechanism",
    "sasl.username": "kafka_sasl_username",
    "sasl.password": "kafka_sasl_password",
    "ssl.ca.location": "kafka_ssl_ca",
    "ssl.certificate.location": "kafka_ssl_certificate",
    "ssl.key.location": "kafka_ssl_key",
    "ssl.key.password": "kafka_ssl_key_password",
}
"""The setting for each option of librdkafka that says where the cluster is and who connects."""
OF_ONE_CLIENT = frozenset(
    ("auto.commit.interval.ms", "auto.offset.reset", "client.id", "enable.auto.commit", "enable.auto.offset.store")
    + ("group.id", "max.poll.interval.ms", "session.timeout.ms")
)
"""Options of one consumer, which the provider's own operators need in the same connection. Tidemark's clients have
their own."""


def take_kafka_connection(settings: "Settings") -> None:
    """Sets the variables of Kafka, unless `TIDEMARK_KAFKA_BOOTSTRAP` is set: credentials belong to their cluster.

    The connection is `TIDEMARK_KAFKA_CONNECTION`, or `kafka_default` if Airflow has it and no embedded broker runs.

    Raises:
        UsageError: the connection is missing, or has an option that Tidemark does not support. The message never
            contains a value of the connection.
    """
    from tidemark.embedded_services import recorded_service

    name = settings.kafka_connection
    running = recorded_service(settings.home, "kafka")
    if name is None and running is None:
        name = DEFAULT
    if not name:
        return
    found = find_connection(name, "TIDEMARK_KAFKA_CONNECTION" if settings.kafka_connection else None, "kafka")
    if found is not None:
        place_fields(name, kafka_fields(found, name), settings)


def kafka_fields(connection: "Connection", name: str) -> dict[str, str]:
    """Returns the settings that a connection's extras say.

    Raises:
        UsageError: it has an option that Tidemark does not support, or no address.
    """
    extras: dict[str, Any] = connection.extra_dejson
    unknown = sorted(set(extras) - set(SETTINGS) - OF_ONE_CLIENT)
    unknown += [f"a {field}" for field in ("host", "login", "password") if getattr(connection, field)]
    if unknown:
        raise unfit_connection(
            f"the connection {name} has {', '.join(unknown)}, which Tidemark does not support",
            next=f"remove it from the connection {name}, or set TIDEMARK_KAFKA_CONNECTION to one that has only"
            f" {', '.join(SETTINGS)}.",
        )
    fields = {SETTINGS[option]: str(value) for option, value in extras.items() if option in SETTINGS and value}
    if "kafka_bootstrap" not in fields:
        raise unfit_connection(
            f"the connection {name} has no bootstrap.servers", next=f"add it to the extras of {name} in Airflow."
        )
    return fields
