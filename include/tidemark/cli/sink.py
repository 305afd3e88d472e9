"""`tidemark sink list | show | source | skip | skipped`: emitted records, and their delivery."""

from typing import Annotated

import typer

from tidemark.cli.checkpoint_id import At, AtSavepoint, chosen_id
from tidemark.cli.option_groups import Execute, PipelineName
from tidemark.cli.output import JsonFlag, note, print_json, show_fields, show_rows
from tidemark.cli.plain import python_rows
from tidemark.cli.sources import sink_source
from tidemark.context import open_context
from tidemark.environment import user_name
from tidemark.model.checkpoint.codec import body_of
from tidemark.operations import sinks


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(help="Read emitted records, and skip those that cannot be sent.", no_args_is_help=True)
    group.command("list")(list_sinks)
    group.command("show")(show)
    group.command("source")(sink_source)
    group.command("skip")(skip)
    group.command("skipped")(skipped)
    app.add_typer(group, name="sink")


def show(
    pipeline: PipelineName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The sink.")],
    checkpoint: At = None,
    savepoint: AtSavepoint = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many rows, the last ones.")] = 20,
    as_json: JsonFlag = False,
) -> None:
    """Show the last rows of a sink: the emitted fields, and the operator, record and checkpoint that emitted them.

    Examples:
      tidemark sink show flights long_turnarounds
      tidemark sink show flights long_turnarounds --checkpoint chk-3 --limit 5 --json
      tidemark sink show flights long_turnarounds --savepoint before-upgrade
    """
    context = open_context()
    at = chosen_id(context, pipeline, checkpoint, savepoint)
    table = sinks.read_sink(context, pipeline, name, checkpoint=at, limit=limit)
    show_rows(python_rows(table, maps="strict"), as_json=as_json, empty=f"{name} is empty")


def list_sinks(pipeline: PipelineName, as_json: JsonFlag = False) -> None:
    """List the sinks of a pipeline: records that wait to be sent to Kafka, since when, and why they were not sent.

    Examples:
      tidemark sink list flights
      tidemark sink list flights --json
    """
    found = sinks.list_sinks(open_context(), pipeline)
    if as_json:
        print_json(found)
        return
    rows = [
        {
            "sink": sink.sink,
            "topic": sink.topic,
            "waiting checkpoints": len(sink.waiting.checkpoints),
            "records": sink.waiting.records,
            "since": sink.waiting.since,
            "skipped": sink.skipped,
            "last failure": None if sink.failure is None else sink.failure.what,
        }
        for sink in found
    ]
    show_rows(rows, as_json=False, empty=f"{pipeline} has no sinks")
    for sink in found:
        if sink.failure is not None:
            note(f"Next, for {sink.sink}: {sink.failure.next}")


def skip(
    pipeline: PipelineName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The sink.")],
    record: Annotated[str, typer.Argument(metavar="RECORD-ID", help="The id of a record that Kafka rejected.")],
    why: Annotated[str, typer.Option("--note", help="Add the reason, for people.")] = "",
    execute: Execute = False,
    as_json: JsonFlag = False,
) -> None:
    """Skip a record that Kafka rejects, for good. The next run sends the records that wait behind it.

    The record stays in the outbox as long as its checkpoint is kept, and in the list of skipped records.

    Examples:
      tidemark sink skip flights alerts flights/t1/chk-7/alerts/flights-0-4711-0
      tidemark sink skip flights alerts flights/t1/chk-7/alerts/flights-0-4711-0 --execute
      tidemark sink skip flights alerts flights/t1/chk-7/alerts/flights-0-4711-0 --note "case 12" --execute --json
    """
    found = sinks.skip_record(open_context(), pipeline, name, record, user_name() if execute else "", why)
    show_fields(found, as_json=as_json)
    if as_json:
        return
    if found.skipped:
        note(f"Next: tidemark run {pipeline}    (sends the records behind it)")
    else:
        note(f"Next: tidemark sink skip {pipeline} {name} {record} --execute")


def skipped(
    pipeline: PipelineName,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A sink (default: all sinks).")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List the skipped records by id: the dead letters of sinks.

    Examples:
      tidemark sink skipped flights
      tidemark sink skipped flights alerts --json
    """
    found = sinks.list_skipped_records(open_context(), pipeline, name)
    show_rows([body_of(record) for record in found], as_json=as_json, empty="no record was skipped")
