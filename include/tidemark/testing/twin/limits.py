"""What a batch adds to limited fields, compared with what its keys hold already; twin of `engine.limits`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidemark.model.core.ttl import Now
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.sql.limits import limited
from tidemark.testing.twin.merge import resolved

Row = Mapping[str, Any]


def refuse_overflow(schema: OperatorSchema, run: Sequence[Row], below: Iterable[Row], now: Now) -> None:
    """Raises where a key of a run would be too large for readers, together with what it holds.

    Args:
        schema: the stored schema of the fold.
        run: the rows that the batch has made.
        below: rows of its input handle.
        now: the clocks after the batch.

    Raises:
        StateOverflowError: naming the field and the key.
    """
    found = limited(schema)
    if found is None:
        return
    names = [k.name for k in schema.keys]
    touched = {tuple(row[name] for name in names) for row in run if _adds(found, row)}
    resolved(found, [row for row in (*run, *below) if tuple(row[name] for name in names) in touched], now)


def _adds(schema: OperatorSchema, row: Row) -> bool:
    """See `model.limits.adds_sql`."""
    return row["_kind"] == "operand" and any(row[f.accumulators[0][0]] not in (None, []) for f in schema.fields)
