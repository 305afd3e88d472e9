"""`tidemark topic …`: loads the real flights of 2013 and their tables into topics, exactly once."""

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.cli.output import JsonFlag, note, print_json
from tidemark.errors import BusyError

if TYPE_CHECKING:
    from rich.console import Console

    from devstack.demo.flights_data import FlightRecord
    from devstack.demo.topic_loader import Load
    from tidemark.settings import Settings

PARTITIONS = 4
_STEPS = 4
"""How many lines of progress to print without a terminal."""


class DataSet(StrEnum):
    """The data sets that you can load."""

    FLIGHTS = "flights"
    PLANES = "planes"
    AIRLINES = "airlines"


topic_app = typer.Typer(no_args_is_help=True, help="Load data sets into topics.")


def register(app: typer.Typer) -> None:
    """Adds `topic …` to the command line."""
    app.add_typer(topic_app, name="topic")


@topic_app.callback()
def _topic() -> None:
    """Load data sets into topics."""


@topic_app.command("load")
def load(
    dataset: Annotated[DataSet, typer.Argument(help="The data set, and the topic's name.")],
    replace: Annotated[bool, typer.Option("--replace", help="Delete the topic first (needs --execute).")] = False,
    execute: Annotated[
        bool, typer.Option("--execute", help="Delete the topic, with --replace (default: only show it, a dry run).")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Load a data set into its topic, exactly once.

    If the topic is already loaded, the command says so; if a load was interrupted, it completes it.

    Examples:
      tidemark topic load airlines
      tidemark topic load planes
      tidemark topic load flights
      tidemark topic load flights --replace --execute
    """
    from rich.console import Console

    from tidemark.settings import load_settings

    settings = load_settings()
    console = Console(stderr=True)
    if replace and not execute:
        _show_dry_run(dataset.value, settings.kafka_address, as_json=as_json)
        return
    if replace and not yes:
        typer.confirm(f"Delete topic {dataset.value} on Kafka at {settings.kafka_address}?", abort=True, err=True)
    began = time.monotonic()
    with _only_one(settings.home / "locks" / f"load-{dataset.value}.lock", dataset.value):
        done = _load(settings, dataset.value, replace=replace, console=console)
    _report(done, dataset.value, time.monotonic() - began, as_json=as_json)


def _load(settings: "Settings", topic: str, *, replace: bool, console: "Console") -> "Load":
    from devstack.demo.topic_loader import TopicLoader

    partitions, options = PARTITIONS if topic == DataSet.FLIGHTS else 1, settings.kafka_client_options
    loader = TopicLoader(settings.kafka_address, topic, partitions=partitions, options=options)
    if not replace:
        loader.prepare()
    records = _records(topic)
    if replace:
        loader.replace()
    with _progress(console, f"loading {topic}") as progress:
        return loader.load(records, progress)


def _records(topic: str) -> "list[FlightRecord]":
    from devstack.demo import flights_data
    from devstack.demo import reference_data as nyc_reference

    if topic == DataSet.FLIGHTS:
        return flights_data.read_flights()
    return nyc_reference.read_planes() if topic == DataSet.PLANES else nyc_reference.read_airlines()


def _show_dry_run(topic: str, bootstrap: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"topic": topic, "outcome": "would_replace"})
    note(
        f"would delete topic {topic} on Kafka at {bootstrap} with all its records, and load it again; "
        "pipelines that have read it must start over. Nothing was changed: add --execute."
    )


def _report(done: "Load", topic: str, seconds: float, *, as_json: bool) -> None:
    if as_json:
        counts = {"records": done.records, "sent": done.sent, "seconds": round(seconds, 3)}
        print_json({"topic": topic, "outcome": done.outcome.value} | counts)
    elif done.sent:
        typer.echo(f"topic {topic}: {done.records:,} records, {done.sent:,} sent now ({seconds:.1f} s)")
    else:
        typer.echo(f"topic {topic} already holds all {done.records:,} records; nothing was sent ({seconds:.1f} s)")


@contextmanager
def _progress(console: "Console", what: str) -> Iterator[Callable[[int, int], None]]:
    """Shows a bar on a terminal and a few plain lines elsewhere, both on stderr."""
    if not console.is_terminal:
        yield _plain(what)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _plain(what: str) -> Callable[[int, int], None]:
    shown = 0

    def progress(done: int, total: int) -> None:
        nonlocal shown
        step = done * _STEPS // total
        if step > shown:
            shown = step
            note(f"{what}: {done:,} of {total:,}")

    return progress


@contextmanager
def _only_one(path: Path, topic: str) -> Iterator[None]:
    """Allows only one load at a time: two loads would see the same positions, and send the same records twice."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BusyError(
                f"topic {topic} is being loaded by another process",
                safe="this command changed nothing.",
                next="wait for it to finish; you can repeat the command safely.",
            ) from error
        yield
