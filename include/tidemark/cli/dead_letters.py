"""`tidemark dead-letters list | show | redrive | withdraw`: records that operators could not use."""

from dataclasses import dataclass
from typing import Annotated

import typer

from tidemark.cli.checkpoint_id import parse_id
from tidemark.cli.option_groups import Execute, Note, PipelineName, with_options
from tidemark.cli.output import JsonFlag, note, print_json, show_fields, show_rows
from tidemark.context import open_context
from tidemark.environment import user_name
from tidemark.model.checkpoint.codec import body_of
from tidemark.operations.dead_letters import redriving
from tidemark.operations.dead_letters.redriving import LetterFilter, RedriveRequest

Uid = Annotated[str, typer.Argument(metavar="OPERATOR", help="The operator.")]
_LONGEST = 120
"""Characters of a value in a table."""


@dataclass(frozen=True)
class LetterOptions:
    """Which dead letters."""

    reason: Annotated[
        str, typer.Option("--reason", help="Only letters of this reason, as in missing_field or 'wrong_type: amount'.")
    ] = ""
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", metavar="ID", help="Only letters that this checkpoint refused.")
    ] = None
    partition: Annotated[
        str, typer.Option("--partition", metavar="TOPIC-N", help="Only letters of this partition, as in flights-0.")
    ] = ""

    def with_limit(self, limit: int | None) -> LetterFilter:
        """The options as a value."""
        number = None if self.checkpoint is None else parse_id(self.checkpoint)
        return LetterFilter(reason=self.reason, checkpoint=number, partition=self.partition, limit=limit)


@dataclass(frozen=True)
class RedriveOptions:
    """How they are redriven."""

    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Redrive at most this many letters, the oldest ones.")
    ] = None
    out_of_order: Annotated[
        bool, typer.Option("--out-of-order", help="Accept that the result depends on when records arrive.")
    ] = False
    note: Note = None


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(help="List, show and redrive records that operators could not use.", no_args_is_help=True)
    group.command("list")(list_letters)
    group.command("show")(with_options(show))
    group.command("redrive")(with_options(redrive))
    group.command("withdraw")(withdraw)
    app.add_typer(group, name="dead-letters")


def list_letters(
    pipeline: PipelineName,
    uid: Annotated[str | None, typer.Argument(metavar="[OPERATOR]", help="An operator (default: all).")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List the dead letters of the live timeline by operator and reason, and the requests to redrive them.

    Examples:
      tidemark dead-letters list flights
      tidemark dead-letters list flights aircraft --json
    """
    found = redriving.list_letters(open_context(), pipeline, uid)
    if as_json:
        print_json(found)
        return
    show_rows([body_of(total) for total in found.letters], as_json=False, empty=f"{pipeline} has no dead letters")
    if found.requests:
        typer.echo("")
        rows = [
            {
                "request": request.number,
                "operator": request.uid,
                "letters": request.letters,
                "state": request.state,
                "checkpoint": request.checkpoint,
                "at": request.at,
                "owner": request.owner,
                "note": request.note,
            }
            for request in found.requests
        ]
        show_rows(rows, as_json=False)


def show(
    pipeline: PipelineName,
    uid: Uid,
    options: LetterOptions,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many letters, the oldest ones.")] = 20,
    as_json: JsonFlag = False,
) -> None:
    """Show dead letters as fields, and whether the current declaration would still refuse them.

    Examples:
      tidemark dead-letters show flights aircraft
      tidemark dead-letters show flights aircraft --reason missing_field --limit 5 --json
      tidemark dead-letters show flights aircraft --checkpoint chk-3 --partition flights-0
    """
    found = redriving.show_letters(open_context(), pipeline, uid, options.with_limit(limit))
    if as_json:
        print_json(found)
        return
    rows = [
        {
            "partition": letter.partition,
            "offset": letter.offset,
            **({"path": ".".join(map(str, letter.path))} if letter.path else {}),
            "checkpoint": letter.checkpoint,
            "reason": letter.reason,
            "today": letter.today or "would be applied",
            "value": None if letter.value is None else letter.value.text[:_LONGEST],
        }
        for letter in found
    ]
    show_rows(rows, as_json=False, empty=f"{uid} has no such dead letters")


def redrive(
    pipeline: PipelineName,
    uid: Uid,
    options: LetterOptions,
    more: RedriveOptions,
    execute: Execute = False,
    as_json: JsonFlag = False,
) -> None:
    """Ask the next checkpoint to give an operator its dead letters again, decoded by the current code.

    Examples:
      tidemark dead-letters redrive flights aircraft
      tidemark dead-letters redrive flights aircraft --reason missing_field --execute
      tidemark dead-letters redrive flights aircraft --checkpoint chk-3 --limit 99 --note "case 12" --execute --json
    """
    context, letters = open_context(), options.with_limit(more.limit)
    request = RedriveRequest(uid=uid, letters=letters, out_of_order=more.out_of_order, note=more.note or "")
    if execute:
        found = redriving.redrive(context, pipeline, request, user_name())
    else:
        found = redriving.plan_redrive(context, pipeline, request)
    show_fields(found, as_json=as_json)
    if as_json:
        return
    if execute:
        note(f"The next checkpoint redrives them.\nNext: tidemark run {pipeline}    (or wait for the next run)")
    else:
        note("This was a dry run.\nNext: repeat the command with --execute")


def withdraw(
    pipeline: PipelineName,
    number: Annotated[int, typer.Argument(metavar="REQUEST", min=1, help="The request, as `list` numbers it.")],
    execute: Execute = False,
    as_json: JsonFlag = False,
) -> None:
    """Withdraw a request, unless a checkpoint has taken it up. A plan in progress may still redrive its letters.

    Examples:
      tidemark dead-letters withdraw flights 3
      tidemark dead-letters withdraw flights 3 --execute
    """
    context = open_context()
    if execute:
        found = redriving.withdraw(context, pipeline, number, user_name())
    else:
        found = redriving.find_request(context, pipeline, number)
    show_fields(found, as_json=as_json)
    if not execute and not as_json:
        note(f"Next: tidemark dead-letters withdraw {pipeline} {number} --execute")
