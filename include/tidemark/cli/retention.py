"""`tidemark retention plan | apply` and `tidemark storage`: the files to delete, why, and what keeps the rest."""

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from tidemark.cli.option_groups import Execute, PipelineName
from tidemark.cli.output import JsonFlag, human_bytes, note, print_json, show_fields, show_rows, to_datetime
from tidemark.cli.progress import Counted
from tidemark.context import open_context
from tidemark.coordinator.recovery.integrity import refuse_damaged
from tidemark.coordinator.retention.storage_report import Stored
from tidemark.model.checkpoint.codec import body_of
from tidemark.model.core.savepoint_expiry import span_ms
from tidemark.model.retention.deletion import DeletionPlan, spans
from tidemark.operations import retention
from tidemark.operations.retention import describe_plan, describe_storage, describe_verified_sweep

Keep = Annotated[
    str | None,
    typer.Option(
        "--keep", metavar="RULE", help='Override the declared rule, for example with "keep_last(10) | daily(30)".'
    ),
]
Grace = Annotated[
    str, typer.Option("--grace", metavar="SPAN", help="Delete only files that have been free this long: 1h, 7d, 0.")
]
All = Annotated[bool, typer.Option("--all", help="Show all files (default on a terminal: the first 20).")]
_SHOWN = 20


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(help="Release old checkpoints and delete unused files.", no_args_is_help=True)
    group.command("plan")(plan)
    group.command("apply")(apply)
    app.add_typer(group, name="retention")
    app.command("storage")(storage)


def plan(pipeline: PipelineName, keep: Keep = None, every: All = False, as_json: JsonFlag = False) -> None:
    """Show each file that retention would delete and why, and what keeps the other files. Writes nothing.

    Examples:
      tidemark retention plan flights
      tidemark retention plan flights --keep "keep_last(2) | monthly(12)"
      tidemark retention plan flights --all --json
    """
    found = retention.plan_sweep(open_context(), pipeline, keep)
    if as_json:
        print_json(describe_plan(found, 0, shown=None))
        return
    _describe(found)
    _show_files(found, every=every)
    note(f"Next: tidemark retention apply {pipeline}{_again(keep)} --execute")


def apply(
    pipeline: PipelineName, execute: Execute = False, keep: Keep = None, grace: Grace = "1h", as_json: JsonFlag = False
) -> None:
    """Release checkpoints that nothing keeps, delete files that have been free for the grace time, and verify the rest.

    A file's grace time starts when a sweep first finds it free, so the next run deletes what this run releases.

    Examples:
      tidemark retention apply flights
      tidemark retention apply flights --execute
      tidemark retention apply flights --keep "keep_last(2)" --grace 0 --execute
    """
    context, grace_ms = open_context(), span_ms(grace)
    if not execute:
        found = retention.plan_sweep(context, pipeline, keep)
        if as_json:
            print_json(describe_plan(found, grace_ms))
            return
        _describe(found)
        due = found.due(grace_ms)
        note(f"would delete {len(due)} files ({human_bytes(sum(f.bytes for f in due))}) now, the others after {grace}.")
        note(f"Next: tidemark retention apply {pipeline}{_again(keep)} --grace {grace} --execute")
        return
    with Counted() as counted:
        done = retention.sweep_and_verify(context, pipeline, keep, grace_ms=grace_ms, on_progress=counted)
    facts = body_of(describe_verified_sweep(done))
    show_fields(facts if as_json else {**facts, "released": spans(done.swept.released)}, as_json=as_json)
    refuse_damaged(done.verified)


def storage(pipeline: PipelineName, as_json: JsonFlag = False) -> None:
    """Show the bytes per operator and timeline: kept, free, in progress or unknown; and how much each pin keeps.

    Examples:
      tidemark storage flights
      tidemark storage flights --json
    """
    found = retention.measure_storage(open_context(), pipeline)
    if as_json:
        print_json(describe_storage(pipeline, found))
        return
    rows = [
        {"table": kind, "of": owner, "timeline": _with_fate(timeline, found.fates), **_sizes(held)}
        for (kind, owner, timeline), held in found.owners.items()
    ]
    total = {"table": "all", "of": "", "timeline": "", **_sizes(found.total)}
    show_rows(
        [*rows, total] if rows else [], as_json=False, empty=f"{pipeline} has no files yet: tidemark run {pipeline}"
    )
    for kept in found.kept:
        note(f"kept by {kept.why}: {human_bytes(kept.bytes)}, {human_bytes(kept.alone)} of it by nothing else")


def _describe(found: DeletionPlan) -> None:
    for bad in found.damaged:
        note(f"{bad.name}: {bad.why}")
        note(f"  nothing of timeline {', '.join(bad.blocks)} is released or deleted: the manifest may name the files.")
        note(f"  restore it from a backup, or: tidemark checkpoint give-up {found.pipeline} {bad.name}")
    rule = found.rule or "none declared, so every checkpoint is kept"
    note(f"rule: {rule}")
    note(f"would release: {spans(found.released)}")
    if found.disposed:
        note(f"would dispose of expired savepoints: {', '.join(found.disposed)}")
    if found.ended:
        note(f"would give up jobs that have been open too long: {', '.join(found.ended)}")
    logs = sum(len(prefix.files) for prefix in found.logs)
    note(f"free: {len(found.free)} files, {human_bytes(found.bytes)}; {logs} log files")
    note(f"kept: {found.kept_files} files, {human_bytes(found.kept_bytes)}")
    for kept in found.kept:
        alone = f", {human_bytes(kept.alone)} of it by nothing else" if kept.alone else ""
        note(f"  {kept.why}: {human_bytes(kept.bytes)}{alone}  ({spans(kept.checkpoints)})")
    if found.unknown:
        note(f"unknown, left alone: {len(found.unknown)} files, for example {found.unknown[0].path}")


def _show_files(found: DeletionPlan, *, every: bool) -> None:
    # A pipe gets all rows: a script that reads them needs them all.
    shown = found.free if every or not sys.stdout.isatty() else found.free[:_SHOWN]
    rows = [{"file": f.path, "bytes": f.bytes, "free since": to_datetime(f.since_ms), "why": f.why} for f in shown]
    show_rows(rows, as_json=False, empty="nothing is free.")
    if len(shown) < len(found.free):
        note(f"… and {len(found.free) - len(shown)} more: --all shows them.")


def _sizes(held: Stored) -> dict[str, Any]:
    return {
        "kept": human_bytes(held.kept),
        "free": human_bytes(held.free),
        "in progress": human_bytes(held.waiting),
        "unknown": human_bytes(held.unknown),
        "log": human_bytes(held.log),
        "files": held.files,
    }


def _with_fate(timeline: str, fates: Mapping[str, str]) -> str:
    return f"{timeline} ({fates[timeline]})" if fates.get(timeline, "").startswith("closed") else timeline


def _again(keep: str | None) -> str:
    return "" if keep is None else f' --keep "{keep}"'
