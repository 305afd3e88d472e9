"""`tidemark timeline list | show | close`: the tree of timelines."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text
from rich.tree import Tree

from tidemark.answers.bodies import body_of
from tidemark.cli.option_groups import Execute
from tidemark.cli.output import JsonFlag, note, print_json, show_fields, stdout
from tidemark.cli.run import PipelineName
from tidemark.context import open_context
from tidemark.coordinator.records.timeline_tree import Branch
from tidemark.operations import timelines
from tidemark.operations.timelines import describe_close, describe_timeline


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(
        help="Look at timelines: the live one, what it came from, forks; end a fork.", no_args_is_help=True
    )
    group.command("list")(list_timelines)
    group.command("show")(show)
    group.command("close")(close)
    app.add_typer(group, name="timeline")


def list_timelines(pipeline: PipelineName, as_json: JsonFlag = False) -> None:
    """Draw the tree of timelines: where each began, how far it is, which one is live.

    Examples:
      tidemark timeline list flights
      tidemark timeline list flights --json
    """
    found = timelines.list_timelines(open_context(), pipeline)
    if as_json:
        print_json([describe_timeline(b) for b in found])
        return
    if sys.stdout.isatty():
        stdout().print(drawn(found))
    else:
        sys.stdout.writelines(f"{line}\n" for line in plain_tree(found))


def show(
    pipeline: PipelineName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A timeline, as in t2.")],
    as_json: JsonFlag = False,
) -> None:
    """Show one timeline: what it began with, its newest checkpoint, its end.

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
    name: Annotated[str, typer.Argument(metavar="NAME", help="A timeline that is not live, as a fork.")],
    execute: Execute = False,
    as_json: JsonFlag = False,
) -> None:
    """End a timeline that never became live: retention lets go of what only it keeps. Deletes nothing itself.

    That is a fork, or what a restore left that died or lost to another one; a savepoint that it claimed is free again.
    Refused for the live timeline, and while a checkpoint of it is in progress. What a savepoint pins stays, and
    so does what another fork began at. Without --execute it says what it would do.

    Examples:
      tidemark timeline close flights bugfix
      tidemark timeline close flights bugfix --execute
    """
    context = open_context()
    found = timelines.close(context, pipeline, name) if execute else timelines.plan_close(context, pipeline, name)
    show_fields({"executed": execute, **body_of(describe_close(found))}, as_json=as_json)
    if execute:
        note(f"Next: tidemark retention plan {pipeline}    (says what that frees).")
    else:
        note("nothing was written. Next: the same command with --execute")


def drawn(found: Sequence[Branch]) -> Tree:
    """The tree for a terminal: the live timeline stands out. An imported timeline is a root of its own."""
    tree = Tree("", hide_root=True)
    _grow(tree, found, None)
    return tree


def plain_tree(found: Sequence[Branch], below: str | None = None, depth: int = 0) -> list[str]:
    """The same as lines of plain text, indented by two blanks per level."""
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
