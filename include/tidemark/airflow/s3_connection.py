"""Copies the credentials of the warehouse's bucket from an Airflow connection to the environment of a task.

All code in the task finds them there, under AWS's own variable names: the store, deltalake, pyarrow, and the
`spark-submit` that the task starts, whose driver passes them to its executors. A Connect server does not see them: it
reads its own environment.
"""

import os
from typing import TYPE_CHECKING, Any

from tidemark.errors import UsageError

if TYPE_CHECKING:
    from airflow.sdk import Connection

_EXTRAS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token", "region_name", "endpoint_url")
"""Extras of the amazon provider's connections that Tidemark supports; it refuses others, rather than ignore them."""
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


def take_s3_connection() -> None:
    """Copies the connection that `TIDEMARK_S3_CONNECTION` names to this process's environment; only tasks call it.

    Its credentials replace all credentials in the environment, including a profile. The settings for endpoint and
    region take precedence over the connection's. If the connection has no key, AWS's chain of credentials applies. You
    can call the function repeatedly.

    Raises:
        UsageError: there is no such connection, or it has only half a key or an unsupported field. The message never
            contains a value of the connection.
    """
    from tidemark.settings import load_settings

    settings = load_settings()
    if not settings.s3_connection:
        return
    variables = connection_variables(_connection(settings.s3_connection), settings.s3_connection)
    if _KEYS[0] in variables:
        for name in (*_KEYS, "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
            os.environ.pop(name, None)
    chosen = {"TIDEMARK_S3_ENDPOINT": settings.s3_endpoint, "TIDEMARK_S3_REGION": settings.s3_region}
    os.environ |= {name: value for name, value in variables.items() if not chosen.get(name)}


def connection_variables(connection: "Connection", name: str) -> dict[str, str]:
    """Returns a connection's fields as environment variables.

    Args:
        connection: a connection with a key as login and password or in its extras, as for the amazon provider.
        name: the connection's id.

    Raises:
        UsageError: the connection has only half a key or an unsupported field.
    """
    extras: dict[str, Any] = connection.extra_dejson
    unknown = sorted(set(extras) - set(_EXTRAS))
    if unknown or connection.host:
        what = ", ".join(unknown) or "a host"
        raise _unfit(f"the connection {name} has {what}, which Tidemark does not support", name)
    key = connection.login or extras.get(_EXTRAS[0])
    secret = connection.password or extras.get(_EXTRAS[1])
    if bool(key) != bool(secret):
        raise _unfit(f"the connection {name} has only half a key", name)
    values = (key, secret, extras.get(_EXTRAS[2]), extras.get("region_name"), extras.get("endpoint_url"))
    names = (*_KEYS, "TIDEMARK_S3_REGION", "TIDEMARK_S3_ENDPOINT")
    return {name: str(value) for name, value in zip(names, values, strict=True) if value}


def _connection(name: str) -> "Connection":
    from airflow.sdk import Connection
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        found: Connection = Connection.get(name)
    except AirflowNotFoundException:
        raise _unfit(f"Airflow has no connection {name}, which TIDEMARK_S3_CONNECTION names", name) from None
    return found


def _unfit(what: str, name: str) -> UsageError:
    return UsageError(
        what,
        safe="nothing was read or written.",
        next=f"create the connection {name} in Airflow, of type aws, with the key as login and password, and no extras"
        " except region_name, endpoint_url and aws_session_token.",
    )
