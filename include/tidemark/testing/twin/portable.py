"""Texts of the portable SQL subset over records and accumulators in memory, evaluated by DuckDB."""

import atexit
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.authored import finish_sql_of, refuse_without_spark
from tidemark.model.kinds.base.python import Overflow
from tidemark.model.schema.operator_schema import StoredField
from tidemark.portable_sql.custom_aggregate import partial_sql
from tidemark.portable_sql.dialects import DUCKDB
from tidemark.readers.duckdb_session import Ask, asking
from tidemark.sql.fold_columns import quoted
from tidemark.tables.arrow_types import arrow_schema


def partials(field: StoredField, records: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The accumulators of an author's aggregate over records, given as path to value.

    Raises:
        Overflow: an integer left 64 bits.
        UsageError: the field is declared `spark_only`.
    """
    refuse_without_spark(field, DUCKDB)
    assert field.aggregate is not None  # noqa: S101  (for the type checker)
    inputs = dict(field.aggregate.inputs)
    made = [partial_sql(text, inputs, quoted).sql for text in field.aggregate.partial]
    # A column that is always there, for a partial that counts and names nothing.
    columns = [*((path, of.sql) for path, of in inputs.items()), ("_row", "BIGINT")]
    rows = [{**r, "_row": n} for n, r in enumerate(records)]
    found = _asked(f"SELECT {', '.join(f'{sql} AS a{n}' for n, sql in enumerate(made))} FROM rows", columns, rows)
    types = (of for _, of in field.accumulators)
    return [_plain(value, of) for value, of in zip(found.values(), types, strict=True)]


def finished(field: StoredField, row: Mapping[str, Any]) -> Any:
    """The finished value of an author's aggregate over a merged row.

    Raises:
        Overflow: an integer left 64 bits.
        UsageError: the field is declared `spark_only`.
    """
    columns = [(name, of.sql) for name, of in field.accumulators]
    held = {name: row[name] for name, _ in field.accumulators}
    found = _asked(f"SELECT {finish_sql_of(field, DUCKDB)} AS a0 FROM rows", columns, [held])
    return _plain(found["a0"], field.type)


def _asked(sql: str, columns: Sequence[tuple[str, str]], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    table = pa.Table.from_pylist([dict(r) for r in rows], schema=arrow_schema(columns))
    try:
        found: dict[str, Any] = _session()(sql, rows=table).to_pylist()[0]
    except duckdb.OutOfRangeException as error:
        raise Overflow from error
    return found


def _plain(value: Any, of: FieldType) -> Any:
    if isinstance(value, Decimal) and of.kind == "int":
        value = int(value)
    if of.kind == "int" and value is not None and not -(2**63) <= value < 2**63:
        raise Overflow
    return value.astimezone(UTC) if isinstance(value, datetime) else value


@cache
def _session() -> Ask:
    kept = ExitStack()
    atexit.register(kept.close)
    return kept.enter_context(asking())
