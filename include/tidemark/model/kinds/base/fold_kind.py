"""The protocol of kinds of a fold: an associative pair (partial over records, merge of partials) and a finish."""

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
"""The time on the operator's clock in milliseconds, or an expression of it; None = nothing expires."""


class FoldKind(StateKind):
    """A kind of a fold. Its merge is associative, so barriers may cut and compactions regroup anywhere.

    The partial is Spark SQL, because records are only folded there; merge and finish are SQL of both engines; the
    Python is the twin of all three. They must give the same, bit for bit where the field `is_exact`.
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
        """The type of the finished value; whether it is nullable does not matter.

        Raises:
            DeclarationError: the kind does not fold such a field.
        """
        return over

    # SQL

    @abstractmethod
    def partials(self, field: StoredField, only: str, *, emitted: bool) -> list[str]:
        """Per accumulator an aggregate expression over the records of a key in one batch, in Spark SQL.

        Args:
            field: the field.
            only: a condition on records; empty = all count.
            emitted: whether a process emitted the records: several have one offset then, and `_n` is in the frame.
        """

    @abstractmethod
    def merges(self, field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect) -> list[str]:
        """Per accumulator an aggregate expression over stored rows of a key; null where the field is cut off."""

    def finish(self, field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect, now: Time) -> str:
        """What readers see, over merged accumulators and `_last_at`."""
        value = self.finished(field, keys, dialect)
        hidden = expired('coalesce("_last_at", 0)', field, now)
        empty = dialect.or_empty("NULL") if self.is_collection else "NULL"
        return value if hidden is None else f"CASE WHEN {hidden} THEN {empty} ELSE {value} END"

    def finished(self, field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect) -> str:
        """As `finish`, of what has not expired."""
        return quoted(field.name)

    def run_columns(self, field: StoredField, keys: Sequence[KeyColumn], now: int | None) -> dict[str, str]:
        """Columns of a run that are not just their partials, in Spark SQL over the partials and `_last_at`."""
        return {}

    def adds(self, field: StoredField) -> str:
        """The condition on a row of a run that the field adds something to what lies below."""
        return f"{quoted(field.accumulators[0][0])} IS NOT NULL"

    def may_leave_64_bits(self, field: StoredField) -> bool:
        """Whether it adds integers of the field `source`, whose sum may not fit."""
        return False

    def is_present(self, field: StoredField, hidden: str, dialect: Dialect, now: Time) -> str:
        """The condition on a merged row that the field has not expired.

        Args:
            field: the field, which has a ttl.
            hidden: the condition that its last access is too long ago.
            dialect: of the engine.
            now: the time.
        """
        return f"NOT ({hidden})"

    def dropped(self, field: StoredField, hidden: str, dialect: Dialect, now: Time) -> dict[str, str]:
        """Columns of a merged row without what has expired; arguments as of `is_present`."""
        return {name: f"CASE WHEN {hidden} THEN NULL ELSE {quoted(name)} END" for name, _ in field.accumulators}

    # Python

    @abstractmethod
    def fold(self, field: StoredField, of: OfKey, placed: Placed) -> list[Any]:
        """The accumulators of a key's records in one batch; twin of `partials` and `run_columns`.

        Raises:
            StateOverflowError: they do not fit.
        """

    @abstractmethod
    def merge(self, field: StoredField, of: OfKey, n: int, values: Sequence[Any]) -> Any:
        """The n-th accumulator of stored ones, the oldest first; twin of `merges`.

        Raises:
            StateOverflowError: it does not fit.
        """

    def read(self, field: StoredField, of: OfKey, row: Row) -> Any:
        """What readers see of a merged row; twin of `finish`.

        Raises:
            StateOverflowError: it does not fit.
        """
        if self.is_hidden(field, of.now, row):
            return [] if self.is_collection else None
        return self.value(field, of, row)

    def value(self, field: StoredField, of: OfKey, row: Row) -> Any:
        """As `read`, of what has not expired."""
        return row[field.name]

    def is_hidden(self, field: StoredField, now: int | None, row: Row) -> bool:
        """Whether all of the field in a merged row has expired; twin of `is_present`."""
        return is_expired(field, row["_last_at"], now)

    def swept(self, field: StoredField, now: int | None, row: Row) -> dict[str, Any]:
        """Columns of a merged row without what has expired; twin of `dropped`."""
        if self.is_hidden(field, now, row):
            return dict.fromkeys((name for name, _ in field.accumulators), None)
        return {}
