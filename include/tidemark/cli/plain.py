"""Converts values of SQL and Arrow to types that the output can print."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KNOWN = (bool, int, str, date, bytes)


def plain(value: Any) -> Any:
    """Converts a value to one that JSON and tables can show: SQL has more types than state."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    if isinstance(value, Decimal):
        # Arrow types a sum of integers as DECIMAL(38, 0); readers expect a plain integer.
        return int(value) if value.as_tuple().exponent == 0 else value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    return value if value is None or isinstance(value, _KNOWN) else str(value)


def python_rows(table: "pa.Table", *, maps: Literal["strict"] | None = None) -> list[dict[str, Any]]:
    """Returns the rows of a table as `to_pylist` does, with times in UTC, and without pandas.

    pyarrow imports pandas, which takes longer than most queries, to decide on the class of a time's zone.

    Args:
        table: the rows.
        maps: "strict" = maps as dicts, None = as lists of pairs; see `maps_as_pydicts` of pyarrow.
    """
    columns = [_values(column, maps) for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(column: "pa.ChunkedArray", maps: Literal["strict"] | None) -> list[Any]:
    import pyarrow as pa

    if not pa.types.is_timestamp(column.type) or column.type.tz is None or column.type.unit != "us":
        return list(column.to_pylist(maps_as_pydicts=maps))
    found = (since for chunk in column.chunks for since in chunk.view(pa.int64()).to_pylist())
    return [None if since is None else _EPOCH + timedelta(microseconds=since) for since in found]
