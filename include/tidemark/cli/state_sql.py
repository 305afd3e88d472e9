"""`tidemark state sql | query`: query a pipeline's state at any checkpoint with SQL, here or in another engine."""

import csv
import json
import sys
from datetime import date, datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.cli.checkpoint_id import At, AtSavepoint, chosen_id
from tidemark.cli.option_groups import PipelineName
from tidemark.cli.output import JsonFlag, note, print_json, show_rows
from tidemark.cli.plain import plain, python_rows
from tidemark.context import open_context
from tidemark.errors import UsageError
from tidemark.operations import queries, savepoints

if TYPE_CHECKING:
    import pyarrow as pa


class Engine(Enum):
    """Engines for which a query can be printed."""

    SPARK = "spark"
    DUCKDB = "duckdb"


def sql(
    pipeline: PipelineName,
    statement: Annotated[
        str | None, typer.Argument(metavar="[SQL]", help="The statement, or - to read it from stdin.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Read the statement from a file.")] = None,
    savepoint: Annotated[
        str | None, typer.Option(metavar="NAME", help="Query as of this savepoint (default: the newest checkpoint).")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header line.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Query state and checkpoints with DuckDB's SQL. A query cannot change anything, or read files.

    UID is a view of an operator's newest state, and UID_at(N) its state at chk-N. The views checkpoints,
    checkpoint_states, checkpoint_offsets, source_watermarks, operator_states and metrics show the contents of
    manifests. SHOW TABLES lists all views, and DESCRIBE shows a view's columns.

    Examples:
      tidemark state sql flights "select last_airport, count(*) from aircraft group by all order by 2 desc limit 5"
      tidemark state sql flights "select * from aircraft_at(3) where tail_number = 'N14228'" --json
      tidemark state sql flights "show tables"
      tidemark state sql flights --file query.sql --csv
      tidemark state sql flights --savepoint before-upgrade "select count(*) from aircraft"
    """
    if as_csv and as_json:
        raise UsageError("--csv and --json exclude each other", next="give one of them.")
    context = open_context()
    rows = queries.run_sql(
        context,
        pipeline,
        _statement(statement, file),
        savepoints.resolve_checkpoint_id(context, pipeline, savepoint=savepoint),
    )
    if as_csv:
        _write_csv(rows)
        return
    shown = [{name: plain(value) for name, value in row.items()} for row in python_rows(rows, maps="strict")]
    show_rows(shown, as_json=as_json, empty="no rows")
    note("1 row" if rows.num_rows == 1 else f"{rows.num_rows} rows")


def query(
    pipeline: PipelineName,
    uid: Annotated[str, typer.Argument(metavar="UID", help="The operator.")],
    checkpoint: At = None,
    savepoint: AtSavepoint = None,
    dialect: Annotated[Engine, typer.Option(help="Write the query for this engine.")] = Engine.SPARK,
    as_json: JsonFlag = False,
) -> None:
    """Print the SQL query that returns an operator's state, for use in another engine without Tidemark.

    Examples:
      tidemark state query flights aircraft
      tidemark state query flights aircraft --checkpoint chk-3 --dialect duckdb
      tidemark state query flights routes --json
    """
    context = open_context()
    at = chosen_id(context, pipeline, checkpoint, savepoint)
    found = queries.describe_query(context, pipeline, uid, dialect.value, at)
    if as_json:
        print_json(found)
        return
    sys.stdout.write(found["sql"] + "\n")


def _statement(given: str | None, file: Path | None) -> str:
    if (given is None) == (file is None):
        raise UsageError("give exactly one statement", next="pass it as the argument, as - for stdin, or with --file.")
    if file is None:
        return sys.stdin.read() if given == "-" else str(given)
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file}: {error}", next="give a text file in UTF-8.") from error


def _write_csv(rows: "pa.Table") -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(rows.column_names)
    for row in python_rows(rows, maps="strict"):
        writer.writerow(_cell(plain(value)) for value in row.values())


def _cell(value: object) -> object:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    # CSV has no nested values, so they are written as JSON text.
    return json.dumps(value, default=_cell, ensure_ascii=False) if isinstance(value, list | dict) else value
