"""Compares a backfill's state with the recorded one: the keys that changed, and the size of each field's change.

Keys that both sides have touched since their common ancestor may have the same values. They count as equal here, while
a diff of one line would call them updated.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tidemark.model.kinds.base.sql import quote
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.readers.duckdb_session import QueryRunner, open_query_runner
from tidemark.readers.state_diff import Comparison, Detail

_CLOSE = 1e-9
"""Relative difference up to which two floating-point sums or means are equal: regrouping changes their last bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """The difference in one field, over the keys on both sides.

    Attributes:
        name: name of the field.
        keys: number of keys in which it differs.
        sum: for a number, the sum of all differences, after − before; None for other types, for nulls, and if it may
            not fit 38 digits.
        largest: for a number, the largest absolute difference of one key; None likewise.
    """

    name: str
    keys: int
    sum: int | float | Decimal | None = None
    largest: int | float | Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """The difference in one operator's state.

    Attributes:
        uid: the operator.
        inserted: keys only on the later side.
        deleted: keys only on the earlier side.
        changed: keys in which a field of both sides differs.
        equal: keys that were touched since the common ancestor and have the same values.
        fields: the fields that differ, in order of their declaration.
        added: fields only on the later side.
        removed: fields only on the earlier side.
        examples: the first changed keys, as `key`, `before`, `after`.
    """

    uid: str
    inserted: int
    deleted: int
    changed: int
    equal: int
    fields: tuple[FieldChange, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    examples: tuple[dict[str, Any], ...]


def change_of(compared: Comparison, examples: int = 3) -> StateChange:
    """Compares the states of two lines by value.

    Args:
        compared: the two checkpoints.
        examples: changed keys to show.

    Raises:
        StoreError: a version or a file of a handle is missing.
        StateOverflowError: a key's merged state does not fit; the message names the key.
    """
    rows = compared.diff(Detail.VALUES).rows
    before, after = (_names(at.plan.schemas[compared.uid]) for at in (compared.before, compared.after))
    both = [name for name in after if name in before]
    inexact = [f.name for f in compared.schema.fields if not f.exact]
    counts = Counter(rows.column("change").to_pylist())
    with open_query_runner() as ask:
        updated = ask("FROM rows WHERE change = 'updated'", rows=rows)
        fields = tuple(f for name in both if (f := measure_field(ask, updated, name, name in inexact)).keys)
        differs = " OR ".join(difference_condition(updated, name, name in inexact) for name in both) or "false"
        changed = ask(f"FROM updated WHERE {differs} ORDER BY key", updated=updated)
        shown = changed.slice(0, examples).to_pylist(maps_as_pydicts="strict")
    return StateChange(
        uid=compared.uid,
        inserted=counts["inserted"],
        deleted=counts["deleted"],
        changed=changed.num_rows,
        equal=updated.num_rows - changed.num_rows,
        fields=fields,
        added=tuple(name for name in after if name not in before),
        removed=tuple(name for name in before if name not in after),
        examples=tuple({k: row[k] for k in ("key", "before", "after")} for row in shown),
    )


def _names(schema: OperatorSchema) -> Sequence[str]:
    return [f.name for f in schema.fields]


def _type(updated: pa.Table, name: str) -> pa.DataType:
    side = updated.schema.field("after").type
    return side.field(name).type if pa.types.is_struct(side) else pa.null()


def difference_condition(updated: pa.Table, name: str, inexact: bool) -> str:
    """Returns the condition under which a field of both sides differs.

    Args:
        updated: rows with the structs `before` and `after`.
        name: the field.
        inexact: whether it is a sum or mean, whose last bits may differ if it is a floating-point number.
    """
    before, after = f"before.{quote(name)}", f"after.{quote(name)}"
    if not (inexact and pa.types.is_floating(_type(updated, name))):
        return f"({before} IS DISTINCT FROM {after})"
    # An infinite value, or one that is not a number, is close to itself only.
    odd = " OR ".join(f"NOT isfinite({side})" for side in (before, after))
    far = f"abs({after} - {before}) > {_CLOSE} * greatest(abs({before}), abs({after}))"
    return f"({before} IS DISTINCT FROM {after} AND coalesce({odd} OR {far}, true))"


def measure_field(ask: QueryRunner, updated: pa.Table, name: str, inexact: bool) -> FieldChange:
    """Returns in how many rows a field differs, and by how much; for the arguments see `difference_condition`."""
    number, where = _number(_type(updated, name)), difference_condition(updated, name, inexact)
    if number is None:
        (found,) = ask(f"SELECT count(*) AS n FROM u WHERE {where}", u=updated).to_pylist()
        return FieldChange(name=name, keys=found["n"])
    of, read, most = number
    by = f"TRY(CAST(after.{quote(name)} AS {of}) - CAST(before.{quote(name)} AS {of}))"
    # An aggregate of decimals fails if it overflows, and TRY cannot contain aggregates.
    fits = f"FILTER ((SELECT sum(abs(CAST({by} AS DOUBLE))) FROM u WHERE {where}) < {most})" if most else ""
    (found,) = ask(
        f"SELECT count(*) AS n, CAST(sum({by}) {fits} AS VARCHAR) AS s, CAST(max(abs({by})) AS VARCHAR) AS m"
        f" FROM u WHERE {where}",
        u=updated,
    ).to_pylist()
    numbers = [None if found[k] is None else read(found[k]) for k in ("s", "m")]
    return FieldChange(name=name, keys=found["n"], sum=numbers[0], largest=numbers[1])


def _number(of: pa.DataType) -> tuple[str, Callable[[str], int | float | Decimal], str] | None:
    """Returns how to subtract a number, how to read it back, and the bound of a sum or ""; None for other types."""
    if pa.types.is_integer(of):
        return "HUGEINT", lambda text: int(float(text)) if "e" in text else int(text.partition(".")[0]), ""
    if pa.types.is_floating(of):
        return "DOUBLE", float, ""
    if pa.types.is_decimal(of):
        return f"DECIMAL(38, {of.scale})", Decimal, f"9.9e{37 - of.scale}"
    return None
