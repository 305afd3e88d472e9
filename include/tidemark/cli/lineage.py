"""`tidemark lineage columns`: which fields of records make a column, which decide it, and what depends on it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.cli.checkpoint_id import AtSavepoint, chosen_id
from tidemark.cli.option_groups import PipelineName, with_options
from tidemark.cli.output import JsonFlag, note, print_json, show_fields, show_rows
from tidemark.context import Context, open_context
from tidemark.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidemark.answers.column_facts import ColumnLinks, LinkedColumn
    from tidemark.web.columns import PipelineColumns


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(help="Show which fields make which columns.", no_args_is_help=True)
    group.command("columns")(with_options(columns))
    app.add_typer(group, name="lineage")


@dataclass(frozen=True, kw_only=True)
class Directions:
    """Options that select one direction."""

    upstream: Annotated[bool, typer.Option("--upstream", help="Show only the columns that it depends on.")] = False
    downstream: Annotated[bool, typer.Option("--downstream", help="Show only the columns that depend on it.")] = False


def columns(
    pipeline: PipelineName,
    shows: Directions,
    column: Annotated[
        str | None, typer.Option(metavar="DATASET.COLUMN", help="Follow this column in both directions.")
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Read what this checkpoint recorded (default: what the file declares)."),
    ] = None,
    savepoint: AtSavepoint = None,
    as_json: JsonFlag = False,
) -> None:
    """Show which fields of records make each column of states, outputs, sinks and publications.

    A field makes a column if the column's value is computed from it; it decides a column if it only filters, groups,
    joins or orders the records. A function may use any field of its records, unless it declares reads=.

    Columns are named DATASET.COLUMN; the dataset is a source, an operator, an output, a sink or a publication. If two
    of them have the same name, write for example state:alerts.carrier or output:alerts.carrier.

    Examples:
      tidemark lineage columns flights
      tidemark lineage columns flights --column aircraft.flights
      tidemark lineage columns flights --column records.carrier --downstream
      tidemark lineage columns flights --column aircraft.distance --checkpoint chk-3 --json
    """
    if (shows.upstream or shows.downstream) and column is None:
        raise UsageError("no column is named", next="give --column, as in --column aircraft.flights.")
    found = _find(open_context(), pipeline, checkpoint, savepoint)
    answer = found.answer(column)
    if as_json:
        print_json(answer)
        return
    if not answer.recorded:
        note(f"{answer.as_of} recorded no columns: an earlier release made it. Name a newer one, or none.")
    elif answer.column is None:
        origins = found.list_origins()
        rows = [
            {"column": o.id, "computed by": o.made or None, "from": o.sources, "decided by": o.decided_by}
            for o in origins
        ]
        show_rows(rows, as_json=False)
    else:
        _show_links(answer.column, shows)


def _find(context: Context, pipeline: str, checkpoint: str | None, savepoint: str | None) -> "PipelineColumns":
    """The columns of a checkpoint, or those that the pipeline's file declares."""
    from tidemark.web.columns import columns_of, recorded_columns

    if checkpoint is None and savepoint is None:
        return columns_of(context.pipeline(pipeline))
    return recorded_columns(context, pipeline, chosen_id(context, pipeline, checkpoint, savepoint))


def _show_links(links: "ColumnLinks", shows: Directions) -> None:
    computed = {"computed by": links.made} if links.made else {}
    show_fields({"column": links.id, "kind": links.kind, **computed}, as_json=False)
    if shows.upstream or not shows.downstream:
        typer.echo("\nit depends on")
        show_rows(_lines(links.upstream), as_json=False, empty="no field")
    if shows.downstream or not shows.upstream:
        typer.echo("\nthese depend on it")
        show_rows(_lines(links.downstream), as_json=False, empty="no column")


def _lines(linked: "Sequence[LinkedColumn]") -> list[dict[str, object]]:
    return [
        {
            "column": one.id,
            "kind": one.kind,
            "steps": one.distance,
            "by": ", ".join(f"{of.subtype}{' (possibly)' if of.possible else ''}" for of in one.transformations),
        }
        for one in linked
    ]
