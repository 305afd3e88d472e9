"""`tidemark run` and `tidemark compact`: make one checkpoint, or one compaction, without Airflow."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from tidemark.answers.checkpoint_facts import checkpoint_facts
from tidemark.cli.option_groups import AcceptLoss, AllowNonRestoredState, PipelineName, parse_time, with_options
from tidemark.cli.output import JsonFlag, human_bytes, note, print_json, show_fields, show_rows
from tidemark.cli.progress import ProgressListener
from tidemark.context import open_context
from tidemark.environment import random_id
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.row_tables import describe_owner
from tidemark.model.checkpoint.store_objects import CompactionRecord
from tidemark.model.state.compaction import Group, amplification
from tidemark.operations import checkpoints, compaction, observability, runs
from tidemark.ports import PlanRequest


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("run")(with_options(run))
    app.command("compact")(compact)


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Options that say what a checkpoint reads, and on which timeline."""

    max_records: Annotated[
        int | None,
        typer.Option(
            min=1, help="Read at most this many records per checkpoint (default: the pipeline's `max_records`)."
        ),
    ] = None
    once: Annotated[bool, typer.Option("--once", help="Make one checkpoint, even if records are left.")] = False
    until: Annotated[
        str | None,
        typer.Option(help="Stop before the first record at or after this ISO 8601 time (UTC if it has no zone)."),
    ] = None
    timeline: Annotated[
        str | None, typer.Option(metavar="NAME", help="Run on this fork (default: the live timeline).")
    ] = None


def run(
    pipeline: PipelineName,
    bounds: Bounds,
    accept_loss: AcceptLoss = False,
    allow_non_restored_state: AllowNonRestoredState = False,
    accept_time: Annotated[
        bool,
        typer.Option("--accept-time", help="Accept a time far beyond the latest checkpoint and the latest record."),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Make a checkpoint: finish the one in progress, or plan a new one.

    If the pipeline or --max-records bounds a checkpoint, several are made, up to the end that the log had at the start.

    Examples:
      tidemark run flights
      tidemark run flights --until 2013-02-01T05:00:00Z
      tidemark run flights --max-records 1000000
      tidemark run flights --max-records 10000 --once --json
      tidemark run flights --timeline bugfix
    """
    end = None if bounds.until is None else parse_time(bounds.until)
    request = PlanRequest(
        origin="cli",
        interval_end=end,
        until_interval_end=end is not None,
        max_records=bounds.max_records,
        accept_loss=accept_loss,
        allow_non_restored_state=allow_non_restored_state,
        accept_time=accept_time,
        run=f"cli/{random_id()}",
    )
    context = open_context()

    def is_last(made: Checkpoint) -> bool:
        if made.plan.run:
            progress.tell(runs.describe(context, made))
        return bounds.once

    try:
        with ProgressListener() as progress:
            made = checkpoints.make_checkpoints(context, pipeline, request, progress, bounds.timeline, is_last=is_last)
    finally:
        observability.report_metrics(context, pipeline)
    if made.checkpoint is not None:
        show_fields(checkpoint_facts(made.checkpoint), as_json=as_json)
        return
    if as_json:
        print_json({"covered_by": f"chk-{made.covered_by}"})
    note(f"nothing to do: covered by chk-{made.covered_by}")


def compact(
    pipeline: PipelineName,
    uid: Annotated[
        str | None, typer.Argument(metavar="[UID]", help="An operator, with its sink and dead letters (default: all).")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Rewrite all levels, whether due or not.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Merge what the newest checkpoint has in many files; the next checkpoint adopts the result.

    These are the runs of each operator's state, and the files of sinks and of dead letters. Amplification is the rows
    or bytes of a state as a multiple of those of its oldest level.

    Examples:
      tidemark compact flights
      tidemark compact flights aircraft --full
    """
    compaction.yield_processors()
    context = open_context()
    with ProgressListener() as progress:
        done = compaction.compact(context, pipeline, uid, full=full, listener=progress)
    rows = [
        _compaction_facts(
            record, compaction.read_groups(context, record.input), compaction.read_groups(context, record.output)
        )
        for record in done
    ]
    if not as_json:
        rows = [row | {name: human_bytes(row[name]) for name in ("bytes_before", "bytes_after")} for row in rows]
    show_rows(rows, as_json=as_json, empty="no compaction is due.")


def _compaction_facts(record: CompactionRecord, before: Sequence[Group], after: Sequence[Group]) -> dict[str, Any]:
    """The result of a compaction: levels, oldest first (0 is a run), and rows, bytes and files of the whole table."""
    uid, table = describe_owner(record.uid)
    row: dict[str, Any] = {"uid": uid, "table": table, "checkpoint": f"chk-{record.checkpoint}"}
    for name, of in (
        ("levels", lambda groups: [g.level for g in groups]),
        ("files", lambda groups: sum(len(g.files) for g in groups)),
        ("rows", lambda groups: sum(g.rows for g in groups)),
        ("bytes", lambda groups: sum(g.bytes for g in groups)),
        ("amplification", lambda groups: round(amplification(groups), 2) if table == "state" else None),
    ):
        row |= {f"{name}_before": of(before), f"{name}_after": of(after)}
    return row
