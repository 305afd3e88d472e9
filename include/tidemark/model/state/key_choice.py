"""Keys that a reader chooses by values of key columns: checked, and as a condition on stored rows (adr/0069).

Engines agree on the equality of all types of keys: keys are never null, binary or floating-point, texts are equal if
their bytes are, a decimal gets the scale of its column, and times are instants.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from itertools import product
from math import prod
from uuid import UUID

from tidemark.errors import UsageError
from tidemark.model.core.key_texts import key_value
from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.sql import quote
from tidemark.model.schema.key_groups import group_of
from tidemark.model.schema.operator_schema import KeyColumn, OperatorSchema

KeyChoice = Mapping[str, Sequence[object]]
"""Stored values per key column: a key has one of them in each. A column that is not there may have any value."""
_MOST_KEYS = 10_000
"""Keys whose groups are computed; more of them are in most groups anyway."""
_TYPES: Mapping[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "decimal": (Decimal,),
    "str": (str,),
    "uuid": (UUID, str),
    "time": (time, str),
    "date": (date,),
    "timestamp": (datetime,),
}


def key_choice(schema: OperatorSchema, keys: Mapping[str, object]) -> KeyChoice:
    """Returns the keys that a caller asks for, as they are stored.

        key_choice(schema, {"device": ["a", "b"], "day": date(2024, 2, 29)})

    Args:
        schema: the stored schema.
        keys: per key column a value or a list, tuple or set of values; of an empty one, no key has a value.

    Raises:
        UsageError: a column is no key column, or a value does not fit the type of its column.
    """
    columns = {k.name: k for k in schema.keys}
    expected = f"give values of some of {', '.join(f'{k.name} ({k.type.word})' for k in schema.keys)}."
    chosen: dict[str, Sequence[object]] = {}
    for name, given in keys.items():
        if name not in columns:
            raise UsageError(f"keys: {schema.uid} has no key column {name!r}", next=expected)
        values = given if isinstance(given, list | tuple | set | frozenset) else (given,)
        try:
            chosen[name] = tuple(dict.fromkeys(_stored(columns[name].type, value) for value in values))
        except ValueError as error:
            raise UsageError(f"keys: no {name} of {schema.uid}: {error}", next=expected) from error
    return chosen


def _stored(of: FieldType, value: object) -> object:
    """Returns a value as it is stored.

    Raises:
        ValueError: it has another type, or does not fit.
    """
    plain = value.value if isinstance(value, Enum) else value
    word = of.form or of.kind
    if type(plain) not in _TYPES[word]:
        raise ValueError(f"{value!r} is a {type(plain).__name__}, not {of.word}")
    if isinstance(plain, datetime) and plain.tzinfo is None:
        raise ValueError(f"{value!r} has no zone")
    text = plain.isoformat() if isinstance(plain, date | time) else str(plain)
    text.encode()  # its error is a ValueError: half of a surrogate pair
    return key_value(of, text)


def chosen_groups(schema: OperatorSchema, choice: KeyChoice) -> tuple[int, ...] | None:
    """Returns the key groups of all chosen keys, in order; None = any group may have one."""
    if any(not values for values in choice.values()):
        return ()
    columns = [choice.get(k.name, ()) for k in schema.own_keys]
    if not 0 < prod(map(len, columns)) <= _MOST_KEYS:
        return None
    return tuple(sorted({group_of(schema, key) for key in product(*columns)}))


def condition_of(
    schema: OperatorSchema, choice: KeyChoice, columns: Collection[KeyColumn], values: list[object]
) -> str:
    """Returns a condition that chosen keys meet, in DuckDB's SQL, with parameters; empty = there is none.

    Args:
        schema: the stored schema.
        choice: the keys.
        columns: the key columns that the condition may use; with all of the key, it also uses `_key_group`.
        values: the parameters' values so far; those of this condition are appended.
    """
    terms = []
    groups = chosen_groups(schema, choice)
    if groups and set(schema.own_keys) <= set(columns):
        terms.append(f'"_key_group" IN ({", ".join(map(str, groups))})')
    for key in columns:
        if key.name in choice:
            terms.append(_is_one_of(key, choice[key.name], values))
    return " AND ".join(terms)


def _is_one_of(key: KeyColumn, wanted: Sequence[object], values: list[object]) -> str:
    if not wanted:
        return "false"
    bound = []
    for value in wanted:
        values.append(format(value, "f") if isinstance(value, Decimal) else value)
        bound.append(f"CAST(${len(values)} AS {key.type.sql})" if isinstance(value, Decimal) else f"${len(values)}")
    return f"{quote(key.name)} = {bound[0]}" if len(bound) == 1 else f"{quote(key.name)} IN ({', '.join(bound)})"
