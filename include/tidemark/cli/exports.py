"""`tidemark export` and `tidemark import`: copy a checkpoint to plain files, on a disk or in a bucket, and back."""

from typing import Annotated, Any

import typer

from tidemark.cli.checkpoint_id import At, AtSavepoint, parse_id
from tidemark.cli.option_groups import AllowNonRestoredState, Execute, PipelineName
from tidemark.cli.output import JsonFlag, human_bytes, note, print_json, show_fields, show_rows
from tidemark.context import open_context
from tidemark.errors import UsageError
from tidemark.model.retention.export_manifest import Export
from tidemark.operations import export as export_operations
from tidemark.operations import import_ as import_operations
from tidemark.operations.import_ import Imported, ImportRequest


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("export")(export)
    app.command("import")(import_)


def export(
    pipeline: PipelineName,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FOLDER",
            help="Write to this folder, on disk or as s3://BUCKET/FOLDER; it must not hold an export yet.",
        ),
    ],
    savepoint: AtSavepoint = None,
    checkpoint: At = None,
    as_json: JsonFlag = False,
) -> None:
    """Copy a checkpoint to a self-contained folder: Parquet, queries, and a manifest with each file's sha256.

    You can move the folder, read it with any engine, and import it under another name or into another warehouse.

    Examples:
      tidemark export flights --to /backup/flights
      tidemark export flights --checkpoint chk-3 --to ./flights-3 --json
      tidemark export flights --savepoint june --to s3://backups/flights-june
    """
    if savepoint is not None and checkpoint is not None:
        raise UsageError("--savepoint and --checkpoint exclude each other", next="give one of them.")
    at = savepoint if checkpoint is None else parse_id(checkpoint)
    made = export_operations.export(open_context(), pipeline, at, to)
    if as_json:
        print_json({"pipeline": pipeline, "checkpoint": f"chk-{made.checkpoint}", "folder": to, **_sizes(made)})
        return
    show_rows([_state(uid, made) for uid in made.states], as_json=False)
    note(f"wrote chk-{made.checkpoint} of {pipeline} to {to}: {human_bytes(sum(f.bytes for f in made.files))}")
    note(f"Next: tidemark import {to} --as NAME")


def import_(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER", help="A folder written by `tidemark export`, on disk or as s3://BUCKET/FOLDER."
        ),
    ],
    name: Annotated[str, typer.Option("--as", metavar="PIPELINE", help="Import into this pipeline.")],
    timeline: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Import as a new timeline next to the live one (default: as the first one)."),
    ] = None,
    allow_non_restored_state: AllowNonRestoredState = False,
    execute: Execute = False,
    as_json: JsonFlag = False,
) -> None:
    """Import an export as the first checkpoint of a new pipeline or of a new timeline.

    Before anything is written, every file is checked against its sha256, and the state against the declaration.

    Examples:
      tidemark import /backup/flights --as flights
      tidemark import /backup/flights --as flights_test --execute
      tidemark import s3://backups/flights-june --as flights_test --timeline june --execute
    """
    request = ImportRequest(
        folder=folder, pipeline=name, timeline=timeline, allow_non_restored_state=allow_non_restored_state
    )
    context = open_context()
    done = (
        import_operations.import_folder(context, request)
        if execute
        else import_operations.plan_import(context, request)
    )
    show_fields(import_facts(done), as_json=as_json)
    where = f" --timeline {timeline}" if timeline else ""
    if done.checkpoint is None:
        note(f"Next: tidemark import {folder} --as {name}{where} --execute")
    else:
        note(f"Next: tidemark run {name}{where}")


def _sizes(made: Export) -> dict[str, Any]:
    return {
        "states": [_state(uid, made) for uid in made.states],
        "files": sum(1 for _ in made.files),
        "bytes": sum(f.bytes for f in made.files),
    }


def _state(uid: str, made: Export) -> dict[str, Any]:
    state = made.states[uid]
    return {
        "uid": uid,
        "keys": state.resolved.rows if state.resolved else None,
        "stored_rows": state.rows,
        "resolved": state.resolved.path if state.resolved else None,
        "stored": [f.path for f in state.stored],
    }


def import_facts(done: Imported) -> dict[str, Any]:
    """The result of an import, or of its dry run."""
    return {
        "pipeline": done.pipeline,
        "from": f"{done.export.pipeline} chk-{done.export.checkpoint}",
        "timeline": done.timeline,
        "checkpoint": done.checkpoint,
        "rows": dict(done.rows),
        "starts_empty": list(done.empty),
        "left_behind": list(done.left_behind),
        "offsets": {str(tp): end for tp, end in sorted(done.export.ranges.ends.items())},
    }
