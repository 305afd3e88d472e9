"""Copies the credentials of the warehouse's bucket from an Airflow connection to the environment of a task.

All code in the task finds them there, under AWS's own variable names: the store, deltalake, pyarrow, and the
`spark-submit` that the task starts, whose driver passes them to its executors. A Connect server does not see them: it
reads its own environment.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidemark.airflow.connection_lookup import place_variables, unfit_connection
from tidemark.errors import UsageError
from tidemark.model.core.names import S3Url

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from tidemark.settings import Settings

_EXTRAS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token", "region_name", "endpoint_url")
"""Extras of the amazon provider's connections that Tidemark supports; it refuses others, rather than ignore them."""
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_OTHERS: tuple[str, ...] = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE")
_OTHERS += ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
"""Variables from which AWS's own chain takes credentials."""


def is_without_credentials(settings: "Settings") -> bool:
    """Whether the warehouse is in a bucket and the environment has no credentials for it."""
    return isinstance(settings.warehouse, S3Url) and not any(os.environ.get(other) for other in _OTHERS)


def place_credentials(_name: str, variables: Mapping[str, str], settings: "Settings") -> None:
    """Copies the credentials of a connection to this process's environment.

    They replace all credentials in the environment, including a profile. The settings for endpoint and region take
    precedence over the connection's. If the connection has no key, AWS's chain of credentials applies.

    Args:
        _name: the connection's id, which no variable needs.
        variables: see `connection_variables`.
        settings: the settings without any connection.
    """
    if _KEYS[0] in variables:
        for variable in (*_KEYS, "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
            os.environ.pop(variable, None)
    chosen = {"TIDEMARK_S3_ENDPOINT": settings.s3_endpoint, "TIDEMARK_S3_REGION": settings.s3_region}
    place_variables({v: value for v, value in variables.items() if not chosen.get(v)})


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


def _unfit(what: str, name: str) -> UsageError:
    return unfit_connection(
        what,
        next=f"create the connection {name} in Airflow, of type aws, with the key as login and password, and no extras"
        " except region_name, endpoint_url and aws_session_token. An empty TIDEMARK_S3_CONNECTION takes no connection.",
    )
