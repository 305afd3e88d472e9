"""The values of expressions over decoded records, without Spark: DuckDB evaluates them, one query for all records."""

import atexit
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any

from tidemark.model.kinds.base.sql import quote
from tidemark.model.portable_sql.dialects import DUCKDB
from tidemark.model.portable_sql.record_expression import RecordExpression
from tidemark.model.schema.operator_schema import OperatorSchema

if TYPE_CHECKING:
    from tidemark.readers.duckdb_session import QueryRunner

_ONE_AT_A_TIME = Lock()
"""Pages evaluate from several threads, and a connection runs one query at a time."""


def value_at(record: Any, path: str) -> Any:
    """Returns the field of a record at a dotted path, or None if a step of the path is null."""
    for step in path.split("."):
        record = None if record is None else record[step]
    return record


def evaluate(expressions: Sequence[RecordExpression], records: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Returns the values of expressions for each record, in order.

    >>> from tidemark.model.core.types import FieldType
    >>> from tidemark.model.portable_sql.record_expression import bind_expression
    >>> sale = FieldType("struct", fields=(("shop", FieldType("str")), ("amount", FieldType("int"))))
    >>> made = [bind_expression("sales", text, sale) for text in ("lower(shop)", "amount > 0")]
    >>> evaluate(made, [{"shop": "Z\u00fcrich HB", "amount": 3}, {"shop": "Bern", "amount": None}])
    [('z\u00fcrich hb', True), ('bern', None)]

    Args:
        expressions: expressions over the type of the records.
        records: decoded records.
    """
    if not expressions or not records:
        return [()] * len(records)
    # Imported here, so that only pipelines with expressions load DuckDB and Arrow.
    import pyarrow as pa

    from tidemark.tables.delta_tables import arrow_schema

    inputs = {path: of for made in expressions for path, of in made.inputs}
    columns = [*((path, of.sql) for path, of in inputs.items()), ("_row", "BIGINT")]
    rows = [{path: value_at(r, path) for path in inputs} | {"_row": n} for n, r in enumerate(records)]
    table = pa.Table.from_pylist(rows, schema=arrow_schema(columns))
    texts = ", ".join(f"{made.sql(quote, DUCKDB)} AS c{n}" for n, made in enumerate(expressions))
    with _ONE_AT_A_TIME:
        answer = _query_runner()(f"SELECT {texts} FROM rows ORDER BY _row", rows=table)
    return [tuple(map(_in_utc, row.values())) for row in answer.to_pylist()]


def judge_records(schema: OperatorSchema, records: Sequence[Mapping[str, Any]]) -> list[tuple[bool, tuple[Any, ...]]]:
    """Returns for each record whether an operator takes it, and its key in that operator.

    Args:
        schema: the stored schema of the operator.
        records: decoded records, after the joins of the operator.
    """
    where = [] if schema.where is None else [schema.where]
    made = [*where, *(k.expression for k in schema.own_keys if k.expression is not None)]
    found = []
    for record, row in zip(records, evaluate(made, records), strict=True):
        computed = iter(row)
        is_taken = schema.where is None or next(computed) is True
        key = (value_at(record, k.source) if k.inputs is None else next(computed) for k in schema.own_keys)
        found.append((is_taken, tuple(key)))
    return found


def _in_utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


@cache
def _query_runner() -> "QueryRunner":
    from tidemark.readers.duckdb_session import open_query_runner

    kept = ExitStack()
    atexit.register(kept.close)
    return kept.enter_context(open_query_runner())
