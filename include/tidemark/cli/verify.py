"""`tidemark verify`: whether restore points are whole, without Spark."""

from typing import Annotated, Any

import typer

from tidemark.cli.checkpoint_id import parse_id
from tidemark.cli.output import JsonFlag, human_bytes, note, print_json, show_rows
from tidemark.cli.progress import Counted
from tidemark.cli.run import PipelineName
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
    savepoint: Annotated[str | None, typer.Argument(metavar="[SAVEPOINT]", help="Only this savepoint.")] = None,
    checkpoint: Annotated[str | None, typer.Option(metavar="ID", help="Only this checkpoint.")] = None,
    content: Annotated[bool, typer.Option("--content", help="Compare every byte of every data file.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Check that restore points are whole: manifests, logs of tables, files and their sizes, stored queries.

    Names each bad file and every restore point that it breaks, and ends with 6. Changes nothing, starts no Spark.

    Examples:
      tidemark verify flights
      tidemark verify flights before-upgrade
      tidemark verify flights --checkpoint chk-3 --content --json
    """
    if savepoint is not None and checkpoint is not None:
        raise UsageError("both a savepoint and a checkpoint", next="name one of them.")
    at = savepoint if checkpoint is None else parse_id(checkpoint)
    with Counted() as counted:
        found = verification.verify(open_context(), pipeline, at, content=content, on_progress=counted)
    if as_json:
        print_json(_told(pipeline, found, content))
    elif found.damages:
        show_rows([{"damaged": d.where, "why": d.why, "breaks": d.breaks} for d in found.damages], as_json=False)
    else:
        seen = found.inspected
        note(
            f"whole: {len(found.points)} restore points, {seen.segments} versions of tables,"
            f" {seen.files} files, {human_bytes(seen.bytes)}"
        )
    refuse_damaged(found)


def _told(pipeline: str, found: Verified, content: bool) -> dict[str, Any]:
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
