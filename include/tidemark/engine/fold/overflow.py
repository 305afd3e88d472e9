"""Finds the key whose sum left its type, after Spark failed without naming it."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.engine.read.record_deletes import applied_sql
from tidemark.model.schema.operator_schema import OperatorSchema, StoredField
from tidemark.sql.fold_columns import record_path, spark


def overflowing_key(records: DataFrame, schema: OperatorSchema) -> str | None:
    """One key whose partial does not fit, as words for the message; None where no integer sum is to blame.

    Sums of doubles cannot overflow in 38 digits of decimals here: they are left out, and so are decimals, whose sums
    are kept in 38 digits already and whose error is reported by field.
    """
    fields = [f for f in schema.fields if f.folded.may_leave_64_bits(f)]
    if not fields:
        return None
    keys = [F.expr(spark(record_path(k.source))).alias(k.name) for k in schema.keys]
    sums = [F.expr(f"sum(CAST({spark(record_path(f.source))} AS DECIMAL(38,0)))").alias(f.name) for f in fields]
    totals = records.where(applied_sql(schema)).groupBy(*keys).agg(*sums)
    found = totals.where(" OR ".join(_outside(f) for f in fields)).limit(1).collect()
    if not found:
        return None
    key = ", ".join(str(found[0][k.name]) for k in schema.keys)
    field = next(f.name for f in fields if not -(2**63) <= (found[0][f.name] or 0) < 2**63)
    return f"{field} of key ({key}) does not fit 64 bits"


def _outside(field: StoredField) -> str:
    return f"`{field.name}` NOT BETWEEN {-(2**63)} AND {2**63 - 1}"
