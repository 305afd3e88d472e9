"""The routes that change something. All other actions trigger DAGs through Airflow's own interface."""

from dataclasses import replace
from typing import Annotated

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict

from tidemark.airflow.ui.access import Writable
from tidemark.airflow.ui.shared import shared_context
from tidemark.answers.checkpoint_details import AbortFacts
from tidemark.answers.dead_letter_facts import RedriveStatus
from tidemark.answers.timeline_facts import DisposalPreview
from tidemark.operations import savepoints
from tidemark.web import previews

router = APIRouter()


class Confirmation(BaseModel):
    """The confirmation of a disposal, an abort or a withdrawal."""

    model_config = ConfigDict(extra="forbid")

    execute: bool


@router.post("/pipelines/{pipeline}/savepoints/{name}/disposal")
def dispose(
    pipeline: Writable, name: Annotated[str, Path(min_length=1, max_length=63)], asked: Confirmation
) -> DisposalPreview:
    """Disposes of a savepoint (Flink's `/savepoint-disposal`); with `execute` false this is a dry run.

    Raises:
        NotFoundError: no such savepoint, or it is disposed.
        ConflictError: a fork or a legal hold needs it.
    """
    found = previews.preview_disposal(shared_context(), pipeline, name)
    if asked.execute:
        savepoints.open_savepoints(shared_context(), pipeline).dispose(name)
    return replace(found, disposed=asked.execute)


@router.post("/pipelines/{pipeline}/checkpoints/details/{checkpoint}/abort")
def abort(pipeline: Writable, checkpoint: Annotated[int, Path(ge=1, le=10**12)], asked: Confirmation) -> AbortFacts:
    """Aborts a checkpoint in progress, as `tidemark checkpoint abort` does; with `execute` false this is a dry run.

    Raises:
        NotFoundError: the id was never planned.
        ConflictError: it is not in progress, or was sealed first.
    """
    return previews.abort_checkpoint(shared_context(), pipeline, checkpoint, execute=asked.execute)


@router.post("/pipelines/{pipeline}/dead-letters/requests/{number}/withdrawal")
def withdraw(
    pipeline: Writable, number: Annotated[int, Path(ge=1, le=10**12)], asked: Confirmation, user: GetUserDep
) -> RedriveStatus:
    """Withdraws a request to redrive dead letters, as `tidemark dead-letters withdraw` does; `execute` false: dry run.

    Raises:
        NotFoundError: no such request.
        ConflictError: it does not wait for a checkpoint any more.
    """
    return previews.withdraw_redrive(shared_context(), pipeline, number, user.get_name(), execute=asked.execute)
