"""The one place where Airflow's connections become settings, called before a task reads its settings."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidemark.airflow.connection_lookup import forget_variables
from tidemark.airflow.kafka_connection import take_kafka_connection
from tidemark.airflow.s3_connection import take_s3_connection
from tidemark.airflow.spark_connection import take_spark_connection

if TYPE_CHECKING:
    from tidemark.settings import Settings

KINDS: dict[str, tuple[Callable[["Settings"], None], str | None]] = {
    "kafka": (take_kafka_connection, "kafka_bootstrap"),
    "spark_connect": (take_spark_connection, "spark"),
    "aws": (take_s3_connection, None),
}
"""For each type of connection the function that takes it, and the setting that, if set, makes it unnecessary. A schema
registry will be one more line."""


def take_connections() -> None:
    """Sets the variables that Airflow's connections say and that are not set; tasks call it, any number of times.

    It asks Airflow, so it is not for DAG files, and a coroutine must call it in a thread.

    Raises:
        UsageError: a connection is missing or cannot be honoured. The message never contains a value of it.
    """
    from tidemark.settings import load_settings

    forget_variables()
    settings = load_settings()
    for take, enough in KINDS.values():
        if enough is None or not getattr(settings, enough):
            take(settings)
