"""Kafka's address and credentials, and those of its schema registry, from Airflow connections.

Kafka's has type `kafka`, as its provider has it: the extras are options of librdkafka. The registry's has type `http`.
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


REGISTRY_EXTRAS = {name: f"schema_registry_{name}" for name in ("ssl_ca", "ssl_certificate", "ssl_key")}
"""The setting for each extra of a registry's connection; the values are paths on the worker."""


def registry_fields(connection: "Connection", name: str) -> dict[str, str]:
    """Returns the settings that a connection to a schema registry says. Its `schema` is http or https, http if empty.

    Raises:
        UsageError: it has a field that Tidemark does not support, or no host.
    """
    extras: dict[str, Any] = connection.extra_dejson
    unknown = sorted(set(extras) - set(REGISTRY_EXTRAS))
    if unknown:
        raise unfit_connection(
            f"the connection {name} has {', '.join(unknown)}, which Tidemark does not support",
            next=f"remove it from the connection {name}; extras may be {', '.join(REGISTRY_EXTRAS)}.",
        )
    host = (connection.host or "").strip("/")
    if not host:
        raise unfit_connection(f"the connection {name} has no host", next=f"add it to {name} in Airflow.")
    scheme, _, place = host.rpartition("://")
    where, slash, path = place.partition("/")
    port = f":{connection.port}" if connection.port else ""
    address = f"{scheme or connection.schema or 'http'}://{where}{port}{slash}{path}"
    fields = {
        "schema_registry": address,
        "schema_registry_user": connection.login or "",
        "schema_registry_password": connection.password or "",
        **{REGISTRY_EXTRAS[extra]: str(value) for extra, value in extras.items()},
    }
    return {setting: value for setting, value in fields.items() if value}
