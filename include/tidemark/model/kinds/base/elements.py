"""The stored form of lists, in folds and processes: each element with the time at which it was added."""

from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.sql import quote
from tidemark.model.portable_sql.dialects import DUCKDB
from tidemark.model.schema.operator_schema import StoredField


def timed(of: FieldType) -> FieldType:
    """Returns the type of a stored element of a list: the time at which it was added, and its value."""
    return FieldType("struct", fields=(("at", FieldType("int")), ("value", of.with_null(True))))


def list_column(over: FieldType) -> FieldType:
    """Returns the type of the stored list."""
    return FieldType("list", element=timed(over))


def stored_elements(field: StoredField, at_ms: int) -> str:
    """Returns the expression for the stored elements of an imported list, added at `at_ms`."""
    element = DUCKDB.struct([("at", str(at_ms)), ("value", "e")])
    return DUCKDB.transform(DUCKDB.or_empty(quote(field.name)), "e", element)
