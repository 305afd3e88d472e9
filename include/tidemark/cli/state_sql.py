"""`tidemark state sql`: one read-only SQL statement over a pipeline's state at any checkpoint."""

import csv
import json
import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.cli.output import JsonFlag, note, show_rows
from tidemark.cli.run import PipelineName
from tidemark.errors import UsageError
from tidemark.wiring import open_runtime

if TYPE_CHECKING:
    import pyarrow as pa

_JSON = (bool, int, str, date, bytes)


def sql(
    pipeline: PipelineName,
    statement: Annotated[
        str | None, typer.Argument(metavar="[SQL]", help="The statement; - reads it from stdin.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Read the statement from a file.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header line.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Ask SQL (DuckDB's) of state and checkpoints. Nothing can be changed, no file can be read.

    Views: UID is the newest state of an operator, UID_at(N) its state at chk-N; checkpoints, checkpoint_states and
    checkpoint_offsets tell what manifests say. SHOW TABLES lists them, DESCRIBE shows columns.

    Examples:
      tidemark state sql flights "select last_airport, count(*) from aircraft group by all order by 2 desc limit 5"
      tidemark state sql flights "select * from aircraft_at(3) where tail_number = 'N14228'" --json
      tidemark state sql flights "show tables"
      tidemark state sql flights --file query.sql --csv
    """
    if as_csv and as_json:
        raise UsageError("both --csv and --json", next="give one of them.")
    rows = open_runtime().sql(pipeline, _statement(statement, file))
    if as_csv:
        _write_csv(rows)
        return
    plain = [{name: _plain(value) for name, value in row.items()} for row in rows.to_pylist()]
    show_rows(plain, as_json=as_json, empty="no rows")
    note("1 row" if rows.num_rows == 1 else f"{rows.num_rows} rows")


def _statement(given: str | None, file: Path | None) -> str:
    if (given is None) == (file is None):
        raise UsageError("no statement, or two", next="give one statement, - for stdin, or --file.")
    if file is None:
        return sys.stdin.read() if given == "-" else str(given)
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not readable: {error}", next="name a text file in UTF-8.") from error


def _write_csv(rows: "pa.Table") -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(rows.column_names)
    for row in rows.to_pylist():
        writer.writerow(_cell(_plain(value)) for value in row.values())


def _cell(value: object) -> object:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    # CSV has no nesting: it is written as JSON text.
    return json.dumps(value, default=_cell, ensure_ascii=False) if isinstance(value, list | dict) else value


def _plain(value: object) -> object:
    """A value that the output knows: SQL has types that state has not."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    if isinstance(value, Decimal):
        # A sum of integers is DECIMAL(38, 0) to Arrow, and a number to everybody else.
        return int(value) if value.as_tuple().exponent == 0 else value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    return value if value is None or isinstance(value, _JSON) else str(value)
