"""The address and the token of a Spark Connect server from an Airflow connection of type `spark_connect`.

Host and port are the address, the login is the user, and the password is the token, as the provider of Spark has it.
"""

from typing import TYPE_CHECKING, Any

from tidemark.airflow.connection_lookup import find_connection, place_fields, unfit_connection
from tidemark.model.core.connect_address import add_parameter

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from tidemark.settings import Settings

DEFAULT = "spark_connect_default"
EXTRAS = ("use_ssl",)


def take_spark_connection(settings: "Settings") -> None:
    """Sets `TIDEMARK_SPARK` and `TIDEMARK_SPARK_TOKEN`, unless `TIDEMARK_SPARK` is set.

    The connection is `TIDEMARK_SPARK_CONNECTION`, or `spark_connect_default` if Airflow has it and no embedded server
    runs. The token is a variable of its own, so the address contains no secret.

    Raises:
        UsageError: the connection is missing, or has a field that Tidemark does not support. The message never
            contains a value of the connection.
    """
    from tidemark.embedded_services import recorded_service

    name = settings.spark_connection
    running = recorded_service(settings.home, "spark")
    if name is None and running is None:
        name = DEFAULT
    if not name:
        return
    named_by = "TIDEMARK_SPARK_CONNECTION" if settings.spark_connection else None
    found = find_connection(name, named_by, "spark_connect")
    if found is not None:
        place_fields(name, connect_fields(found, name), settings)


def connect_fields(connection: "Connection", name: str) -> dict[str, str]:
    """Returns the settings that a connection says.

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
