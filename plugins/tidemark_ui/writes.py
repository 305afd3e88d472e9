"""The one route that changes something: all other actions trigger DAGs, through Airflow's own interface."""

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict

from tidemark.operations import savepoints
from tidemark.web import previews
from tidemark_ui import models
from tidemark_ui.access import Writable
from tidemark_ui.reading import shared_context

router = APIRouter()


class DisposalRequest(BaseModel):
    """Nothing but the confirmation."""

    model_config = ConfigDict(extra="forbid")

    execute: bool


@router.post("/pipelines/{pipeline}/savepoints/{name}/disposal")
def dispose(
    pipeline: Writable, name: Annotated[str, Path(min_length=1, max_length=63)], asked: DisposalRequest
) -> models.Disposal:
    """Ends a savepoint (Flink's `/savepoint-disposal`); with `execute` false it is the dry run.

    Raises:
        NotFoundError: no such savepoint, or it is disposed.
        ConflictError: something needs it.
    """
    told = previews.preview_disposal(shared_context(), pipeline, name)
    if asked.execute:
        savepoints.open_savepoints(shared_context(), pipeline).dispose(name)
    return models.Disposal.model_validate({**told, "disposed": asked.execute})
