"""The protocol of kinds of a fold: an associative pair (partial over records, merge of partials), and a finish."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from tidemark.errors import DeclarationError
from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.kind import Input, StateKind, record_field
from tidemark.model.kinds.base.python import OfKey, Placed, Row, is_expired
from tidemark.model.kinds.base.sql import expired, quoted
from tidemark.model.schema.field_descriptors import StateDescriptor
from tidemark.model.schema.operator_schema import KeyColumn, StoredField
from tidemark.portable_sql.dialects import Dialect

Time = int | str | None
"""The time on the operator's clock in milliseconds, or an expression for it; None = nothing expires."""


class FoldKind(StateKind):
    """A kind of a fold. Its merge is associative, so barriers may cut and compactions regroup anywhere.

    The partial is Spark SQL, because only Spark folds records; merge and finish are SQL of both engines; the Python is
    the twin of all three. They must give the same result, bit for bit if the field `is_exact`.
    """

    def bound(self, at: str, declared: StateDescriptor, record: FieldType) -> Input:
        """See `StateKind`."""
        over = record_field(at, declared.source, record)
        finished = self.result_type(at, declared, over)
        if finished.with_null(declared.type.nullable) != declared.type:
            raise DeclarationError(
                f"{at}: state.{self.shown}({declared.source!r}) is {finished.sql}, declared {declared.type.sql}",
                next="make the annotation agree with the record field.",
            )
        return Input(over=over)

    def result_type(self, at: str, declared: StateDescriptor, over: FieldType) -> FieldType:
        """Returns the type of the finished value; its nullability is ignored.

        Raises:
            DeclarationError: the kind does not fold such a field.
        """
        return over

    # SQL

    @abstractmethod
    def partials(self, field: StoredField, only: str, *, emitted: bool) -> list[str]:
        """Returns, per accumulator, an aggregate expression over the records of a key in one batch, in Spark SQL.

        Args:
            field: the field.
            only: a condition on records; empty = all count.
            emitted: whether a process emitted the records: then several have the same offset, and the frame has `_n`.
        """

    @abstractmethod
    def merges(self, field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect) -> list[str]:
        """Returns, per accumulator, an aggregate expression over stored rows of a key; null if cut off."""

    def finish(self, field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect, now: Time) -> str:
        """Returns the expression that readers see, over merged accumulators and `_last_at`."""
        value = self.finished(field, keys, dialect)
        hidden = expired('coalesce("_last_at", 0)', field, now)
        empty = dialect.or_empty("NULL") if self.is_collection else "NULL"
        return value if hidden is None else f"CASE WHEN {hidden} THEN {empty} ELSE {value} END"

    def finished(self, field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect) -> str:
        """Returns the same as `finish`, without expiry."""
        return quoted(field.name)

    def run_columns(self, field: StoredField, keys: Sequence[KeyColumn], now: int | None) -> dict[str, str]:
        """Returns columns of a run other than the plain partials, in Spark SQL over the partials and `_last_at`."""
        return {}

    def adds(self, field: StoredField) -> str:
        """Returns the condition that the field of a run's row adds something to older rows."""
        return f"{quoted(field.accumulators[0][0])} IS NOT NULL"

    def may_leave_64_bits(self, field: StoredField) -> bool:
        """Whether the field adds integers, whose sum may not fit 64 bits."""
        return False

    def is_present(self, field: StoredField, hidden: str, dialect: Dialect, now: Time) -> str:
        """Returns the condition that the field of a merged row has not expired.

        Args:
            field: the field, which has a ttl.
            hidden: the condition that its last access is too long ago.
            dialect: dialect of the engine.
            now: the time.
        """
        return f"NOT ({hidden})"

    def dropped(self, field: StoredField, hidden: str, dialect: Dialect, now: Time) -> dict[str, str]:
        """Returns columns of a merged row without expired values; the arguments are those of `is_present`."""
        return {name: f"CASE WHEN {hidden} THEN NULL ELSE {quoted(name)} END" for name, _ in field.accumulators}

    # Python

    @abstractmethod
    def fold(self, field: StoredField, of: OfKey, placed: Placed) -> list[Any]:
        """Returns the accumulators of a key's records in one batch; twin of `partials` and `run_columns`.

        Raises:
            StateOverflowError: they do not fit.
        """

    @abstractmethod
    def merge(self, field: StoredField, of: OfKey, n: int, values: Sequence[Any]) -> Any:
        """Merges the n-th accumulator of stored rows, the oldest first; twin of `merges`.

        Raises:
            StateOverflowError: it does not fit.
        """

    def read(self, field: StoredField, of: OfKey, row: Row) -> Any:
        """Returns the value that readers see for a merged row; twin of `finish`.

        Raises:
            StateOverflowError: it does not fit.
        """
        if self.is_hidden(field, of.now, row):
            return [] if self.is_collection else None
        return self.value(field, of, row)

    def value(self, field: StoredField, of: OfKey, row: Row) -> Any:
        """Returns the same as `read`, without expiry."""
        return row[field.name]

    def is_hidden(self, field: StoredField, now: int | None, row: Row) -> bool:
        """Whether the whole field of a merged row has expired; twin of `is_present`."""
        return is_expired(field, row["_last_at"], now)

    def swept(self, field: StoredField, now: int | None, row: Row) -> dict[str, Any]:
        """Returns columns of a merged row without expired values; twin of `dropped`."""
        if self.is_hidden(field, now, row):
            return dict.fromkeys((name for name, _ in field.accumulators), None)
        return {}
