"""Options that name a checkpoint: by its id, `chk-17` or `17`, or by the savepoint that pins it."""

from typing import Annotated

import typer

from tidemark.context import Context
from tidemark.model.core.names import parse_id as parse_id
from tidemark.operations import savepoints

CheckpointId = Annotated[str, typer.Argument(metavar="ID", help="A checkpoint id, such as chk-17.")]
At = Annotated[
    str | None, typer.Option("--checkpoint", metavar="ID", help="Read as of this checkpoint (default: the newest).")
]
AtSavepoint = Annotated[
    str | None, typer.Option("--savepoint", metavar="NAME", help="Read as of the checkpoint that this savepoint pins.")
]


def chosen_id(context: Context, pipeline: str, checkpoint: str | None, savepoint: str | None) -> int | None:
    """Returns the id that `--checkpoint` or `--savepoint` names, or None if neither is given.

    Raises:
        UsageError: both are given, or the text is not a checkpoint id.
        NotFoundError: there is no such savepoint.
    """
    return savepoints.resolve_checkpoint_id(
        context, pipeline, None if checkpoint is None else parse_id(checkpoint), savepoint
    )


def named_id(context: Context, pipeline: str, text: str) -> int:
    """Returns the id that a text names: `chk-17`, `17`, or a savepoint, whose name never looks like an id.

    Raises:
        NotFoundError: there is no such savepoint.
    """
    return savepoints.find_checkpoint_id(context, pipeline, text)
