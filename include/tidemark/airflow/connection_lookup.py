"""Finds an Airflow connection, and sets the variables of this process that it describes.

All code of the task finds it there: this process, and the `spark-submit` that it starts, which inherits the variables
and has no secret on its command line. A variable that is set already is left alone.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, get_args

from airflow.sdk.log import mask_secret
from pydantic import SecretStr

from tidemark.errors import UsageError

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from tidemark.settings import Settings

_PLACED: dict[str, str] = {}
"""The variables that come from a connection. A process that lives on, such as the triggerer, replaces them."""


def find_connection(name: str, named_by: str | None, kind: str) -> "Connection | None":
    """Returns a connection; None if no setting names it and Airflow has none, or one of another type.

    Args:
        name: the connection's id.
        named_by: the variable that names it; None = it is the default of its kind.
        kind: the type that it must have.

    Raises:
        UsageError: a variable names a connection that Airflow does not have, or one of another type.
    """
    from airflow.sdk import Connection
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        found: Connection = Connection.get(name)
    except AirflowNotFoundException:
        if named_by is None:
            return None
        raise unfit_connection(
            f"Airflow has no connection {name}, which {named_by} names",
            next=f"create the connection {name} in Airflow, of type {kind}, or correct {named_by}.",
        ) from None
    if found.conn_type == kind:
        return found
    if named_by is None:
        return None
    raise unfit_connection(
        f"the connection {name}, which {named_by} names, is of type {found.conn_type}",
        next=f"create a connection of type {kind}, or correct {named_by}.",
    )


def unfit_connection(what: str, *, next: str) -> UsageError:  # noqa: A002
    """Returns the error of a connection that Tidemark cannot honour as a whole; it contains none of its values."""
    return UsageError(what, safe="nothing was read or written.", next=next)


def place_fields(name: str, fields: Mapping[str, str], settings: "Settings") -> None:
    """Sets the variables of some settings, except those that are set already, and hides secrets from Airflow's logs.

    Args:
        name: the connection's id.
        fields: values by the name of their setting.
        settings: the settings without any connection.

    Raises:
        UsageError: the values do not fit each other or the settings.
    """
    from tidemark.settings import PREFIX, Settings, load_settings

    wanted: dict[str, str] = {}
    for field, value in fields.items():
        declared = Settings.model_fields[field]
        if SecretStr in get_args(declared.annotation):
            mask_secret(value)
        is_open = getattr(settings, field) in (None, declared.default)
        if is_open and getattr(settings, f"{field}_file", None) is None:
            wanted[field] = value
    try:
        load_settings(**wanted)
    except UsageError as error:
        raise unfit_connection(
            f"the connection {name} does not fit: {error.what.removeprefix('invalid settings: ')}",
            next=f"correct the connection {name} in Airflow, or the variables that belong to it.",
        ) from None
    place_variables({PREFIX + field.upper(): value for field, value in wanted.items()})


def place_variables(variables: Mapping[str, str]) -> None:
    """Sets variables of this process, until `forget_variables`."""
    os.environ.update(variables)
    _PLACED.update(variables)


def forget_variables() -> None:
    """Unsets the variables that earlier calls have set: their connections may have changed since."""
    for variable, value in _PLACED.items():
        if os.environ.get(variable) == value:
            del os.environ[variable]
    _PLACED.clear()
