"""`tidemark publication list | show | run | rebuild | verify | drop`: states as others read them."""

from collections.abc import Sequence
from typing import Annotated

import typer

from tidemark.answers.publication_facts import PublishedFacts
from tidemark.cli.option_groups import Execute, PipelineName
from tidemark.cli.output import JsonFlag, note, print_json, show_fields, show_rows
from tidemark.context import open_context
from tidemark.errors import TargetChangedError
from tidemark.operations.publications import publishing

Name = Annotated[str, typer.Argument(metavar="NAME", help="The publication.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(help="Publish states to tables that others read.", no_args_is_help=True)
    group.command("list")(list_publications)
    group.command("show")(show)
    group.command("run")(run)
    group.command("rebuild")(rebuild)
    group.command("verify")(verify)
    group.command("drop")(drop)
    app.add_typer(group, name="publication")


def list_publications(pipeline: PipelineName, as_json: JsonFlag = False) -> None:
    """List the publications of a pipeline: the checkpoint that each target has, and how far it is behind.

    Examples:
      tidemark publication list flights
      tidemark publication list flights --json
    """
    found = publishing.list_publications(open_context(), pipeline)
    if as_json:
        print_json(found)
        return
    rows = [
        {
            "publication": status.publication,
            "operator": status.uid,
            "state": status.state,
            "checkpoint": status.checkpoint,
            "version": status.version,
            "behind": status.behind,
            "published": status.published_at,
            "place": status.place,
        }
        for status in found
    ]
    show_rows(rows, as_json=False, empty=f"{pipeline} has no publications: add publish=[...] to an operator")
    for status in found:
        if status.state == "removed":
            note(
                f"{status.publication} is no longer declared, and keeps {status.checkpoint} from being released."
                f"\nNext: tidemark publication drop {pipeline} {status.publication}"
            )


def show(
    pipeline: PipelineName,
    name: Name,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many steps, the last ones.")] = 10,
    as_json: JsonFlag = False,
) -> None:
    """Show a publication: which version of its target has which checkpoint, and views for Trino and Databricks.

    Examples:
      tidemark publication show flights aircraft-mirror
      tidemark publication show flights aircraft-mirror --limit 50 --json
    """
    found = publishing.describe_publication(open_context(), pipeline, name, limit)
    if as_json:
        print_json(found)
        return
    show_fields(found.status, as_json=False)
    _show(found.steps, as_json=False, empty=f"Next: tidemark publication run {pipeline} {name}")
    for engine, text in found.views.items():
        typer.echo(f"\n-- {engine}\n{text}")


def run(
    pipeline: PipelineName,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A publication (default: all).")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Bring the targets of a pipeline to its newest checkpoint.

    Examples:
      tidemark publication run flights
      tidemark publication run flights aircraft-mirror --json
    """
    context = open_context()
    names = publishing.names_to_publish(context, pipeline) if name is None else [name]
    made = [step for each in names for step in publishing.publish(context, pipeline, each)]
    _show(made, as_json=as_json, empty="nothing to publish: every target has the newest checkpoint, if there is one")


def rebuild(
    pipeline: PipelineName,
    name: Name,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a table, too, that this publication has not made.")
    ] = False,
    execute: Execute = False,
    as_json: JsonFlag = False,
) -> None:
    """Replace all rows of a target by the newest state, including rows that others have changed.

    Examples:
      tidemark publication rebuild flights aircraft-mirror
      tidemark publication rebuild flights aircraft-mirror --execute
      tidemark publication rebuild flights aircraft-mirror --replace --execute
    """
    context = open_context()
    if execute:
        made = publishing.rebuild(context, pipeline, name, replaces_others=replace)
        _show([made], as_json=as_json, empty="")
        return
    found = publishing.find_publication(context, pipeline, name)
    show_fields(found, as_json=as_json)
    if not as_json:
        more = " --replace" if replace else ""
        note(f"This replaces all rows of {found.place}, and no checkpoint changes.")
        note(f"Next: tidemark publication rebuild {pipeline} {name}{more} --execute")


def verify(pipeline: PipelineName, name: Name, as_json: JsonFlag = False) -> None:
    """Compare the rows of a target with the state of the checkpoint that it has.

    Examples:
      tidemark publication verify flights aircraft-mirror
      tidemark publication verify flights aircraft-mirror --json
    """
    found = publishing.verify(open_context(), pipeline, name)
    show_fields(found, as_json=as_json)
    if not found.equal:
        raise TargetChangedError(
            f"{name} differs from {found.checkpoint}",
            safe="every checkpoint is intact; the target was only read.",
            next=f"tidemark publication rebuild {pipeline} {name}    (replaces all rows).",
        )


def drop(pipeline: PipelineName, name: Name, execute: Execute = False, as_json: JsonFlag = False) -> None:
    """End a publication: the target keeps its rows, and retention may release its checkpoint.

    Only `tidemark publication rebuild` begins it again.

    Examples:
      tidemark publication drop flights aircraft-mirror
      tidemark publication drop flights aircraft-mirror --execute
    """
    context = open_context()
    if not execute:
        found = publishing.find_publication(context, pipeline, name)
        show_fields(found, as_json=as_json)
        if not as_json:
            note(f"This leaves {found.place} as it is.\nNext: tidemark publication drop {pipeline} {name} --execute")
        return
    made = publishing.drop(context, pipeline, name)
    _show([] if made is None else [made], as_json=as_json, empty=f"{name} was never published")
    if made is not None and not as_json:
        note(f"{made.place} keeps its rows; remove publish=[...] from the pipeline file, and delete the table by hand.")


def _show(made: Sequence[PublishedFacts], *, as_json: bool, empty: str) -> None:
    if as_json:
        print_json(made)
        return
    rows = [
        {
            "publication": step.publication,
            "mode": step.mode,
            "checkpoint": step.checkpoint,
            "version": step.version,
            "inserted": step.inserted,
            "deleted": step.deleted,
            "bytes": step.bytes,
            "place": step.place,
        }
        for step in made
    ]
    show_rows(rows, as_json=False, empty=empty)
