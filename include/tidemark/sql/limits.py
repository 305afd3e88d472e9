"""Limits over all batches: which fields a checkpoint compares with what the key holds already (A3).

A fold writes operands without reading old state, so a batch alone does not show that a list or a set of values outgrows
its limit. Operators with such fields look up the keys to which a batch adds, and resolve just these fields as a reader
would: a checkpoint fails if and only if a read of what it leaves would.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tidemark.errors import StateOverflowError
from tidemark.model.schema.operator_schema import OperatorSchema, StoredField

_PREFIX = "state overflow: "


def limited(schema: OperatorSchema) -> OperatorSchema | None:
    """The schema with nothing but the fields that may outgrow a limit; None where no field has one.

    Where there is one, sums of integers are looked at too: they cost nothing more then. A process knows the whole
    state of a key when it writes it, so its limits are no matter of this module.
    """
    if schema.kind != "fold" or not any(f.folded.is_limited for f in schema.fields):
        return None
    return replace(schema, fields=tuple(f for f in schema.fields if _is_checked(f)))


def adds_sql(schema: OperatorSchema) -> str:
    """The condition, in ANSI SQL over rows of a run, that something of a limited schema is added to what lies below.

    Nothing is below a value or a tombstone; a row that adds nothing leaves what was within its limit before.
    """
    return f"\"_kind\" = 'operand' AND ({' OR '.join(f.folded.adds(f) for f in schema.fields)})"


@contextmanager
def overflows_of(uid: str) -> Iterator[None]:
    """Names the operator in errors of keys whose state does not fit.

    Raises:
        StateOverflowError: as the block raises it, naming the operator.
    """
    try:
        yield
    except StateOverflowError as error:
        what = f"{_PREFIX}{uid}: {error.what.removeprefix(_PREFIX)}"
        raise StateOverflowError(what, safe=error.safe, next=error.next) from error


def _is_checked(f: StoredField) -> bool:
    return f.folded.is_limited or f.folded.may_leave_64_bits(f)
