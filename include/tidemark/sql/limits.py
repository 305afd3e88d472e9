"""Limits over all batches: the fields that a checkpoint compares with the state that a key already has.

A fold writes operands without reading old state, so a batch alone does not show that a list or a set of values exceeds
its limit. Operators with such fields look up the keys that the batch adds to, and resolve just these fields as a reader
would: a checkpoint fails if and only if reading its result would fail.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tidemark.errors import StateOverflowError
from tidemark.model.schema.operator_schema import OperatorSchema, StoredField

_PREFIX = "state overflow: "


def limited(schema: OperatorSchema) -> OperatorSchema | None:
    """Returns the schema with only the fields that may exceed a limit; None if no field has one.

    If there is one, sums of integers are included, at no extra cost. A process knows the whole state of a key when it
    writes it, so its limits are not checked here.
    """
    if schema.kind != "fold" or not any(f.folded.is_limited for f in schema.fields):
        return None
    return replace(schema, fields=tuple(f for f in schema.fields if _is_checked(f)))


def adds_sql(schema: OperatorSchema) -> str:
    """Returns the condition, in ANSI SQL over rows of a run, that a row adds to a limited field of older rows.

    A value or a tombstone has no older rows; a row that adds nothing stays within the limit.
    """
    return f"\"_kind\" = 'operand' AND ({' OR '.join(f.folded.adds(f) for f in schema.fields)})"


@contextmanager
def overflows_of(uid: str) -> Iterator[None]:
    """Adds the operator to errors of keys whose state does not fit.

    Raises:
        StateOverflowError: the error of the block, with the operator.
    """
    try:
        yield
    except StateOverflowError as error:
        what = f"{_PREFIX}{uid}: {error.what.removeprefix(_PREFIX)}"
        raise StateOverflowError(what, safe=error.safe, next=error.next) from error


def _is_checked(f: StoredField) -> bool:
    return f.folded.is_limited or f.folded.may_leave_64_bits(f)
