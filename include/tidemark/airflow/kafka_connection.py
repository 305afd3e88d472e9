"""Kafka's address and credentials from an Airflow connection of type `kafka`, as its provider has it.

The extras of such a connection are options of librdkafka.
"""

from typing import TYPE_CHECKING, Any

from tidemark.airflow.connection_lookup import unfit_connection

if TYPE_CHECKING:
    from airflow.sdk import Connection

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
