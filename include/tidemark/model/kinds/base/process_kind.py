"""The protocol of kinds of a process: the state that its function reads and changes, and that readers see."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from tidemark.errors import DeclarationError
from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.kind import Input, StateDescriptor, StateKind, Time
from tidemark.model.kinds.base.python import Row
from tidemark.model.portable_sql.dialects import Dialect
from tidemark.model.schema.operator_schema import StoredField

_PLAIN = (type(None), bool, int, float, str)


class ProcessKind(StateKind):
    """A kind of a process. Rows hold whole values: the newest row of a key, and of an entry, counts."""

    is_process = True

    def bound(self, at: str, declared: StateDescriptor, record: FieldType) -> Input:
        """See `StateKind`; nothing of the record is folded."""
        if type(declared.initial) not in _PLAIN:
            raise DeclarationError(
                f"{at}: initial value {declared.initial!r}",
                next="give None, a bool, a number or a text; use state.list() or state.map() for collections.",
            )
        return Input(over=self.inner(declared.type))

    def inner(self, declared: FieldType) -> FieldType:
        """Returns the type of the value, the element or the entry's value of a declared type."""
        assert declared.element is not None  # noqa: S101  (for the type checker: a collection)
        return declared.element

    # SQL

    @abstractmethod
    def finish(self, field: StoredField, dialect: Dialect, now: Time) -> str:
        """Returns the expression that readers see, over the newest row of a key."""

    @abstractmethod
    def is_present(self, field: StoredField, dialect: Dialect, now: Time) -> str:
        """Returns the condition that a key has anything visible in the field."""

    def swept(self, field: StoredField, dialect: Dialect, now: Time) -> dict[str, str]:
        """Returns columns of a key's own row without expired values; used only to drop these."""
        return {}

    # Python

    @abstractmethod
    def read(self, field: StoredField, own: Row, entries: Iterable[Row], now: int | None) -> tuple[Any, bool]:
        """Returns the value that a reader sees, and whether it is present.

        Args:
            field: the field.
            own: the newest row of the key.
            entries: the newest rows of the field's entries, without tombstones.
            now: the time on the operator's clock.
        """

    def drop_expired(self, field: StoredField, own: Row, now: int | None) -> dict[str, Any]:
        """Returns the row without expired values; twin of `swept`."""
        return {}

    def holds(self, field: StoredField, own: Row) -> bool:
        """Whether a key's own row has anything in the field."""
        return False
