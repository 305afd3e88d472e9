"""`tidemark restore`, `fork` and `promote`: start a timeline at an older checkpoint, and change the live one."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import typer

from tidemark.cli.checkpoint_id import parse_id
from tidemark.cli.option_groups import (
    AcceptLoss,
    AllowNonRestoredState,
    Execute,
    PipelineName,
    parse_time,
    with_options,
)
from tidemark.cli.output import JsonFlag, note, show_fields
from tidemark.context import open_context
from tidemark.coordinator.plans.initial_offsets import to_ms
from tidemark.coordinator.recovery.latest_valid import MAX_FALLBACK
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.errors import UsageError
from tidemark.model.checkpoint.codec import body_of
from tidemark.operations import timelines
from tidemark.operations.timelines import describe_fork, describe_promote, describe_restore

ForkName = Annotated[str, typer.Argument(metavar="NAME", help="The fork's name.")]


@dataclass(frozen=True, kw_only=True)
class RestorePointOptions:
    """Options that select a restore point, and the state to take from it."""

    savepoint: Annotated[str | None, typer.Option(help="Begin at the checkpoint that this savepoint pins.")] = None
    checkpoint: Annotated[str | None, typer.Option(metavar="ID", help="Begin at this checkpoint.")] = None
    as_of: Annotated[
        str | None,
        typer.Option(help="Begin at the newest checkpoint whose logical time is not after this ISO 8601 time."),
    ] = None
    latest_valid: Annotated[
        bool, typer.Option("--latest-valid", help="Begin at the live timeline's newest undamaged checkpoint.")
    ] = False
    newest_whole: Annotated[bool, typer.Option("--newest-whole", hidden=True)] = False
    """The old spelling of `--latest-valid`."""
    max_fallback: Annotated[
        int, typer.Option(min=0, help="Let --latest-valid skip at most this many damaged checkpoints.")
    ] = MAX_FALLBACK
    rename: Annotated[
        list[str], typer.Option(metavar="OLD=NEW", help="Give operator OLD's state to operator NEW; repeatable.")
    ] = field(default_factory=list)
    allow_non_restored_state: AllowNonRestoredState = False
    force: Annotated[bool, typer.Option("--force", help="Allow a savepoint that drained the pipeline.")] = False

    def request(self, options: "RestoreOptions") -> RestoreRequest:
        """Returns the request that the options make.

        Raises:
            UsageError: no restore point, several of them, or an option that cannot be parsed.
        """
        return RestoreRequest(
            savepoint=self.savepoint,
            checkpoint=None if self.checkpoint is None else parse_id(self.checkpoint),
            as_of_ms=None if self.as_of is None else to_ms(parse_time(self.as_of)),
            newest_whole=self.latest_valid or self.newest_whole,
            max_fallback=self.max_fallback,
            renamed=_renames(self.rename),
            allow_non_restored_state=self.allow_non_restored_state,
            force=self.force,
            claim=options.claim,
            restore_sinks=options.restore_sinks,
            accept_loss=options.accept_loss,
            request=options.restore_id,
        )


@dataclass(frozen=True, kw_only=True)
class RestoreOptions:
    """Options of `restore` alone."""

    claim: Annotated[
        bool, typer.Option("--claim", help="Take over the savepoint: it ends, and the timeline keeps its checkpoint.")
    ] = False
    restore_sinks: Annotated[
        bool,
        typer.Option("--restore-sinks", help="Restore Delta sinks with the state (default: they keep their rows)."),
    ] = False
    accept_loss: AcceptLoss = False
    restore_id: Annotated[
        str, typer.Option(help="Name the request: a restore with the same name is carried out only once.")
    ] = ""


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("restore")(with_options(restore))
    app.command("fork")(with_options(fork))
    app.command("promote")(promote)


def restore(
    pipeline: PipelineName,
    where: RestorePointOptions,
    options: RestoreOptions,
    execute: Execute = False,
    as_json: JsonFlag = False,
) -> None:
    """Go back to an older checkpoint: start a new live timeline there. Copies nothing, deletes nothing.

    Without --execute, it only shows the plan. The next `tidemark run` continues at the restored offsets.

    Examples:
      tidemark restore flights --savepoint june
      tidemark restore flights --checkpoint chk-6 --execute
      tidemark restore flights --as-of 2013-07-01T00:00:00Z --restore-sinks --execute
      tidemark restore flights --latest-valid
    """
    request = where.request(options)
    context = open_context()
    if execute:
        plan, done = timelines.restore(context, pipeline, request)
        facts = body_of(describe_restore(plan, done))
        show_fields({"executed": True, "timeline": done.genesis.timeline, **facts}, as_json=as_json)
        if done.overtaken:
            note(f"completed meanwhile, and also left behind: {', '.join(c.plan.name for c in done.overtaken)}")
        note(f"Next: tidemark run {pipeline}    (continues after {plan.checkpoint.plan.name}).")
        return
    plan = timelines.plan_restore(context, pipeline, request)
    show_fields({"executed": False, "timeline": None, **body_of(describe_restore(plan))}, as_json=as_json)
    if not options.accept_loss:
        plan.refuse_gaps()
    note("nothing was written; checkpoints left behind stay readable. Next: the same command with --execute")


def fork(
    pipeline: PipelineName,
    name: ForkName,
    where: RestorePointOptions,
    text: Annotated[str, typer.Option("--note", help="Add a note for people.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Start an isolated timeline next to the live one. A fork sends nothing to Kafka.

    Examples:
      tidemark fork flights bugfix --savepoint june
      tidemark fork flights what-if --checkpoint chk-6 --note "with next year's fares"
    """
    done = timelines.fork(open_context(), pipeline, name, replace(where.request(RestoreOptions()), note=text))
    show_fields({**body_of(describe_fork(done.genesis)), "began_now": done.won}, as_json=as_json)
    note(f"Next: tidemark run {pipeline} --timeline {name}")


def promote(
    pipeline: PipelineName,
    name: ForkName,
    discard: Annotated[
        bool,
        typer.Option("--discard", help="Promote even if the fork lacks records that the live timeline has applied."),
    ] = False,
    send: Annotated[
        bool, typer.Option("--send", help="Send records in the fork's outboxes that the live timeline has not sent.")
    ] = False,
    execute: Execute = False,
    as_json: JsonFlag = False,
) -> None:
    """Make a fork the live timeline. The previous live timeline ends and stays readable.

    The fork must have applied every record that the live timeline has. Without --execute, it only shows the plan.

    Examples:
      tidemark promote flights bugfix
      tidemark promote flights bugfix --execute
    """
    context = open_context()
    if execute:
        done = timelines.promote(context, pipeline, name, discard=discard, send=send)
        show_fields({"executed": True, **body_of(describe_promote(name, done))}, as_json=as_json)
        note(f"Next: tidemark run {pipeline}    (continues with {name}).")
        return
    plan = timelines.plan_promote(context, pipeline, name)
    show_fields({"executed": False, **body_of(describe_promote(name, plan))}, as_json=as_json)
    if plan.left and not discard:
        note(f"{name} lacks records of these. Next: tidemark run {pipeline} --timeline {name}    (catches up)")
    else:
        note("nothing was written. Next: the same command with --execute")


def _renames(texts: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    wrong = [text for text, (old, _, new) in zip(texts, pairs, strict=True) if not old or not new]
    if wrong:
        raise UsageError(f"not a rename: {wrong[0]!r}", next="write OLD=NEW.")
    return {old: new for old, _, new in pairs}
