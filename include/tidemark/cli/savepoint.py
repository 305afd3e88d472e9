"""`tidemark savepoint create | list | show | update | patch | transform | dispose | hold | release`: named pins."""

from typing import Annotated, Any

import typer

from tidemark.answers.timeline_facts import SavepointFacts
from tidemark.cli.checkpoint_id import parse_id
from tidemark.cli.option_groups import Execute, Expires, Note, PipelineName, with_options
from tidemark.cli.output import JsonFlag, human_bytes, note, show_fields, show_rows
from tidemark.cli.patch import patch
from tidemark.cli.transform import transform
from tidemark.context import Context, open_context
from tidemark.environment import random_id, user_name
from tidemark.errors import NotFoundError, UsageError
from tidemark.model.checkpoint.codec import body_of
from tidemark.model.core.savepoint_expiry import expiry_ms
from tidemark.model.retention.savepoint import SavepointChange, SavepointRequest
from tidemark.operations import retention
from tidemark.operations import savepoints as savepoint_operations

Named = Annotated[
    tuple[str, str], typer.Argument(metavar="PIPELINE NAME", help="A pipeline, and the name of a savepoint.")
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(help="Name checkpoints, so that retention keeps them.", no_args_is_help=True)
    group.command("create")(create)
    group.command("list")(list_savepoints)
    group.command("show")(show)
    group.command("update")(update)
    group.command("note", hidden=True)(update)  # the old name, an alias
    group.command("patch")(with_options(patch))
    group.command("transform")(with_options(transform))
    group.command("dispose")(dispose)
    group.command("hold")(hold)
    group.command("release")(release)
    app.add_typer(group, name="savepoint")


def create(
    savepoint: Named,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="ID", help="Pin this checkpoint, of any timeline (default: the newest).")
    ] = None,
    text: Note = None,
    expires: Expires = None,
    owner: Annotated[str | None, typer.Option(help="Name who is responsible (default: you).")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Pin a completed checkpoint under a name. Copies nothing, and works while the pipeline runs, is paused or fails.

    Examples:
      tidemark savepoint create flights before-upgrade
      tidemark savepoint create flights end-of-june --checkpoint chk-6 --note "first half" --expires 90d
      tidemark savepoint create flights audit-2013 --owner finance --json
    """
    context, (pipeline, name) = open_context(), savepoint
    request = SavepointRequest(
        name=name,
        owner=owner or user_name(),
        origin=f"cli {random_id()}",
        checkpoint=None if checkpoint is None else parse_id(checkpoint),
        note=text or "",
        expires_at_ms=None if expires is None else expiry_ms(expires, context.clock.now_ms()),
    )
    made = savepoint_operations.open_savepoints(context, pipeline).create(request)
    show_fields(savepoint_operations.describe_savepoint(context, pipeline, made), as_json=as_json)
    note(f"{name} pins {made.checkpoint_name}. To restore it: tidemark restore {pipeline} --savepoint {name}")


def list_savepoints(
    pipeline: PipelineName,
    disposed: Annotated[bool, typer.Option("--disposed", help="Include disposed savepoints.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List savepoints, oldest first, with their checkpoint, size, owner and expiry.

    Examples:
      tidemark savepoint list flights
      tidemark savepoint list flights --disposed --json
    """
    context = open_context()
    found = savepoint_operations.open_savepoints(context, pipeline).list(disposed=disposed)
    rows = [savepoint_operations.describe_savepoint(context, pipeline, record) for record in found]
    lines = [body_of(row) if as_json else _line(row) for row in rows]
    show_rows(lines, as_json=as_json, empty=f"{pipeline} has no savepoints: tidemark savepoint create {pipeline} NAME")


def show(savepoint: Named, as_json: JsonFlag = False) -> None:
    """Show one savepoint, even a disposed one, and what prevents its disposal.

    Examples:
      tidemark savepoint show flights before-upgrade
      tidemark savepoint show flights before-upgrade --json
    """
    context, (pipeline, name) = open_context(), savepoint
    savepoints = savepoint_operations.open_savepoints(context, pipeline)
    found = savepoints.find(name)
    if found is None:
        raise NotFoundError(f"{pipeline} has no savepoint {name!r}", next=f"tidemark savepoint list {pipeline}")
    needed_by = [] if found.disposed else list(savepoints.needed_by(name))
    show_fields(
        {**body_of(savepoint_operations.describe_savepoint(context, pipeline, found)), "needed_by": needed_by},
        as_json=as_json,
    )


def update(savepoint: Named, text: Note = None, expires: Expires = None, as_json: JsonFlag = False) -> None:
    """Change the note or the expiry of a savepoint. Its name and its checkpoint cannot change.

    Examples:
      tidemark savepoint update flights before-upgrade --note "kept for the audit"
      tidemark savepoint update flights before-upgrade --expires never
    """
    if text is None and expires is None:
        raise UsageError("nothing to change", next="give --note, --expires, or both.")
    context, (pipeline, name) = open_context(), savepoint
    wanted = SavepointChange(
        note=text,
        expires_at_ms=None if expires is None else expiry_ms(expires, context.clock.now_ms()),
        moves_expiry=expires is not None,
    )
    made = savepoint_operations.open_savepoints(context, pipeline).change(name, wanted)
    show_fields(savepoint_operations.describe_savepoint(context, pipeline, made), as_json=as_json)


def dispose(
    savepoint: Named,
    execute: Execute = False,
    as_json: JsonFlag = False,
) -> None:
    """End a savepoint, so that it no longer pins its checkpoint. Its name stays taken, and no file is deleted now.

    Examples:
      tidemark savepoint dispose flights before-upgrade
      tidemark savepoint dispose flights before-upgrade --execute
    """
    context, (pipeline, name) = open_context(), savepoint
    savepoints = savepoint_operations.open_savepoints(context, pipeline)
    if execute:
        done = savepoints.dispose(name)
        show_fields(
            {**savepoint_operations.describe_disposal(context, pipeline, name), "disposed": done.disposed},
            as_json=as_json,
        )
        return
    found, needed_by = savepoints.get(name), list(savepoints.needed_by(name))
    show_fields(
        {**savepoint_operations.describe_disposal(context, pipeline, name), "disposed": False, "needed_by": needed_by},
        as_json=as_json,
    )
    savepoints.refuse_needed(name)
    note(f"would dispose of {name}; no file is deleted now, and retention decides about {found.checkpoint_name}.")
    note(f"Next: tidemark savepoint dispose {pipeline} {name} --execute")


def hold(
    savepoint: Named,
    why: Annotated[str, typer.Option("--why", help="Name the case, or who asked for the hold.")],
    owner: Annotated[str | None, typer.Option(help="Name who is responsible (default: you).")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Put a legal hold on a savepoint: it does not expire and cannot be disposed of until you release the hold.

    Examples:
      tidemark savepoint hold flights end-of-june --why "case 4711"
    """
    context, (pipeline, name) = open_context(), savepoint
    retention.open_holds(context, pipeline).hold(name, why=why, owner=owner or user_name())
    _show_hold(context, pipeline, name, as_json=as_json)


def release(savepoint: Named, as_json: JsonFlag = False) -> None:
    """Release the legal hold on a savepoint. The savepoint stays.

    Examples:
      tidemark savepoint release flights end-of-june
    """
    context, (pipeline, name) = open_context(), savepoint
    retention.open_holds(context, pipeline).release(name)
    _show_hold(context, pipeline, name, as_json=as_json)


def _show_hold(context: Context, pipeline: str, name: str, *, as_json: bool) -> None:
    savepoints = savepoint_operations.open_savepoints(context, pipeline)
    facts = {"name": name, "checkpoint": savepoints.get(name).checkpoint_name}
    show_fields({**facts, "needed_by": list(savepoints.needed_by(name))}, as_json=as_json)


def _line(row: SavepointFacts) -> dict[str, Any]:
    state = "expired" if row.expired else "drained" if row.drained else ""
    if row.disposed:
        state = f"claimed by {row.claimed_by}" if row.claimed_by else "disposed"
    return {
        "name": row.name,
        "checkpoint": row.checkpoint,
        "timeline": row.timeline,
        "as of": row.logical_time,
        "full": None if row.full_bytes is None else human_bytes(row.full_bytes),
        "owner": row.owner,
        "created": row.created_at,
        "expires": row.expires_at or "never",
        "state": state or "kept",
        "note": row.note,
    }
