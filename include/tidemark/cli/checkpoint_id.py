"""How a checkpoint is named on the command line: `chk-17`, or `17`."""

from typing import Annotated

import typer

from tidemark.errors import UsageError

CheckpointId = Annotated[str, typer.Argument(metavar="ID", help="A checkpoint id, as in chk-17.")]
At = Annotated[str | None, typer.Option("--checkpoint", metavar="ID", help="A checkpoint; the newest without it.")]


def parse_id(text: str) -> int:
    """The number of `chk-17` or `17`.

    Raises:
        UsageError: neither.
    """
    digits = text.removeprefix("chk-")
    if not digits.isdecimal():
        raise UsageError(f"not a checkpoint id: {text!r}", next="write chk-17 or 17.")
    return int(digits)
