"""Runs the weather demo: the stack with a schema registry, the input, four quarters, a kill, a restore, the comparison.

Run it with `python -m devstack.weather`. You can repeat it: it keeps existing results and adds missing ones. The stack
keeps running at the end, so that you can look around.
"""

import os
import sys
import time

from devstack import control
from devstack.addresses import exclusive
from devstack.credentials import ADMIN
from devstack.demo.summary import lines_of, table_of
from devstack.demo.topic import DataSet, load
from devstack.demo.topic_loader import TopicLoader
from devstack.demo_stack import airflow_login, ended_service, stop_other_airflow
from devstack.weather.punctuality_story import PunctualityStory
from devstack.weather.registry_service import NAME, VARIABLE, DemoRegistry, start_registry
from devstack.weather.weather_checking import PIPELINE
from devstack.weather.weather_records import REFERENCES, read_weather
from devstack.weather.weather_story import WeatherStory
from tidemark.cli.airflow_api import AirflowApi
from tidemark.cli.output import complain, note, show_rows
from tidemark.context import open_context
from tidemark.errors import TidemarkError
from tidemark.operations import reads
from tidemark.settings import Settings, load_settings


def main() -> int:
    """Runs the demo; the exit code is 0 if every row agrees."""
    began = time.monotonic()
    try:
        settings = load_settings()
        with exclusive(settings.home / "locks" / "demo-weather.lock", note):
            demonstrate(settings)
    except TidemarkError as error:
        complain(error)
        return error.code
    except KeyboardInterrupt:
        note(
            "interrupted\nSafe: every completed checkpoint is intact.\nNext: make demo-weather again, or tidemark down."
        )
        return 130
    note(f"\nthe demo took {time.monotonic() - began:.0f} s; tidemark down stops the stack")
    return 0


def demonstrate(settings: Settings) -> None:
    """Starts the stack, loads the data, makes checkpoints, checks the rows, and prints the result.

    Args:
        settings: the project's settings.

    Raises:
        TidemarkError: a step failed, or rows differ.
    """
    _head("the stack")
    registry = start_registry(settings)
    os.environ[VARIABLE] = registry.address
    note(f"{NAME}: {registry.address}")
    stop_other_airflow(settings, {VARIABLE: registry.address})
    control.up(settings, report=note)
    _head("the input")
    load_topics(load_settings(), registry)
    context, login = open_context(load_settings()), airflow_login(settings)
    api = AirflowApi(settings.airflow_address, ADMIN, login.airflow_admin_password)
    story = WeatherStory(api=api, context=context, dead=lambda: ended_service(settings), head=_head)
    story.run()
    _head("every row, recomputed from the data set")
    story.check()
    _head("windows, timers and a join of event time: four more DAG runs, and every row of their sinks")
    punctuality = PunctualityStory(api=api, context=context, dead=lambda: ended_service(settings))
    punctuality.run()
    punctuality.check()
    _head("checkpoints")
    show_rows(table_of(lines_of(context, PIPELINE), reads.list_released(context, PIPELINE)), as_json=False)
    sys.stdout.write(f"\nAirflow  {settings.airflow_address}/dags/{PIPELINE}\n")
    sys.stdout.write(f"login    {ADMIN} / {login.airflow_admin_password}\n")


def load_topics(settings: Settings, registry: DemoRegistry) -> None:
    """Fills the four topics, each exactly once.

    Args:
        settings: the project's settings.
        registry: the schema registry, which gets the schemas of planes and airlines.

    Raises:
        TidemarkError: the broker did not answer, or a topic holds other records.
    """
    load(DataSet.FLIGHTS)
    found = {"weather": read_weather()}
    for topic in REFERENCES:
        found[topic.name] = topic.read(registry.register(f"{topic.name}-value", topic.schema))
    for name, records in found.items():
        options = settings.kafka_client_options
        done = TopicLoader(settings.kafka_address, name, partitions=1, options=options).load(records)
        note(f"topic {name}: {done.records:,} records, {done.sent:,} sent now")


def _head(title: str) -> None:
    note(f"\n== {title}")


if __name__ == "__main__":
    sys.exit(main())
