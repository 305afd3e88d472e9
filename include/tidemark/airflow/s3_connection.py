"""Credentials of the warehouse's bucket out of an Airflow connection: into the environment of a task, and nowhere else.

Everything that a task does finds them there as it finds AWS's own variables: the store, deltalake, pyarrow, and the
`spark-submit` that it starts, whose driver hands them to its executors. Not for a Connect server, which looks in its
own environment.
"""

import os
from typing import TYPE_CHECKING, Any

from tidemark.errors import UsageError

if TYPE_CHECKING:
    from airflow.sdk import Connection

_EXTRAS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token", "region_name", "endpoint_url")
"""Of the amazon provider's connections, those that are honoured; another one would be lost without a word."""
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


def take_s3_connection() -> None:
    """Puts what the connection of `TIDEMARK_S3_CONNECTION` holds into this process's environment; called by tasks only.

    Its credentials replace those of the environment as a whole, and a profile too; endpoint and region stand behind
    settings of one's own. A connection without a key leaves AWS's chain of credentials in force. Called again it does
    the same again.

    Raises:
        UsageError: there is no such connection, half a key in it, or something that is not honoured. It never says what
            is in there.
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
    """What a connection holds, as variables.

    Args:
        connection: with a key as login and password or in its extras, as the amazon provider has it.
        name: its id.

    Raises:
        UsageError: half a key, or something that is not honoured.
    """
    extras: dict[str, Any] = connection.extra_dejson
    unknown = sorted(set(extras) - set(_EXTRAS))
    if unknown or connection.host:
        what = ", ".join(unknown) or "a host"
        raise _unfit(f"the connection {name} has {what}, which Tidemark does not honour", name)
    key = connection.login or extras.get(_EXTRAS[0])
    secret = connection.password or extras.get(_EXTRAS[1])
    if bool(key) != bool(secret):
        raise _unfit(f"the connection {name} has half a key", name)
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
        next=f"make the connection {name} in Airflow, of type aws, with the key as login and password, and at most"
        " region_name, endpoint_url and aws_session_token as extras.",
    )
