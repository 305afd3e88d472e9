"""What kinds over numbers share: which fields they fold, and how sums of them are stored."""

from tidemark.errors import DeclarationError
from tidemark.model.core.types import FieldType


def checked_number(at: str, kind: str, over: FieldType) -> FieldType:
    """The type, if it is one of numbers.

    Raises:
        DeclarationError: it is not.
    """
    if not over.is_number:
        raise DeclarationError(f"{at}: state.{kind} of a {over.kind}", next="sum and mean need int, float or Decimal.")
    return over


def sum_type(over: FieldType) -> FieldType:
    """The type in which sums of a number are kept: of decimals 38 digits."""
    if over.kind == "decimal":
        return FieldType("decimal", nullable=True, digits=38, scale=over.scale)
    return over.with_null(True)
