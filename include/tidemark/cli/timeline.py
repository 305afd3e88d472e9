"""`tidemark timeline list | show | close`: show the tree of timelines, and end a fork."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text
from rich.tree import Tree

from tidemark.cli.option_groups import Execute, PipelineName
from tidemark.cli.output import JsonFlag, note, print_json, show_fields, stdout
from tidemark.context import open_context
from tidemark.coordinator.records.timeline_tree import Branch
from tidemark.model.checkpoint.codec import body_of
from tidemark.operations import timelines
from tidemark.operations.timelines import describe_close, describe_timeline


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(
        help="Show timelines: the live one, its ancestors and its forks; and end a fork.", no_args_is_help=True
    )
    group.command("list")(list_timelines)
    group.command("show")(show)
    group.command("close")(close)
    app.add_typer(group, name="timeline")


def list_timelines(pipeline: PipelineName, as_json: JsonFlag = False) -> None:
    """Draw the tree of timelines: where each began, how far it has come, and which one is live.

    Examples:
      tidemark timeline list flights
      tidemark timeline list flights --json
    """
    found = timelines.list_timelines(open_context(), pipeline)
    if as_json:
        print_json([describe_timeline(b) for b in found])
        return
    if sys.stdout.isatty():
        stdout().print(draw_tree(found))
    else:
        sys.stdout.writelines(f"{line}\n" for line in plain_tree(found))


def show(
    pipeline: PipelineName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A timeline, such as t2.")],
    as_json: JsonFlag = False,
) -> None:
    """Show one timeline: its starting point, its newest checkpoint, and its end.

    Examples:
      tidemark timeline show flights t2
      tidemark timeline show flights bugfix --json
    """
    found = timelines.get_timeline(open_context(), pipeline, name)
    show_fields(describe_timeline(found), as_json=as_json)
    if not as_json and found.fate == "fork":
        note(f"Next: tidemark promote {pipeline} {name}, or tidemark timeline close {pipeline} {name}    (dry runs).")


def close(
    pipeline: PipelineName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A timeline that is not live, such as a fork.")],
    execute: Execute = False,
    as_json: JsonFlag = False,
) -> None:
    """End a timeline that is not live, so that retention can release what only it keeps. Deletes no file itself.

    You can close a fork, or the timeline of a restore that was interrupted or lost to another restore; a savepoint that
    it had claimed becomes free again. The command refuses the live timeline, and a timeline with a checkpoint in
    progress. Checkpoints stay if a savepoint pins them or another fork began there. Without --execute, it only shows
    the plan.

    Examples:
      tidemark timeline close flights bugfix
      tidemark timeline close flights bugfix --execute
    """
    context = open_context()
    found = timelines.close(context, pipeline, name) if execute else timelines.plan_close(context, pipeline, name)
    show_fields({"executed": execute, **body_of(describe_close(found))}, as_json=as_json)
    if execute:
        note(f"Next: tidemark retention plan {pipeline}    (shows the files that this frees).")
    else:
        note("nothing was written. Next: the same command with --execute")


def draw_tree(found: Sequence[Branch]) -> Tree:
    """Draws the tree for a terminal, with the live timeline highlighted. An imported timeline is a separate root."""
    tree = Tree("", hide_root=True)
    _grow(tree, found, None)
    return tree


def plain_tree(found: Sequence[Branch], below: str | None = None, depth: int = 0) -> list[str]:
    """Draws the tree as lines of plain text, indented by two spaces per level."""
    lines = []
    for b in found:
        if b.parent == below:
            lines += ["  " * depth + _line(b).plain, *plain_tree(found, b.timeline, depth + 1)]
    return lines


def _grow(tree: Tree, found: Sequence[Branch], below: str | None) -> None:
    for b in found:
        if b.parent == below:
            _grow(tree.add(_line(b)), found, b.timeline)


def _line(b: Branch) -> Text:
    newest = "no checkpoint yet" if b.newest is None else f"{b.checkpoints} to {b.newest.plan.name}"
    fate = b.fate
    if b.genesis is not None:
        began = f"{b.genesis.why} of chk-{b.genesis.parent}"
        fate = began if fate == b.genesis.why else f"{fate}, {began}"
    text = Text(b.timeline, style="bold green" if b.is_live else "bold")
    return text.append(f"  {fate}, {newest}", style="" if b.is_live else "dim")
