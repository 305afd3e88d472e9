"""Records of erased keys, which an operator does not count (adr/0015)."""

from collections.abc import Sequence
from datetime import datetime
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.engine.read.frames import key_sql
from tidemark.model.retention.erasure import BlockedKey, keyed_by
from tidemark.model.schema.key_groups import key_text
from tidemark.model.schema.operator_schema import OperatorSchema


def blocked_column(schema: OperatorSchema, blocked: Sequence[BlockedKey]) -> Column | None:
    """Returns a column that says whether a record belongs to a blocked key, never null; None if no key is blocked."""
    mine = [_of(schema, b) for b in blocked if b.uid == schema.uid and not b.columns]
    return F.coalesce(reduce(Column.__or__, mine), F.lit(False)) if mine else None


def _of(schema: OperatorSchema, blocked: BlockedKey) -> Column:
    columns = zip(key_sql(keyed_by(schema, ())), blocked.key, strict=True)
    same = reduce(Column.__and__, (F.expr(sql).eqNullSafe(_literal(value)) for sql, value in columns))
    if blocked.ends is None:
        return same
    before = [
        (F.col("topic") == tp.topic) & (F.col("partition") == tp.partition) & (F.col("offset") < end)
        for tp, end in sorted(blocked.ends.items())
    ]
    return same & reduce(Column.__or__, before, F.lit(False))


def _literal(value: object) -> Column:
    # As microseconds, because a Python literal depends on the time zone of the session.
    return F.timestamp_micros(F.lit(int(key_text(value)))) if isinstance(value, datetime) else F.lit(value)
