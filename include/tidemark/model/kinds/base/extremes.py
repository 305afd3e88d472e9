"""Shared by `min` and `max`: the extreme of a scalar field, in one column of its type."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from tidemark.errors import DeclarationError
from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.kind import Accumulators, FoldKind, StateDescriptor
from tidemark.model.kinds.base.python import OfKey, Placed, not_null
from tidemark.model.kinds.base.sql import filter_sql, quote, record_path
from tidemark.model.portable_sql.dialects import Dialect
from tidemark.model.schema.operator_schema import KeyColumn, StoredField


class Extreme(FoldKind):
    """The extreme of a field's values that are not null.

    Attributes:
        function: the SQL aggregate function.
    """

    function: ClassVar[str]

    @abstractmethod
    def pick(self, values: Sequence[Any]) -> Any:
        """Returns the extreme of one or more values; twin of `function`."""

    def result_type(self, at: str, declared: StateDescriptor, over: FieldType) -> FieldType:
        """See `FoldKind`."""
        return checked_scalar(at, self.shown, over)

    def accumulators(self, field: StoredField) -> Accumulators:
        """See `StateKind`."""
        return ((field.name, field.type.with_null(True)),)

    def imported_columns(self, field: StoredField) -> Iterator[tuple[str, FieldType]]:
        """See `StateKind`."""
        yield from field.accumulators

    def partials(self, field: StoredField, only: str, *, emitted: bool) -> list[str]:
        """See `FoldKind`."""
        return [f"{self.function}({record_path(field.source)}){filter_sql(only)}"]

    def merges(self, field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect) -> list[str]:
        """See `FoldKind`."""
        return [f"{self.function}({quote(field.name)})"]

    def fold(self, field: StoredField, of: OfKey, placed: Placed) -> list[Any]:
        """See `FoldKind`."""
        return [self.merge(field, of, 0, [r.at(field.source) for _, r in placed])]

    def merge(self, field: StoredField, of: OfKey, n: int, values: Sequence[Any]) -> Any:
        """See `FoldKind`."""
        there = not_null(values)
        return self.pick(there) if there else None


def checked_scalar(at: str, kind: str, over: FieldType) -> FieldType:
    """Returns the type if its values have an order.

    Raises:
        DeclarationError: they do not.
    """
    if not over.is_ordered:
        raise DeclarationError(
            f"{at}: state.{kind} of a {over.word}",
            next="min and max need a scalar field; give an Enum of texts integers, in the order that you mean.",
        )
    return over
