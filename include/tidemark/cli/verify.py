"""`tidemark verify`: check that restore points are complete and undamaged, without Spark."""

from typing import Annotated, Any

import typer

from tidemark.cli.checkpoint_id import parse_id
from tidemark.cli.option_groups import PipelineName
from tidemark.cli.output import JsonFlag, human_bytes, note, print_json, show_rows
from tidemark.cli.progress import Counted
from tidemark.context import open_context
from tidemark.coordinator.recovery.integrity import refuse_damaged
from tidemark.errors import UsageError
from tidemark.model.retention.findings import Verified
from tidemark.operations import verification


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("verify")(verify)


def verify(
    pipeline: PipelineName,
    savepoint: Annotated[
        str | None, typer.Argument(metavar="[SAVEPOINT]", help="A savepoint (default: all restore points).")
    ] = None,
    checkpoint: Annotated[str | None, typer.Option(metavar="ID", help="Check only this checkpoint.")] = None,
    content: Annotated[bool, typer.Option("--content", help="Read and compare every byte of every data file.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Check that restore points are undamaged: manifests, table logs, files and their sizes, and stored queries.

    Lists each damaged file and the restore points that it breaks, and exits with 6. Changes nothing, and does not start
    Spark.

    Examples:
      tidemark verify flights
      tidemark verify flights before-upgrade
      tidemark verify flights --checkpoint chk-3 --content --json
    """
    if savepoint is not None and checkpoint is not None:
        raise UsageError("a savepoint and --checkpoint exclude each other", next="give one of them.")
    at = savepoint if checkpoint is None else parse_id(checkpoint)
    with Counted() as counted:
        found = verification.verify(open_context(), pipeline, at, content=content, on_progress=counted)
    if as_json:
        print_json(_facts(pipeline, found, content))
    elif found.damages:
        show_rows([{"damaged": d.where, "why": d.why, "breaks": d.breaks} for d in found.damages], as_json=False)
    else:
        seen = found.inspected
        note(
            f"undamaged: {len(found.points)} restore points, {seen.segments} table versions,"
            f" {seen.files} files, {human_bytes(seen.bytes)}"
        )
    refuse_damaged(found)


def _facts(pipeline: str, found: Verified, content: bool) -> dict[str, Any]:
    return {
        "pipeline": pipeline,
        "content": content,
        "restore_points": list(found.points),
        "segments": found.inspected.segments,
        "files": found.inspected.files,
        "bytes": found.inspected.bytes,
        "broken": list(found.broken),
        "damaged": [{"file": d.where, "why": d.why, "breaks": list(d.breaks)} for d in found.damages],
    }
