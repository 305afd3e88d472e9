"""`tidemark savepoint transform`: create a savepoint whose states are the answers of queries over another one."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from tidemark.cli.option_groups import AllowNonRestoredState, Execute, parse_time
from tidemark.cli.output import JsonFlag, note, print_json, show_fields, show_rows
from tidemark.cli.patch import Label
from tidemark.context import open_context
from tidemark.environment import user_name
from tidemark.errors import UsageError
from tidemark.model.core.savepoint_expiry import expiry_ms
from tidemark.operations.savepoint_states import transform as transform_operations
from tidemark.operations.savepoint_states.patch import source_of
from tidemark.operations.savepoint_states.transform import Transformed, TransformRequest, queries_of

Pipeline = Annotated[str, typer.Argument(metavar="PIPELINE", help="The pipeline's name.")]
From = Annotated[str, typer.Option("--from", metavar="FROM", help="Read the states of this savepoint or checkpoint.")]
Fork = Annotated[str, typer.Option(metavar="NAME", help="Name the fork on which the new states begin.")]


@dataclass(frozen=True, kw_only=True)
class Queries(Label):
    """Options that say which states are written, and how, and those of the new savepoint."""

    query: Annotated[
        list[str],
        typer.Option(metavar="UID=SQL", help="Write the rows of this query as the state of an operator."),
    ] = field(default_factory=list)
    query_file: Annotated[list[str], typer.Option(metavar="UID=FILE", help="The same, with the query in a file.")] = (
        field(default_factory=list)
    )
    key_groups: Annotated[
        int | None, typer.Option(metavar="N", help="Write all states to this number of key groups.")
    ] = None
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Set when new and changed keys were last used (default: the time of FROM)."),
    ] = None
    name: Annotated[
        str | None, typer.Option("--as", metavar="NEW", help="Name the new savepoint (default: the name of the fork).")
    ] = None
    allow_non_restored_state: AllowNonRestoredState = False
    force: Annotated[bool, typer.Option("--force", help="Allow a savepoint that drained the pipeline.")] = False


def transform(
    pipeline: Pipeline,
    source: From,
    fork: Fork,
    queries: Queries,
    execute: Execute = False,
    as_json: JsonFlag = False,
) -> None:
    """Create a savepoint with other states: each query reads the states of FROM, and returns that of one operator.

    UID in a query is the state of an operator, as in `tidemark state sql`. The answer has its key columns and one
    column per field, as the pipeline declares them now. Other operators keep their state, which is not copied. Without
    --execute, the command checks every row and shows the effect. FROM and its timeline do not change.

    Examples:
      tidemark savepoint transform flights --from june --fork busy --query routes="FROM routes WHERE flights > 9"
      tidemark savepoint transform flights --from june --fork merged --query-file routes=merged.sql --execute
      tidemark savepoint transform flights --from chk-6 --fork wider --key-groups 1024 --execute
    """
    context = open_context()
    request = TransformRequest(
        pipeline=pipeline,
        source=source_of(source, force=queries.force, allow_non_restored_state=queries.allow_non_restored_state),
        fork=fork,
        queries=queries_of([*queries.query, *map(_read, queries.query_file)]),
        key_groups=queries.key_groups,
        name=queries.name,
        at=None if queries.at is None else parse_time(queries.at),
        owner=queries.owner or user_name(),
        note=queries.text or "",
        expires_at_ms=None if queries.expires is None else expiry_ms(queries.expires, context.clock.now_ms()),
    )
    run = transform_operations.transform if execute else transform_operations.plan_transform
    _show(request, run(context, request), as_json=as_json)


def _read(text: str) -> str:
    """Returns `UID=SQL` for a text `UID=FILE`."""
    uid, _, path = text.partition("=")
    if not (uid.strip() and path):
        raise UsageError(f"not of the form UID=FILE: {text!r}", next="write it as in aircraft=aircraft.sql.")
    try:
        return f"{uid}={Path(path).read_text(encoding='utf-8')}"
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}", next="give a text file in UTF-8.") from error


def _show(request: TransformRequest, done: Transformed, *, as_json: bool) -> None:
    made = None if done.checkpoint is None else done.checkpoint.plan.name
    facts: dict[str, Any] = {
        "pipeline": request.pipeline,
        "from": done.source.plan.name,
        "savepoint": done.savepoint,
        "timeline": done.timeline,
        "checkpoint": made,
    }
    states = [{"uid": uid, **asdict(state)} for uid, state in done.states.items()]
    others = {"taken_over": list(done.taken_over), "left_behind": list(done.left_behind)}
    if as_json:
        print_json({**facts, "states": states, **others})
    else:
        show_fields({**facts, **{name: ", ".join(uids) for name, uids in others.items() if uids}}, as_json=False)
        show_rows([{**state, "refused": _refused(state)} for state in states], as_json=False)
    _advise(request, done, made)


def _refused(state: dict[str, Any]) -> int:
    return sum(found["rows"] for found in state["refused"])


def _advise(request: TransformRequest, done: Transformed, made: str | None) -> None:
    pipeline, timeline = request.pipeline, done.timeline
    for uid, state in done.states.items():
        for found in state.refused:
            note(f"{uid}: {found.rows} rows refused, because {found.why}: {', '.join(found.some)}")
    if done.refused:
        note("nothing was written. Next: correct the query")
        return
    if made is None:
        note("nothing was written. Next: the same command with --execute")
        return
    for uid, state in done.states.items():
        if state.before:
            note(f"Compare: tidemark state diff {pipeline} {uid} --from {done.source.plan.name} --to {made} --values")
    note(f"Next: tidemark run {pipeline} --timeline {timeline}, then tidemark promote {pipeline} {timeline}")
