"""Shared by kinds over numbers: the fields that they fold, and the stored form of sums."""

from tidemark.errors import DeclarationError
from tidemark.model.core.types import FieldType


def checked_number(at: str, kind: str, over: FieldType) -> FieldType:
    """Returns the type if it is a number.

    Raises:
        DeclarationError: it is not.
    """
    if not over.is_number:
        raise DeclarationError(f"{at}: state.{kind} of a {over.kind}", next="sum and mean need int, float or Decimal.")
    return over


def sum_type(over: FieldType) -> FieldType:
    """Returns the type of sums; sums of decimals have 38 digits."""
    if over.kind == "decimal":
        return FieldType("decimal", nullable=True, digits=38, scale=over.scale)
    return over.with_null(True)
