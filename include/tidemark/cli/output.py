"""Output of the commands: results on stdout, as JSON with `--json`; errors, progress and logs on stderr."""

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tidemark.errors import TidemarkError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

JsonFlag = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
"""The `--json` option, the same for every command."""

Row = Mapping[str, Any]


def complain(error: TidemarkError) -> None:
    """Prints an error's three lines on stderr."""
    sys.stderr.write(f"{error}\n")


def note(text: str) -> None:
    """Prints a line for people on stderr."""
    sys.stderr.write(text + "\n")


def show_rows(rows: Sequence[Row], *, as_json: bool, empty: str = "nothing to show") -> None:
    """Prints rows as a table, or as a JSON array.

    Args:
        rows: the rows, each with the same keys.
        as_json: print JSON.
        empty: the message to print on stderr if there are no rows.
    """
    if as_json:
        print_json(list(rows))
        return
    if not rows:
        note(empty)
        return
    stdout().print(as_table(rows))


def as_table(rows: Sequence[Row]) -> "Table":
    """Returns one or more rows as a table. On a narrow terminal the last column wraps, so nothing is cut from it."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    *_, last = rows[0]
    for name, value in rows[0].items():
        right = isinstance(value, int | float) and not isinstance(value, bool)
        justify: Literal["left", "right"] = "right" if right else "left"
        table.add_column(name, justify=justify, no_wrap=name != last, overflow="fold" if name == last else "ellipsis")
    for row in rows:
        table.add_row(*(cell(value) for value in row.values()))
    return table


def show_fields(answer: object, *, as_json: bool) -> None:
    """Prints an answer, or a mapping, as `name  value` lines or as JSON."""
    from tidemark.model.checkpoint.codec import body_of

    fields: Row = body_of(answer)
    if as_json:
        print_json(fields)
        return
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        sys.stdout.write(f"{name:<{width}}  {cell(value)}\n")


def print_json(value: object) -> None:
    """Prints answers or other values as JSON on stdout; dates as ISO 8601 in UTC, decimals as strings."""
    from tidemark.model.checkpoint.codec import body_of

    json.dump(body_of(value), sys.stdout, default=_plain, ensure_ascii=False, indent=2)
    sys.stdout.write("\n")


def cell(value: object) -> str:
    """Formats a value for people."""
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, list | tuple):
        return ", ".join(cell(v) for v in value) or "-"
    return _mapping(value) if isinstance(value, Mapping) else str(value)


def _mapping(value: Mapping[str, object]) -> str:
    from tidemark.answers.checkpoint_facts import as_text

    text = as_text(value)
    return text if text is not None else ", ".join(f"{k} {cell(v)}" for k, v in value.items()) or "-"


def human_bytes(count: int) -> str:
    """Formats a number of bytes with a unit: `713 B`, `27.4 MB`."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def to_datetime(ms: int | None) -> datetime | None:
    """Converts milliseconds since the epoch to a UTC datetime."""
    return None if ms is None else datetime.fromtimestamp(ms / 1000, tz=UTC)


def stdout() -> "Console":
    """Returns the console for results."""
    from rich.console import Console

    # A pipe has no width, so lines are not cut to one.
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=240)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"no JSON form for {type(value).__name__}")
