"""`tidemark state show | export | hash | lineage | diff | sql | query`: read resolved state without Spark."""

from pathlib import Path
from typing import Annotated

import typer

from tidemark.cli.checkpoint_id import At, AtSavepoint, chosen_id
from tidemark.cli.option_groups import PipelineName, with_options
from tidemark.cli.output import JsonFlag, note, show_fields, show_rows
from tidemark.cli.plain import python_rows
from tidemark.cli.sources import state_lineage
from tidemark.cli.state_diff import diff
from tidemark.cli.state_sql import query, sql
from tidemark.context import open_context
from tidemark.errors import NotFoundError
from tidemark.operations import queries, reads

Uid = Annotated[str, typer.Argument(metavar="UID", help="The operator.")]
Operator = Annotated[tuple[str, str], typer.Argument(metavar="PIPELINE UID", help="A pipeline and its operator.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(help="Read keyed state as of a checkpoint.", no_args_is_help=True)
    group.command("show")(show)
    group.command("export")(export)
    group.command("hash")(hash_)
    group.command("lineage")(state_lineage)
    group.command("source", hidden=True)(state_lineage)  # the old name, an alias
    group.command("diff")(with_options(diff))
    group.command("sql")(sql)
    group.command("query")(query)
    app.add_typer(group, name="state")


def show(
    operator: Operator,
    key: Annotated[
        list[str] | None,
        typer.Option(
            help="Show this key: give it once per key column, in the order of key_by (default: the first keys)."
        ),
    ] = None,
    checkpoint: At = None,
    savepoint: AtSavepoint = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many keys, without --key.")] = 20,
    as_json: JsonFlag = False,
) -> None:
    """Show one key of an operator's state, or the first keys.

    Examples:
      tidemark state show flights aircraft --key N14228
      tidemark state show flights routes --key EWR --key ORD --checkpoint chk-3
      tidemark state show flights aircraft --key N14228 --savepoint before-upgrade
      tidemark state show flights aircraft --limit 5 --json
    """
    context, (pipeline, uid) = open_context(), operator
    at = chosen_id(context, pipeline, checkpoint, savepoint)
    table = reads.read_state(context, pipeline, uid, checkpoint=at, key=key, limit=limit)
    rows = python_rows(table)
    if key is not None and not rows:
        raise NotFoundError(
            f"{uid} has no state for {'/'.join(key)}" + (f" at chk-{at}" if at else ""),
            next=f"tidemark state show {pipeline} {uid}    (lists keys).",
        )
    show_rows(rows, as_json=as_json, empty=f"{uid} is empty")


def export(
    pipeline: PipelineName,
    uid: Uid,
    to: Annotated[Path, typer.Option(help="Write to this file: .parquet or .csv.")],
    checkpoint: At = None,
    savepoint: AtSavepoint = None,
    as_json: JsonFlag = False,
) -> None:
    """Write an operator's state to a file, one row per live key: key columns, state fields and `_changed`.

    Examples:
      tidemark state export flights aircraft --to aircraft.parquet
      tidemark state export flights routes --to routes.csv --checkpoint chk-3
      tidemark state export flights routes --to routes.csv --savepoint before-upgrade
    """
    context = open_context()
    at = chosen_id(context, pipeline, checkpoint, savepoint)
    rows = reads.write_state_file(context, pipeline, uid, to, checkpoint=at)
    show_fields({"rows": rows, "file": str(to)}, as_json=as_json)
    note(f"wrote {rows} keys of {uid}")


def hash_(
    pipeline: PipelineName,
    uid: Uid,
    checkpoint: At = None,
    savepoint: AtSavepoint = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the hash of an operator's state: it is equal if the same keys hold the same values, in any order.

    The hash leaves out floating-point sums and means, and the checkpoint that last changed a key.

    Examples:
      tidemark state hash flights aircraft
      tidemark state hash flights aircraft --checkpoint chk-3 --json
      tidemark state hash flights aircraft --savepoint before-upgrade
    """
    context = open_context()
    found, made = queries.hash_state(context, pipeline, uid, chosen_id(context, pipeline, checkpoint, savepoint))
    fields = {"checkpoint": found.plan.name, "uid": uid, "sha256": made.sha256, "rows": made.rows}
    show_fields({**fields, "left_out": list(made.left_out)}, as_json=as_json)
