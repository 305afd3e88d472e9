"""`tidemark backfill`: repeat the checkpoints since a savepoint with the current code, compare, promote."""

import sys
from dataclasses import dataclass
from enum import Enum
from typing import Annotated

import typer

from tidemark.answers.timeline_facts import FieldDifference, NumberDifference, OperatorDifference, SinkDifference
from tidemark.cli.checkpoint_id import parse_id
from tidemark.cli.option_groups import AllowNonRestoredState, Execute, PipelineName, with_options
from tidemark.cli.output import JsonFlag, cell, note, print_json, show_fields, show_rows
from tidemark.cli.plain import plain
from tidemark.cli.progress import ProgressListener
from tidemark.context import Context, open_context
from tidemark.coordinator.recovery.backfill import Backfill, BackfillRequest, Outlook
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.model.checkpoint.codec import body_of
from tidemark.operations import backfill as backfill_operations
from tidemark.operations.backfill import describe_differences, describe_outlook, describe_sinks, describe_step


class Mode(Enum):
    """What a backfill does with its fork when all checkpoints are repeated.

    Members:
        COMPARE: show the differences, and keep the fork next to the live timeline.
        PROMOTE: show the differences, and make the fork live.
        APPROVE: show the differences, and make the fork live if you confirm.
    """

    COMPARE = "compare"
    PROMOTE = "promote"
    APPROVE = "approve"


@dataclass(frozen=True, kw_only=True)
class RangeOptions:
    """Options that select the checkpoints to repeat."""

    from_savepoint: Annotated[str | None, typer.Option(help="Begin at the checkpoint that this savepoint pins.")] = None
    from_checkpoint: Annotated[str | None, typer.Option(metavar="ID", help="Begin at this checkpoint.")] = None
    to: Annotated[
        str | None,
        typer.Option(metavar="ID", help="End with this checkpoint (default: the newest one of the live timeline)."),
    ] = None
    max_records: Annotated[
        int | None,
        typer.Option(min=1, help="Merge consecutive checkpoints, up to this many offsets."),
    ] = None
    name: Annotated[
        str, typer.Option(help="Name the fork (default: a name made of the starting checkpoint and the code).")
    ] = ""
    allow_non_restored_state: AllowNonRestoredState = False
    force: Annotated[bool, typer.Option("--force", help="Allow a savepoint that drained the pipeline.")] = False

    def request(self, mode: Mode, *, send: bool = False) -> BackfillRequest:
        """Returns the request that the options make.

        Args:
            mode: the use of the fork once it has caught up.
            send: see `BackfillRequest`.

        Raises:
            UsageError: no starting point or two of them, or `--to` with a mode that may promote the fork.
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
class PromotionOptions:
    """Options that say what to do with the fork."""

    mode: Annotated[
        Mode, typer.Option(help="Compare and stop; compare and promote; or compare and ask before promoting.")
    ] = Mode.COMPARE
    execute: Execute = False
    yes: Annotated[bool, typer.Option("--yes", help="Promote without asking, in mode approve.")] = False
    send: Annotated[
        bool,
        typer.Option("--send", help="After promoting, send records of the fork that the live timeline has not sent."),
    ] = False


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("backfill")(with_options(backfill))


def backfill(pipeline: PipelineName, what: RangeOptions, options: PromotionOptions, as_json: JsonFlag = False) -> None:
    """Repeat all checkpoints since a savepoint on a fork with the current code; compare the result, or promote it.

    Each repeated checkpoint reads the recorded ranges at the recorded logical time and watermark, so any difference
    comes from the code. The live timeline keeps running meanwhile. To continue an interrupted backfill, repeat the
    command.

    Examples:
      tidemark backfill flights --from-savepoint end-of-june
      tidemark backfill flights --from-savepoint end-of-june --execute
      tidemark backfill flights --from-checkpoint chk-6 --max-records 100000 --mode promote --execute
    """
    context = open_context()
    request = what.request(options.mode, send=options.send)
    with ProgressListener() as progress:
        one = backfill_operations.open_backfill(context, pipeline, request, progress)
        found = one.begin() if options.execute else one.outlook()
        if options.execute:
            _repeat(context, one, found)
    if not options.execute:
        _outlook(found, options, as_json)
        return
    differences = backfill_operations.compare(context, one)
    compared, skipped = describe_differences(differences), list(differences.not_compared) if differences else []
    if not as_json:
        show_rows([difference_row(row) for row in compared], as_json=False, empty="nothing was repeated: no difference")
    sinks = describe_sinks(differences)
    if sinks and not as_json:
        show_rows([sink_row(row) for row in sinks], as_json=False)
    if skipped:
        note(f"not compared, because one side lacks them or their keys differ: {', '.join(skipped)}")
    promoted = found.promoted or (_may_promote(options) and _promote(context, one))
    if as_json:
        facts = {**body_of(describe_outlook(one.outlook())), "promoted": promoted}
        told = {"differences": plain(body_of(compared)), "not_compared": skipped, "sinks": plain(body_of(sinks))}
        print_json({"executed": True, **facts, **told})
    if not promoted:
        note(f"fork {one.fork} stays next to the live timeline. Next: the same command with --mode promote")


def _outlook(found: Outlook, options: PromotionOptions, as_json: bool) -> None:
    show_fields({"executed": False, **body_of(describe_outlook(found))}, as_json=as_json)
    if found.unsent and not options.send and options.mode is not Mode.COMPARE:
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
        note(f"continuing: {done} of {whole} steps are already done")
    for made in backfill_operations.repeat(context, one):
        done += 1
        step, of = describe_step(made), max(whole, done)
        note(f"[{done}/{of}] {step.checkpoint} repeats {cell(step.repeats)}, {step.records} records")


def _may_promote(options: PromotionOptions) -> bool:
    if options.mode is Mode.COMPARE:
        return False
    if options.mode is Mode.PROMOTE or options.yes:
        return True
    if not sys.stdin.isatty():
        note("not promoted: stdin is not a terminal, so you cannot be asked; --yes promotes without asking")
        return False
    return typer.confirm("Promote the fork?", err=True)


def _promote(context: Context, one: Backfill) -> bool:
    with ProgressListener():
        done = backfill_operations.promote(context, one)
    note(
        f"timeline {one.fork} is live; {done.closing.timeline} has ended and stays readable."
        f" Next: tidemark run {one.pipeline.name}"
    )
    return True


def difference_row(found: OperatorDifference) -> dict[str, object]:
    """One operator's differences as a row of a table."""
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


def sink_row(found: SinkDifference) -> dict[str, object]:
    """The differences in a sink as a row of a table, with the first row that differs."""
    counts = {name: getattr(found, name) for name in ("inserted", "deleted", "changed", "equal")}
    return {"sink": found.sink, "of": found.uid, **counts, "first": _first(found)}


def _first(found: SinkDifference) -> str:
    if not found.examples:
        return ""
    one = found.examples[0]
    return f"{one['change']}: {cell(one['after'] or one['before'])}"


def _field(name: str, by: FieldDifference) -> str:
    if not isinstance(by, NumberDifference):
        return f"{name} {by.keys} keys"
    return f"{name} {by.keys} keys, total {cell(by.sum)}, largest {cell(by.largest)}"
