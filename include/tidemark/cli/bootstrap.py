"""`tidemark bootstrap`: start a pipeline from existing state in tables."""

import json
from pathlib import Path
from typing import Annotated

import typer

from tidemark.cli.exports import import_facts
from tidemark.cli.option_groups import Execute, PipelineName, parse_time
from tidemark.cli.output import JsonFlag, note, show_fields
from tidemark.context import open_context
from tidemark.coordinator.plans.bootstrap_offsets import Starts
from tidemark.errors import UsageError
from tidemark.model.core.offsets import TopicPartition
from tidemark.operations import bootstrap as bootstrap_operations
from tidemark.operations.bootstrap import BootstrapRequest

_STARTS = (
    "Read on from here: `earliest`, `latest`, TOPIC:PARTITION=OFFSET (once per partition), or a JSON file that maps"
    " topics to partitions to offsets."
)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("bootstrap")(bootstrap)


def bootstrap(
    pipeline: PipelineName,
    tables: Annotated[
        list[str],
        typer.Argument(metavar="UID=TABLE...", help="An operator and its table: Parquet or Delta, a row per key."),
    ],
    starts: Annotated[list[str], typer.Option("--starts", metavar="WHERE", help=_STARTS)],
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Set when keys were last accessed; required if any state has a ttl."),
    ] = None,
    execute: Execute = False,
    as_json: JsonFlag = False,
) -> None:
    """Start a new pipeline from state that you have in tables, and read on from the offsets that you give.

    The pipeline must not have a checkpoint yet. A table has the operator's key columns and one column per field of its
    state. Every row is checked before anything is written. Operators without a table start empty.

    Examples:
      tidemark bootstrap flights aircraft=/data/aircraft.parquet --starts latest
      tidemark bootstrap flights routes=/data/routes --starts flights:0=100 --starts flights:1=80 --execute
    """
    request = BootstrapRequest(
        pipeline=pipeline,
        tables=dict(_split_pair(text, "UID=TABLE") for text in tables),
        starts=parse_starts(starts),
        at=None if at is None else parse_time(at),
    )
    context = open_context()
    done = (
        bootstrap_operations.bootstrap(context, request)
        if execute
        else bootstrap_operations.plan_bootstrap(context, request)
    )
    show_fields({k: v for k, v in import_facts(done).items() if k not in ("from", "left_behind")}, as_json=as_json)
    note(f"Next: tidemark run {pipeline}" if done.checkpoint else "Next: the same command with --execute")


def parse_starts(texts: list[str]) -> Starts:
    """Parses `--starts`.

    Raises:
        UsageError: the value has none of the forms, or mixes them.
    """
    if texts == ["earliest"]:
        return "earliest"
    if texts == ["latest"]:
        return "latest"
    if len(texts) == 1 and "=" not in texts[0]:
        return _from_file(Path(texts[0]))
    pairs = dict(_split_pair(text, "TOPIC:PARTITION=OFFSET") for text in texts)
    return {_partition(place): _number(offset) for place, offset in pairs.items()}


def _from_file(path: Path) -> dict[TopicPartition, int]:
    try:
        topics = json.loads(path.read_text())
        return {TopicPartition(t, int(p)): _number(str(n)) for t, parts in topics.items() for p, n in parts.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{path} holds no start offsets: {error}",
            next='write {"topic": {"0": 12, "1": 7}}, or give earliest or latest.',
        ) from error


def _split_pair(text: str, form: str) -> tuple[str, str]:
    left, equals, right = text.partition("=")
    if not (left and equals and right):
        raise UsageError(f"{text!r} is not of the form {form}", next=f"write {form}.")
    return left, right


def _partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition(":")
    if not topic:
        raise UsageError(f"{text!r} is not of the form TOPIC:PARTITION", next="write for example flights:0=12.")
    return TopicPartition(topic, _number(number))


def _number(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"{text!r} is not a number", next="write partitions and offsets as numbers from 0.")
    return int(text)
