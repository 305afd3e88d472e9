"""The only route that changes something. All other actions trigger DAGs through Airflow's own interface."""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict

from tidemark.airflow.ui.access import Writable
from tidemark.airflow.ui.shared import shared_context
from tidemark.answers.timeline_facts import DisposalPreview
from tidemark.operations import savepoints
from tidemark.web import previews

router = APIRouter()


class DisposalRequest(BaseModel):
    """The confirmation of a disposal."""

    model_config = ConfigDict(extra="forbid")

    execute: bool


@router.post("/pipelines/{pipeline}/savepoints/{name}/disposal")
def dispose(
    pipeline: Writable, name: Annotated[str, Path(min_length=1, max_length=63)], asked: DisposalRequest
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
