"""`tidemark sink show`, with `source`: what operators emitted, as of a checkpoint, read without Spark."""

from typing import Annotated

import typer

from tidemark.cli.checkpoint_id import At, AtSavepoint, chosen_id
from tidemark.cli.output import JsonFlag, show_rows
from tidemark.cli.run import PipelineName
from tidemark.cli.sources import sink_source
from tidemark.wiring import open_runtime


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(help="Read what operators emitted, as of a checkpoint.", no_args_is_help=True)
    group.command("show")(show)
    group.command("source")(sink_source)
    app.add_typer(group, name="sink")


def show(
    pipeline: PipelineName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The sink.")],
    checkpoint: At = None,
    savepoint: AtSavepoint = None,
    limit: Annotated[int, typer.Option(min=1, help="Show the last so many rows.")] = 20,
    as_json: JsonFlag = False,
) -> None:
    """Show the last rows of a sink: emitted fields, who emitted them, for which record, and the checkpoint.

    Examples:
      tidemark sink show flights long_turnarounds
      tidemark sink show flights long_turnarounds --checkpoint chk-3 --limit 5 --json
      tidemark sink show flights long_turnarounds --savepoint before-upgrade
    """
    runtime = open_runtime()
    at = chosen_id(runtime, pipeline, checkpoint, savepoint)
    table = runtime.sink_table(pipeline, name, checkpoint=at, limit=limit)
    show_rows(table.to_pylist(), as_json=as_json, empty=f"{name} is empty")
