"""`tidemark stop` and `tidemark resume`: stop a pipeline and its DAGs, with or without a savepoint, and resume them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from tidemark.cli.airflow_api import AirflowError
from tidemark.cli.airflow_dags import dags_of
from tidemark.cli.option_groups import Note, PipelineName
from tidemark.cli.output import JsonFlag, note, show_fields
from tidemark.cli.progress import ProgressListener
from tidemark.context import open_context
from tidemark.coordinator.recovery.stop_and_resume import STOP, Stopped
from tidemark.environment import user_name
from tidemark.errors import UsageError
from tidemark.model.checkpoint.codec import body_of
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import stop as stop_operations

PATIENCE = 600.0
"""How long to wait for running DAG runs to end before pausing their DAG, in seconds."""


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("stop")(stop)
    app.command("resume")(resume)


def stop(
    pipeline: PipelineName,
    savepoint: Annotated[
        str | None, typer.Option(metavar="NAME", help="First complete a last checkpoint, and pin it under this name.")
    ] = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="Stop for good: close all windows; continuing requires --force.")
    ] = False,
    text: Note = None,
    wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Wait this many seconds for running DAG runs to end.")
    ] = PATIENCE,
    as_json: JsonFlag = False,
) -> None:
    """Stop a pipeline, optionally after a last checkpoint that a savepoint pins, and pause its DAGs once they are idle.

    A stopped pipeline plans no checkpoint, from Airflow or by hand. You can still read it and create savepoints. If a
    step fails before the stop is recorded, the pipeline keeps running, and the command reports the failure.

    With --drain, one more checkpoint closes all windows and fires all timers. The savepoint pins the one before.

    Examples:
      tidemark stop flights --savepoint before-upgrade
      tidemark stop flights --savepoint last --drain --note "the airline closed"
      tidemark stop flights
    """
    if drain and savepoint is None:
        raise UsageError("--drain requires --savepoint", next=f"tidemark stop {pipeline} --savepoint NAME --drain")
    context, why = open_context(), text or f"stopped by {user_name()}"
    if savepoint is None:
        done = stop_operations.stop(context, pipeline, why)
    else:
        request = SavepointRequest(name=savepoint, owner=user_name(), origin=STOP, note=text or "", drained=drain)
        with ProgressListener() as progress:
            done = stop_operations.stop_with_savepoint(context, pipeline, request, why, progress)
    _report(pipeline, done)
    dags = dags_of(context.settings, pipeline)
    if dags is None:
        note("no DAG was paused: no Airflow runs here, and TIDEMARK_AIRFLOW_URL is not set. DAG runs will fail")
        note("because the pipeline is stopped.")
    with _still(f"{pipeline} is stopped: no plan is made."):
        paused = [] if dags is None else dags.pause(wait, note)
    show_fields({**body_of(stop_operations.describe_stop(pipeline, done)), "paused_dags": paused}, as_json=as_json)


def resume(
    pipeline: PipelineName,
    force: Annotated[bool, typer.Option("--force", help="Resume even if the pipeline was drained.")] = False,
    text: Note = None,
    as_json: JsonFlag = False,
) -> None:
    """Resume a stopped pipeline from its newest checkpoint, and unpause its DAGs.

    If windows were drained, --force first restores the checkpoint before that, sinks included.

    Examples:
      tidemark resume flights
      tidemark resume flights --force
    """
    context = open_context()
    done = stop_operations.resume(context, pipeline, text or f"resumed by {user_name()}", force=force)
    if done is None:
        note(f"{pipeline} was not stopped.")
    dags = dags_of(context.settings, pipeline)
    with _still(f"{pipeline} is not stopped any more; its DAGs may be paused."):
        unpaused = [] if dags is None else dags.unpause()
    show_fields({"pipeline": pipeline, "resumed": done is not None, "unpaused_dags": unpaused}, as_json=as_json)


@contextmanager
def _still(safe: str) -> Iterator[None]:
    """Adds to an error of Airflow what the command has done nevertheless."""
    try:
        yield
    except AirflowError as error:
        error.safe = safe
        raise


def _report(pipeline: str, done: Stopped) -> None:
    note(f"{pipeline} is stopped: it plans no checkpoint until `tidemark resume {pipeline}`.")
    if done.drain and done.savepoint:
        note(f"{done.drain} closed all windows. The savepoint pins {done.savepoint.checkpoint_name}, the one before.")
    elif done.record.drained:
        note("No operator has windows or timers, so there was nothing to close.")
    if done.in_progress:
        note(f"{done.in_progress} was planned before and may still be completed.")
    if done.followed_by and done.savepoint:
        note(f"{done.followed_by} was completed after {done.savepoint.checkpoint_name}, which the savepoint pins.")
        note(f"Next: tidemark savepoint create {pipeline} NAME    (pins {done.followed_by}).")
