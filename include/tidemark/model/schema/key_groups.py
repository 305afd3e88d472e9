"""Key groups: a hash of the key that any language can compute, and the sort prefix inside a file.

`_key_group` = crc32 of the key columns' string forms joined by NUL, modulo the number of groups. The string form of a
timestamp is its microseconds since the epoch; `key_group_sql` is the same in Spark SQL.
"""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import cast

from tidemark.errors import UsageError
from tidemark.model.core.key_texts import key_value, short_hash, short_hash_sql
from tidemark.model.schema.operator_schema import OperatorSchema

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class KeyGroupRange:
    """Consecutive key groups (Flink's class of that name).

    Attributes:
        first: the first one.
        last: the last one, inclusive.
    """

    first: int
    last: int


def key_group_ranges(groups: int, count: int) -> tuple[KeyGroupRange, ...]:
    """Returns all key groups in `count` ranges of nearly equal size, like Flink's `KeyGroupRangeAssignment`.

    Args:
        groups: number of key groups.
        count: number of ranges, at most `groups`.
    """
    starts = [-(-n * groups // count) for n in range(count + 1)]
    return tuple(KeyGroupRange(first, after - 1) for first, after in zip(starts, starts[1:], strict=False))


def key_text(value: object) -> str:
    """Returns the string form of one key value (bool, int, decimal, str, date, or datetime, by default UTC)."""
    if type(value) is str:
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return str((aware - _EPOCH) // timedelta(microseconds=1))
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value or value.copy_abs(), "f")  # as engines cast it: with its scale, without an exponent
    return str(value)


def group_of(schema: OperatorSchema, key: Sequence[object]) -> int:
    """Returns the key group of a row of an operator: that of its key, whatever its window.

    Args:
        schema: the stored schema.
        key: the values of all key columns, or those of the key alone.
    """
    return key_group(key[: len(schema.own_keys)], schema.key_groups)


def groups_of(schema: OperatorSchema, keys: Iterable[Sequence[object]]) -> list[int]:
    """Returns `group_of` for many rows; of one text per key in a third of its time."""
    count, groups = len(schema.own_keys), schema.key_groups
    if count == 1 and schema.own_keys[0].type.kind == "str":
        return [zlib.crc32(key[0].encode()) % groups for key in cast("Iterable[Sequence[str]]", keys)]
    return [key_group(key[:count], groups) for key in keys]


def key_group(key: Sequence[object], groups: int) -> int:
    """Returns the key group of a key, `0 <= group < groups`."""
    # Most keys are one text, and a worker computes the group of each of its keys.
    text = key[0] if len(key) == 1 and type(key[0]) is str else "\0".join(map(key_text, key))
    return zlib.crc32(text.encode()) % groups


def key_hash(key: Sequence[object]) -> int:
    """Returns 60 bits of the sha256 of a key: with the end of a window, the id of its row (adr/0054)."""
    return short_hash("\0".join(map(key_text, key)))


def typed_key(schema: OperatorSchema, texts: Sequence[str]) -> tuple[object, ...]:
    """Parses a key from one text per key column, as on a command line.

    Raises:
        UsageError: there are too many or too few texts, or one does not fit the type of its column.
    """
    columns = ", ".join(f"{k.name} ({k.type.word})" for k in schema.keys)
    if len(texts) != len(schema.keys):
        raise UsageError(f"{len(texts)} key values for {schema.uid}", next=f"give one of each: {columns}.")
    try:
        return tuple(key_value(k.type, text) for k, text in zip(schema.keys, texts, strict=True))
    except ValueError as error:
        raise UsageError(f"not a key of {schema.uid}: {error}", next=f"give one of each: {columns}.") from error


def key_group_sql(schema: OperatorSchema, quote: str = '"') -> str:
    """Returns the Spark SQL expression of `_key_group` over the key columns."""
    return f"CAST(crc32({_key_bytes(schema, quote)}) % {schema.key_groups} AS INT)"


def key_hash_sql(schema: OperatorSchema, quote: str = '"') -> str:
    """Returns the Spark SQL expression of `key_hash` over the key columns."""
    return short_hash_sql(_key_bytes(schema, quote))


def _key_bytes(schema: OperatorSchema, quote: str) -> str:
    forms = []
    for key in schema.own_keys:
        column = f"{quote}{key.name}{quote}"
        forms.append(f"unix_micros({column})" if key.type.kind == "timestamp" else column)
    texts = ", ".join(f"CAST({form} AS STRING)" for form in forms)
    return f"CAST(concat_ws(chr(0), {texts}) AS BINARY)"
