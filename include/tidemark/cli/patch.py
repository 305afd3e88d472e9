"""`tidemark savepoint patch`: create a corrected copy of a savepoint, with values set and keys deleted."""

from dataclasses import asdict, dataclass, field
from typing import Annotated

import typer

from tidemark.cli.option_groups import AllowNonRestoredState, Execute, Expires, Note, parse_time
from tidemark.cli.output import JsonFlag, human_bytes, note, print_json, show_fields, show_rows
from tidemark.context import open_context
from tidemark.environment import user_name
from tidemark.model.core.savepoint_expiry import expiry_ms
from tidemark.operations.savepoint_states import patch as patch_operations
from tidemark.operations.savepoint_states.patch import Patched, PatchRequest, source_of, tables_of

From = Annotated[
    tuple[str, str], typer.Argument(metavar="PIPELINE FROM", help="A pipeline, and a savepoint or a checkpoint of it.")
]
As = Annotated[str, typer.Option("--as", metavar="NEW", help="Name the corrected savepoint.")]


@dataclass(frozen=True, kw_only=True)
class Corrections:
    """Options that say what to correct, and on which timeline."""

    values: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="UID=TABLE",
            help="Set keys from this table: Parquet or Delta, the complete new state of a key per row.",
        ),
    ] = field(default_factory=list)
    deletes: Annotated[
        list[str], typer.Option("--delete", metavar="UID=TABLE", help="Delete the keys in this table of key columns.")
    ] = field(default_factory=list)
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Set when the set keys were last accessed (default: the time of FROM)."),
    ] = None
    timeline: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name the fork on which it is created (default: NEW).")
    ] = None
    allow_non_restored_state: AllowNonRestoredState = False
    force: Annotated[bool, typer.Option("--force", help="Allow a savepoint that drained the pipeline.")] = False


@dataclass(frozen=True, kw_only=True)
class Label:
    """Options of the new savepoint."""

    text: Note = None
    expires: Expires = None
    owner: Annotated[str | None, typer.Option(help="Name who is responsible (default: you).")] = None


def patch(
    source: From,
    name: As,
    corrections: Corrections,
    label: Label,
    execute: Execute = False,
    as_json: JsonFlag = False,
) -> None:
    """Create a corrected savepoint: set and delete keys on a fork of FROM. FROM and its timeline do not change.

    A table for --set has the key columns and one column per field, and replaces the entire state of its keys. Without
    --execute, the command checks every row and lists the changes that it would make.

    Examples:
      tidemark savepoint patch flights june --as june-fixed --set aircraft=/data/right.parquet
      tidemark savepoint patch flights chk-6 --as june-fixed --delete routes=/data/wrong-keys --execute
    """
    context, (pipeline, of) = open_context(), source
    expires = None if label.expires is None else expiry_ms(label.expires, context.clock.now_ms())
    request = PatchRequest(
        pipeline=pipeline,
        source=source_of(of, force=corrections.force, allow_non_restored_state=corrections.allow_non_restored_state),
        name=name,
        values=tables_of(corrections.values),
        deletes=tables_of(corrections.deletes),
        timeline=corrections.timeline,
        at=None if corrections.at is None else parse_time(corrections.at),
        owner=label.owner or user_name(),
        note=label.text or "",
        expires_at_ms=expires,
    )
    done = patch_operations.patch(context, request) if execute else patch_operations.plan_patch(context, request)
    _show(pipeline, done, as_json=as_json)


def _show(pipeline: str, done: Patched, *, as_json: bool) -> None:
    made = None if done.checkpoint is None else done.checkpoint.plan.name
    facts = {
        "pipeline": pipeline,
        "from": done.source.plan.name,
        "savepoint": done.savepoint,
        "timeline": done.timeline,
        "checkpoint": made,
    }
    states = [{"uid": uid, **asdict(state)} for uid, state in done.states.items()]
    if as_json:
        print_json({**facts, "states": states})
    else:
        show_fields(facts, as_json=False)
        show_rows([{**state, "bytes": human_bytes(state["bytes"])} for state in states], as_json=False)
    if made is None:
        note("nothing was written. Next: the same command with --execute")
        return
    for uid in done.states:
        note(f"Compare: tidemark state diff {pipeline} {uid} --from {done.source.plan.name} --to {made} --values")
    note(f"Next: tidemark restore {pipeline} --savepoint {done.savepoint}    (restores it),")
    note(f"or:   tidemark run {pipeline} --timeline {done.timeline}, then tidemark promote {pipeline} {done.timeline}")
