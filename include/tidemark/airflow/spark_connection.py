"""The address and the token of a Spark Connect server from an Airflow connection of type `spark_connect`.

Host and port are the address, the login is the user, and the password is the token, as the provider of Spark has it.
"""

from typing import TYPE_CHECKING, Any

from tidemark.airflow.connection_lookup import unfit_connection
from tidemark.model.core.connect_address import add_parameter

if TYPE_CHECKING:
    from airflow.sdk import Connection

EXTRAS = ("use_ssl",)


def connect_fields(connection: "Connection", name: str) -> dict[str, str]:
    """Returns the settings that a connection says. The token is one of its own, so the address contains no secret.

    Raises:
        UsageError: it has no host, a path, or an extra that Tidemark does not support.
    """
    extras: dict[str, Any] = connection.extra_dejson
    unknown = sorted(set(extras) - set(EXTRAS))
    if unknown or connection.schema:
        raise unfit_connection(
            f"the connection {name} has {', '.join(unknown) or 'a schema'}, which Tidemark does not support",
            next=f"remove it from the connection {name}; the only extra is use_ssl.",
        )
    host = (connection.host or "").removeprefix("sc://").rstrip("/")
    if not host or any(mark in host for mark in "/;@ "):
        raise unfit_connection(
            f"the connection {name} has no host, or one with more than a name and a port",
            next=f"give the connection {name} a host and a port in Airflow.",
        )
    address = f"sc://{host}:{connection.port}" if connection.port else f"sc://{host}"
    if "use_ssl" in extras:
        address = add_parameter(address, "use_ssl", str(extras["use_ssl"]).lower())
    if connection.login:
        address = add_parameter(address, "user_id", connection.login)
    return {"spark": address} | ({"spark_token": connection.password} if connection.password else {})
