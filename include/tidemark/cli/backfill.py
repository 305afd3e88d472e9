"""`tidemark backfill`: repeat what was recorded since a savepoint with the code of now, compare, promote."""

import sys
from dataclasses import dataclass
from enum import Enum
from typing import Annotated

import typer

from tidemark.answers.bodies import body_of
from tidemark.answers.timeline_facts import FieldDifference, NumberDifference, OperatorDifference
from tidemark.cli.checkpoint_id import parse_id
from tidemark.cli.option_groups import Execute, with_options
from tidemark.cli.output import JsonFlag, cell, note, print_json, show_fields, show_rows
from tidemark.cli.plain import plain
from tidemark.cli.progress import ProgressListener
from tidemark.cli.run import AllowNonRestoredState, PipelineName
from tidemark.context import Context, open_context
from tidemark.coordinator.recovery.backfill import Backfill, BackfillRequest, Outlook
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.operations import backfill as backfill_operations
from tidemark.operations.backfill import describe_differences, describe_outlook, describe_step


class Mode(Enum):
    """What happens when all is repeated.

    Members:
        COMPARE: the differences are shown; the fork stays beside the live timeline.
        PROMOTE: and the fork becomes live.
        APPROVE: and the fork becomes live if you say yes.
    """

    COMPARE = "compare"
    PROMOTE = "promote"
    APPROVE = "approve"


@dataclass(frozen=True, kw_only=True)
class Range:
    """Options of what is repeated."""

    from_savepoint: Annotated[str | None, typer.Option(help="Begin at the checkpoint that this savepoint names.")] = (
        None
    )
    from_checkpoint: Annotated[str | None, typer.Option(metavar="ID", help="Begin at this checkpoint.")] = None
    to: Annotated[
        str | None, typer.Option(metavar="ID", help="End with this checkpoint; the live head without it.")
    ] = None
    max_records: Annotated[
        int | None,
        typer.Option(min=1, help="Repeat several checkpoints at once, of at most this many offsets per partition."),
    ] = None
    name: Annotated[str, typer.Option(help="Name of the fork; one that names beginning and code without it.")] = ""
    allow_non_restored_state: AllowNonRestoredState = False
    force: Annotated[bool, typer.Option("--force", help="Begin at a savepoint that the pipeline was drained with.")] = (
        False
    )

    def request(self, mode: Mode, *, send: bool = False) -> BackfillRequest:
        """The request that these options make.

        Args:
            mode: what happens to the fork once it has caught up.
            send: see `BackfillRequest`.

        Raises:
            UsageError: no beginning, or two; or an end, although the fork may become live.
        """
        begins = RestoreRequest(
            savepoint=self.from_savepoint,
            checkpoint=None if self.from_checkpoint is None else parse_id(self.from_checkpoint),
            allow_non_restored_state=self.allow_non_restored_state,
            force=self.force,
        )
        return BackfillRequest(
            begins=begins,
            fork=self.name,
            to=None if self.to is None else parse_id(self.to),
            max_records=self.max_records,
            promotes=mode is not Mode.COMPARE,
            send=send,
        )


@dataclass(frozen=True, kw_only=True)
class Consent:
    """Options of what is done."""

    mode: Annotated[Mode, typer.Option(help="Compare only; or then promote; or ask, and promote.")] = Mode.COMPARE
    execute: Execute = False
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before the fork is promoted.")] = False
    send: Annotated[
        bool,
        typer.Option("--send", help="Once promoted, send what the fork emitted and the live timeline has not sent."),
    ] = False


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("backfill")(with_options(backfill))


def backfill(pipeline: PipelineName, what: Range, consent: Consent, as_json: JsonFlag = False) -> None:
    """Repeat what was recorded since a savepoint with the code of now, on a fork; compare; promote.

    Ranges, logical time and watermark are those of the recorded checkpoints, so nothing but the code makes a
    difference. The live timeline goes on meanwhile. The same command goes on where an interrupted one ended.

    Examples:
      tidemark backfill flights --from-savepoint end-of-june
      tidemark backfill flights --from-savepoint end-of-june --execute
      tidemark backfill flights --from-checkpoint chk-6 --max-records 100000 --mode promote --execute
    """
    context = open_context()
    request = what.request(consent.mode, send=consent.send)
    with ProgressListener() as progress:
        one = backfill_operations.open_backfill(context, pipeline, request, progress)
        found = one.begin() if consent.execute else one.outlook()
        if consent.execute:
            _repeat(context, one, found)
    if not consent.execute:
        _outlook(found, consent, as_json)
        return
    differences = backfill_operations.compare(context, one)
    compared, skipped = describe_differences(differences), list(differences.not_compared) if differences else []
    if not as_json:
        show_rows([difference_row(row) for row in compared], as_json=False, empty="nothing was repeated: no difference")
    if skipped:
        note(f"not compared, because one side lacks them or their keys differ: {', '.join(skipped)}")
    promoted = found.promoted or (_wanted(consent) and _promote(context, one))
    if as_json:
        facts = {**body_of(describe_outlook(one.outlook())), "promoted": promoted}
        print_json({"executed": True, **facts, "differences": plain(body_of(compared)), "not_compared": skipped})
    if not promoted:
        note(f"fork {one.fork} stays beside the live timeline. Next: the same command with --mode promote")


def _outlook(found: Outlook, consent: Consent, as_json: bool) -> None:
    show_fields({"executed": False, **body_of(describe_outlook(found))}, as_json=as_json)
    if found.unsent and not consent.send and consent.mode is not Mode.COMPARE:
        waiting = "; ".join(f"{name} of {', '.join(c.plan.name for c in of)}" for name, of in found.unsent.items())
        note(f"not delivered yet, and never sent once the fork is live: {waiting}. --send sends what the fork emitted")
    note(
        "it is done, and was promoted: nothing is left"
        if found.promoted
        else "nothing was written. Next: the same command with --execute"
    )


def _repeat(context: Context, one: Backfill, found: Outlook) -> None:
    done, whole = len(found.done), len(found.done) + len(found.left)
    if found.done and found.left:
        note(f"going on: {done} of {whole} steps were done before")
    for made in backfill_operations.repeat(context, one):
        done += 1
        step, of = describe_step(made), max(whole, done)
        note(f"[{done}/{of}] {step.checkpoint} repeats {cell(step.repeats)}, {step.records} records")


def _wanted(consent: Consent) -> bool:
    if consent.mode is Mode.COMPARE:
        return False
    if consent.mode is Mode.PROMOTE or consent.yes:
        return True
    if not sys.stdin.isatty():
        note("there is nobody to ask, so it is not promoted")
        return False
    return typer.confirm("Promote it?", err=True)


def _promote(context: Context, one: Backfill) -> bool:
    with ProgressListener():
        done = backfill_operations.promote(context, one)
    note(
        f"timeline {one.fork} is live, {done.closing.timeline} ended and stays readable."
        f" Next: tidemark run {one.pipeline.name}"
    )
    return True


def difference_row(found: OperatorDifference) -> dict[str, object]:
    """A comparison of one operator as a row of a table."""
    fields = [
        *(_field(name, by) for name, by in found.fields.items()),
        *(f"+{name}" for name in found.added),
        *(f"-{name}" for name in found.removed),
    ]
    return {
        "uid": found.uid,
        "live": found.live,
        "fork": found.fork,
        "inserted": found.inserted,
        "deleted": found.deleted,
        "changed": found.changed,
        "equal": found.equal,
        "fields": "; ".join(fields),
    }


def _field(name: str, by: FieldDifference) -> str:
    if not isinstance(by, NumberDifference):
        return f"{name} {by.keys} keys"
    return f"{name} {by.keys} keys, in all {cell(by.sum)}, at most {cell(by.largest)}"
