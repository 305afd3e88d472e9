"""`tidemark checkpoint list | show | stats | replay | abort | give-up`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemark.answers.checkpoint_facts import checkpoint_facts, iso
from tidemark.cli.checkpoint_id import CheckpointId, parse_id
from tidemark.cli.option_groups import Execute, PipelineName
from tidemark.cli.output import JsonFlag, human_bytes, note, print_json, show_fields, show_rows, to_datetime
from tidemark.cli.replay import replay
from tidemark.context import open_context
from tidemark.errors import ConflictError, UsageError
from tidemark.model.checkpoint.codec import body_of
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.segments import Segment
from tidemark.operations import checkpoints, compaction, observability, reads, retention, savepoints
from tidemark.operations.retention import describe_give_up

if TYPE_CHECKING:
    from tidemark.answers.checkpoint_details import StateLayers


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(help="List, show, replay, abort and give up checkpoints.", no_args_is_help=True)
    group.command("list")(list_checkpoints)
    group.command("show")(show)
    group.command("stats")(stats)
    group.command("replay")(replay)
    group.command("abort")(abort)
    group.command("give-up")(give_up)
    app.add_typer(group, name="checkpoint")


def list_checkpoints(
    pipeline: PipelineName,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many, newest first.")] = 50,
    as_json: JsonFlag = False,
) -> None:
    """List the completed checkpoints of the live timeline, newest first, and the savepoints that pin them.

    The list includes released checkpoints, whose state retention has deleted. A checkpoint in progress is reported on
    stderr.

    Examples:
      tidemark checkpoint list flights
      tidemark checkpoint list flights --limit 5 --json
    """
    context = open_context()
    found = reads.list_checkpoints(context, pipeline, limit=limit)
    pins = savepoints.open_savepoints(context, pipeline).pins()
    gone = reads.list_released(context, pipeline)
    rows = [
        {
            **(body_of(checkpoint_facts(c)) if as_json else _line(c)),
            "savepoints": list(pins.get(c.id, ())),
            "released": c.plan.name in gone if as_json else "released" if c.plan.name in gone else None,
        }
        for c in found
    ]
    show_rows(rows, as_json=as_json, empty=f"{pipeline} has no checkpoints yet: tidemark run {pipeline}")
    pending = checkpoints.find_pending(context, pipeline)
    if pending is not None:
        note(f"in progress: {pending.name} (planned {to_datetime(pending.planned_at_ms)})")


def show(pipeline: PipelineName, checkpoint: CheckpointId, as_json: JsonFlag = False) -> None:
    """Show one checkpoint: ranges, state and sink handles, dead letters, emitted records, gate, timings and savepoints.

    Examples:
      tidemark checkpoint show flights chk-3
      tidemark checkpoint show flights 3 --json
    """
    context = open_context()
    found, gone = reads.get_recorded_checkpoint(context, pipeline, parse_id(checkpoint))
    pins: dict[str, object] = {
        "savepoints": list(savepoints.open_savepoints(context, pipeline).pins().get(found.id, ()))
    }
    pins["released"] = None if gone is None else f"{iso(gone.at_ms)} {gone.why}"
    layers = {ack.uid: compaction.describe_layers(context, found, ack.uid) for ack in found.sealed.acks}
    if as_json:
        print_json({**reads.describe_manifest(context, found), **pins, "layers": layers})
        return
    show_fields({**body_of(checkpoint_facts(found)), **pins}, as_json=False)
    note("")
    for ack in found.sealed.acks:
        for segment in ack.handle:
            note(f"state {ack.uid}  {_segment(segment)}")
        for line in _layers(layers[ack.uid]):
            note(f"state {ack.uid}  {line}")
        for x in ack.operator_state.lists:
            note(f"operator state {ack.uid}.{x.name}  {x.mode.value}, {len(x.elements)} elements, {x.size} bytes")
        inexact = [f.name for f in found.plan.schemas[ack.uid].fields if not f.exact]
        if inexact:
            note(f"state {ack.uid}  not exact, left out of hashes: {', '.join(inexact)}")
        for output, report in ack.by_output.items():
            sink = found.sinks.get(output)
            if sink is None:
                continue
            note(f"sink {sink.name}  of {output}, which emitted {report.emitted} records")
            for segment in sink.handle:
                note(f"sink {sink.name}  {_segment(segment)}")


def stats(pipeline: PipelineName, as_json: JsonFlag = False) -> None:
    """Show a pipeline's metrics, under Flink's names where Flink has them; -1 means "none yet".

    Examples:
      tidemark checkpoint stats flights
      tidemark checkpoint stats flights --json
    """
    show_fields(observability.list_gauges(open_context(), pipeline), as_json=as_json)


def abort(
    pipeline: PipelineName,
    checkpoint: Annotated[str | None, typer.Argument(metavar="[ID]", help="The checkpoint in progress.")] = None,
    execute: Execute = False,
    as_json: JsonFlag = False,
) -> None:
    """Abort the checkpoint in progress: revoke its attempt, so that the next plan starts at the same offsets.

    Examples:
      tidemark checkpoint abort flights
      tidemark checkpoint abort flights chk-4 --execute
    """
    context = open_context()
    pending = checkpoints.find_pending(context, pipeline)
    if pending is None:
        _show_abort(None, None, None, as_json=as_json)
        note(f"{pipeline} has no checkpoint in progress.")
        return
    if checkpoint is not None and parse_id(checkpoint) != pending.id:
        raise UsageError(
            f"{checkpoint} is not in progress; {pending.name} is",
            next=f"tidemark checkpoint abort {pipeline} {pending.name} --execute",
        )
    if not execute:
        _show_abort(None, pending.name, None, as_json=as_json)
        note(f"would abort {pending.name}, which reads {pending.ranges.span} offsets; completed checkpoints stay.")
        note(f"Next: tidemark checkpoint abort {pipeline} {pending.name} --execute")
        return
    reason = checkpoints.decline(context, pipeline, pending)
    if reason is None:
        raise ConflictError(
            f"{pending.name} was sealed before it could be aborted, and will become a checkpoint",
            safe="nothing was aborted.",
            next=f"tidemark run {pipeline}    (publishes it).",
        )
    _show_abort(pending.name, None, reason.value, as_json=as_json)


def give_up(
    pipeline: PipelineName, checkpoint: CheckpointId, execute: Execute = False, as_json: JsonFlag = False
) -> None:
    """Give up a completed checkpoint whose manifest is damaged, if no backup has it: nothing reads it any more.

    If it is the newest checkpoint of its timeline, the timeline continues from the checkpoint before. Later
    checkpoints stay intact.

    Examples:
      tidemark checkpoint give-up flights chk-3
      tidemark checkpoint give-up flights chk-3 --execute
    """
    found = retention.give_up(open_context(), pipeline, parse_id(checkpoint), execute=execute)
    show_fields(describe_give_up(found), as_json=as_json)
    if found.stops_at is not None:
        note(f"{found.stops_at}, the checkpoint before, was released. Restore one that is kept, with --restore-sinks:")
        note(f"  tidemark verify {pipeline} lists them.")
    if found.sinks and found.is_newest:
        note(f"records that {found.manifest.name} sent to {', '.join(found.sinks)} will be sent again under new ids.")
    elif found.sinks:
        note(f"unsent records of {found.manifest.name} for {', '.join(found.sinks)} will never be sent.")
    if not execute:
        note("First look for the object in a backup of the warehouse: if you put it back, nothing is lost.")
        note(f"Next: tidemark checkpoint give-up {pipeline} {found.manifest.name} --execute")


def _show_abort(done: str | None, would: str | None, reason: str | None, *, as_json: bool) -> None:
    show_fields({"aborted": done, "would_abort": would, "reason": reason}, as_json=as_json)


def _segment(s: Segment) -> str:
    span = f"({s.after}, {s.through}]"
    return f"{s.path}@{s.version}  {span}  {s.rows} rows  {human_bytes(s.bytes)}"


def _layers(found: "StateLayers") -> Iterator[str]:
    """Describes the layout of a state on disk."""
    if found.live_runs is not None:
        yield f"live runs {found.live_runs}, deepest level {found.deepest_level}"
    if (rows := found.run_rows) is not None and rows.files > 1:
        yield f"rows per file of its run: {rows.min} to {rows.max}, {rows.avg} on average"
    if (made := found.compaction) is not None:
        written = "" if made.written_bytes is None else f", wrote {human_bytes(made.written_bytes)}"
        sizes = f"{human_bytes(made.bytes_before)} to {human_bytes(made.bytes_after)}"
        yield f"adopted a compaction of {made.checkpoint}: {sizes}{written}"


def _line(found: Checkpoint) -> dict[str, Any]:
    interval = found.interval
    return {
        "id": found.plan.name,
        "timeline": found.plan.slot.timeline,
        "until": None if interval is None else to_datetime(interval.end_ms),
        "records": found.sealed.facts.records,
        "dead letters": f"{'≤ ' if found.sealed.dead_lettered_at_most else ''}{found.sealed.dead_lettered}",
        "run": human_bytes(found.sealed.run_bytes),
        "full": human_bytes(found.sealed.full_bytes),
        "seconds": round(sum(found.sealed.timings_ms.values()) / 1000, 1),
    }
