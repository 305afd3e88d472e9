"""How a checkpoint is named on the command line: `chk-17`, or `17`, or by the savepoint that pins it."""

from typing import Annotated

import typer

from tidemark.context import Context
from tidemark.model.core.names import parse_id as parse_id
from tidemark.operations import savepoints

CheckpointId = Annotated[str, typer.Argument(metavar="ID", help="A checkpoint id, as in chk-17.")]
At = Annotated[str | None, typer.Option("--checkpoint", metavar="ID", help="A checkpoint; the newest without it.")]
AtSavepoint = Annotated[
    str | None, typer.Option("--savepoint", metavar="NAME", help="Instead of --checkpoint: what a savepoint pins.")
]


def chosen_id(context: Context, pipeline: str, checkpoint: str | None, savepoint: str | None) -> int | None:
    """The id that `--checkpoint` or `--savepoint` names; None where neither is given.

    Raises:
        UsageError: both, or no checkpoint id.
        NotFoundError: no such savepoint.
    """
    return savepoints.resolve_checkpoint_id(
        context, pipeline, None if checkpoint is None else parse_id(checkpoint), savepoint
    )


def named_id(context: Context, pipeline: str, text: str) -> int:
    """The id that a text names: `chk-17`, `17`, or a savepoint, which can never read as an id.

    Raises:
        NotFoundError: no such savepoint.
    """
    return savepoints.find_checkpoint_id(context, pipeline, text)
