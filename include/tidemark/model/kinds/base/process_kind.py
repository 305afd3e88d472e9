"""The protocol of kinds of a process: the state that its function reads and changes, and that readers see."""

import json
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from tidemark.model.core.default_values import value_text
from tidemark.model.core.json_values import value_from_json
from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.kind import Input, StateDescriptor, StateKind, Time
from tidemark.model.kinds.base.python import Row
from tidemark.model.portable_sql.dialects import Dialect
from tidemark.model.schema.operator_schema import StoredField

_PLAIN = (type(None), bool, int, float, str)
_JSON_KINDS = ("bool", "int", "float", "str")
"""Kinds whose values are those of JSON: their initial value is in the manifest as it is, as in release 0.1."""


def stored_initial(at: str, declared: StateDescriptor) -> Any:
    """Returns an initial value as a manifest has it: as it is, or in JSON if its type is none of JSON's.

    Raises:
        DeclarationError: it is not of the declared type.
    """
    value, of = declared.initial, declared.type
    if type(value) in _PLAIN and of == of.stored and (of.kind in _JSON_KINDS or not isinstance(value, str)):
        return value
    return None if value is None else value_text(value, of, f"{at}: initial value")


def initial_of(field: StoredField) -> Any:
    """Returns the initial value of a field in stored form; the inverse of `stored_initial`."""
    value, of = field.initial, field.type
    if value is None or (of == of.stored and (of.kind in _JSON_KINDS or not isinstance(value, str))):
        return value
    return value_from_json(of, json.loads(value))


class ProcessKind(StateKind):
    """A kind of a process. Rows hold whole values: the newest row of a key, and of an entry, counts."""

    is_process = True

    def bound(self, at: str, declared: StateDescriptor, record: FieldType) -> Input:
        """See `StateKind`; nothing of the record is folded."""
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
