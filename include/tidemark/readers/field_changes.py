"""How a backfill's state differs from the recorded one: keys by what became of them, and each field by how much (Q7).

Keys that both sides have touched since their common ancestor may hold the same values: those count as equal here,
where a diff of one line would call them updated.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.readers.duckdb_session import Ask, asking
from tidemark.readers.state_diff import Comparison, Detail
from tidemark.sql.fold_columns import quoted

_CLOSE = 1e-9
"""Relative difference up to which two floating-point sums or means are equal: regrouping moves their last bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """By how much one field differs, over the keys that both sides have.

    Attributes:
        name: the field.
        keys: keys in which it differs.
        sum: of a number, the sum of all differences, after − before; None of other types, of nulls, and where it may
            not fit into 38 digits.
        largest: of a number, the largest absolute difference of one key; None likewise.
    """

    name: str
    keys: int
    sum: int | float | Decimal | None = None
    largest: int | float | Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """By how much one operator's state differs.

    Attributes:
        uid: the operator.
        inserted: keys that only the later side has.
        deleted: keys that only the earlier side has.
        changed: keys in which a field of both sides differs.
        equal: keys that were touched since the common ancestor and hold the same values.
        fields: the fields that differ, in order of their declaration.
        added: fields that only the later side has.
        removed: fields that only the earlier side has.
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
        StoreError: a version or a file of a handle is gone.
        StateOverflowError: a key's merged state does not fit; the message names the key.
    """
    rows = compared.diff(Detail.VALUES).rows
    before, after = (_names(at.plan.schemas[compared.uid]) for at in (compared.before, compared.after))
    both = [name for name in after if name in before]
    inexact = [f.name for f in compared.schema.fields if not f.exact]
    counts = Counter(rows.column("change").to_pylist())
    with asking() as ask:
        updated = ask("FROM rows WHERE change = 'updated'", rows=rows)
        fields = tuple(f for name in both if (f := _field(ask, updated, name, name in inexact)).keys)
        differs = " OR ".join(_differs(updated, name, name in inexact) for name in both) or "false"
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


def _differs(updated: pa.Table, name: str, inexact: bool) -> str:
    before, after = f"before.{quoted(name)}", f"after.{quoted(name)}"
    if not (inexact and pa.types.is_floating(_type(updated, name))):
        return f"({before} IS DISTINCT FROM {after})"
    # What is infinite or no number is close to nothing but itself.
    odd = " OR ".join(f"NOT isfinite({side})" for side in (before, after))
    far = f"abs({after} - {before}) > {_CLOSE} * greatest(abs({before}), abs({after}))"
    return f"({before} IS DISTINCT FROM {after} AND coalesce({odd} OR {far}, true))"


def _field(ask: Ask, updated: pa.Table, name: str, inexact: bool) -> FieldChange:
    number, where = _number(_type(updated, name)), _differs(updated, name, inexact)
    if number is None:
        (found,) = ask(f"SELECT count(*) AS n FROM u WHERE {where}", u=updated).to_pylist()
        return FieldChange(name=name, keys=found["n"])
    of, read, most = number
    by = f"TRY(CAST(after.{quoted(name)} AS {of}) - CAST(before.{quoted(name)} AS {of}))"
    # An aggregate of decimals fails where it overflows, and TRY holds no aggregates.
    fits = f"FILTER ((SELECT sum(abs(CAST({by} AS DOUBLE))) FROM u WHERE {where}) < {most})" if most else ""
    (found,) = ask(
        f"SELECT count(*) AS n, CAST(sum({by}) {fits} AS VARCHAR) AS s, CAST(max(abs({by})) AS VARCHAR) AS m"
        f" FROM u WHERE {where}",
        u=updated,
    ).to_pylist()
    numbers = [None if found[k] is None else read(found[k]) for k in ("s", "m")]
    return FieldChange(name=name, keys=found["n"], sum=numbers[0], largest=numbers[1])


def _number(of: pa.DataType) -> tuple[str, Callable[[str], int | float | Decimal], str] | None:
    """How a number is subtracted, how it is read back, the bound of a sum or ""; None where it is no number."""
    if pa.types.is_integer(of):
        return "HUGEINT", lambda text: int(float(text)) if "e" in text else int(text.partition(".")[0]), ""
    if pa.types.is_floating(of):
        return "DOUBLE", float, ""
    if pa.types.is_decimal(of):
        return f"DECIMAL(38, {of.scale})", Decimal, f"9.9e{37 - of.scale}"
    return None
