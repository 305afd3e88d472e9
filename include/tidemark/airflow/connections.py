"""The one place where Airflow's connections become settings, called before a task reads its settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tidemark.airflow.connection_lookup import find_connection, forget_variables, place_fields
from tidemark.airflow.kafka_connection import kafka_fields, registry_fields
from tidemark.airflow.s3_connection import connection_variables, is_without_credentials, place_credentials
from tidemark.airflow.spark_connection import connect_fields

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from tidemark.embedded_services import EmbeddedService
    from tidemark.settings import Settings


@dataclass(frozen=True, kw_only=True)
class ConnectionKind:
    """How Tidemark takes connections of one type.

    Attributes:
        conn_type: the type of connection in Airflow.
        setting: the setting that names a connection; an empty name takes none.
        address: the setting that, if set, makes a connection unnecessary, because credentials belong to their cluster;
            None = there is no such setting.
        takes_default: whether the default connection applies if the setting names none.
        read: returns the values that a connection with this id says; refuses a field that Tidemark does not support.
        place: sets the variables of this process for the values of the connection with this id.
        default: id of the default connection; empty = it is named after the type.
    """

    conn_type: str
    setting: str
    address: str | None
    takes_default: Callable[["Settings"], bool]
    read: Callable[["Connection", str], dict[str, str]]
    place: Callable[[str, Mapping[str, str], "Settings"], None] = place_fields
    default: str = ""


def is_down(service: "EmbeddedService", settings: "Settings") -> bool:
    """Whether an embedded service does not run; one that runs takes precedence over a default connection."""
    from tidemark.embedded_services import recorded_service

    return recorded_service(settings.home, service) is None


KINDS = (
    ConnectionKind(
        conn_type="kafka",
        setting="kafka_connection",
        address="kafka_bootstrap",
        takes_default=partial(is_down, "kafka"),
        read=kafka_fields,
    ),
    ConnectionKind(
        conn_type="spark_connect",
        setting="spark_connection",
        address="spark",
        takes_default=partial(is_down, "spark"),
        read=connect_fields,
    ),
    ConnectionKind(
        conn_type="aws",
        setting="s3_connection",
        address=None,
        takes_default=is_without_credentials,
        read=connection_variables,
        place=place_credentials,
    ),
    ConnectionKind(
        conn_type="http",
        setting="schema_registry_connection",
        address="schema_registry",
        takes_default=lambda settings: True,
        read=registry_fields,
        default="schema_registry_default",
    ),
)
"""Each type of connection."""


def take_connections() -> None:
    """Sets the variables that Airflow's connections say and that are not set; tasks call it, any number of times.

    It asks Airflow, so it is not for DAG files, and a coroutine must call it in a thread.

    Raises:
        UsageError: a connection is missing or cannot be honoured. The message never contains a value of it.
    """
    from tidemark.settings import load_settings

    forget_variables()
    settings = load_settings()
    for kind in KINDS:
        if kind.address is None or not getattr(settings, kind.address):
            take_connection(kind, settings)


def take_connection(kind: ConnectionKind, settings: "Settings") -> None:
    """Sets the variables that one connection says: the one that a setting names, or the default if Airflow has it.

    Args:
        kind: the connection's kind.
        settings: the settings without any connection.

    Raises:
        UsageError: as for `take_connections`.
    """
    from tidemark.settings import PREFIX

    named: str | None = getattr(settings, kind.setting)
    name = (kind.default or f"{kind.conn_type}_default") if named is None and kind.takes_default(settings) else named
    if not name:
        return
    found = find_connection(name, PREFIX + kind.setting.upper() if named else None, kind.conn_type)
    if found is not None:
        kind.place(name, kind.read(found, name), settings)
