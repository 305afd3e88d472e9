"""The hash of a resolved state: independent of order, over key columns and exact fields, the same on every machine.

Two states with equal hashes have the same keys with the same values. `_changed` is not included, so that you can
compare states of two timelines; nor are floating-point sums and means, whose last bits depend on the grouping of runs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

import pyarrow as pa

from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.sql import key_columns, quote
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.readers.duckdb_session import open_query_runner


@dataclass(frozen=True, slots=True, kw_only=True)
class StateHash:
    """A hash as 64 hex digits, the number of live keys, and the fields that it leaves out."""

    sha256: str
    rows: int
    left_out: tuple[str, ...]


def hash_of(schema: OperatorSchema, rows: pa.Table | Iterable[pa.Table]) -> StateHash:
    """Returns the hash of resolved rows.

    Args:
        schema: the stored schema.
        rows: one row per live key: key columns, state fields, and any others; in one table or in several.
    """
    sums = ", ".join(
        f"CAST(coalesce(sum(md5_number_{half}(t)), 0) AS VARCHAR) AS {half}" for half in ("upper", "lower")
    )
    count = upper = lower = 0
    with open_query_runner() as ask:
        for part in [rows] if isinstance(rows, pa.Table) else rows:
            (found,) = ask(f"SELECT {sums} FROM (SELECT {_text(schema)} AS t FROM rows)", rows=part).to_pylist()
            count, upper, lower = count + part.num_rows, upper + int(found["upper"]), lower + int(found["lower"])
    names = [*(k.name for k in schema.keys), *(f.name for f in schema.fields if f.exact)]
    whole = "\n".join([str(count), str(upper), str(lower), *names])
    left_out = tuple(f.name for f in schema.fields if not f.exact)
    return StateHash(sha256=sha256(whole.encode()).hexdigest(), rows=count, left_out=left_out)


def first_differences(schema: OperatorSchema, one: pa.Table, other: pa.Table, limit: int) -> list[dict[str, object]]:
    """Returns the first keys, in order, whose exact fields differ, or that only one of two states has."""
    keys = ", ".join(key_columns(schema))
    text = f"SELECT {keys}, {_text(schema)} AS _text FROM"
    with open_query_runner() as ask:
        found: list[dict[str, object]] = ask(
            f"SELECT {keys} FROM ({text} one) AS _o FULL JOIN ({text} other) AS _p USING ({keys})"
            f" WHERE _o._text IS DISTINCT FROM _p._text ORDER BY {keys} LIMIT {limit}",
            one=one,
            other=other,
        ).to_pylist()
    return found


def _text(schema: OperatorSchema) -> str:
    """Returns a row as text, injectively: a JSON list of texts and nulls."""
    columns = [(k.name, k.type) for k in schema.keys] + [(f.name, f.type) for f in schema.fields if f.exact]
    return f"CAST(to_json([{', '.join(_column(quote(name), of) for name, of in columns)}]) AS VARCHAR)"


def _column(column: str, of: FieldType) -> str:
    if of.kind == "timestamp":
        return f"CAST(epoch_us({column}) AS VARCHAR)"
    if of.kind in ("bytes", "bool", "int", "float", "decimal", "str", "date"):
        return f"CAST({column} AS VARCHAR)"
    return f"CAST(to_json({column}) AS VARCHAR)"
