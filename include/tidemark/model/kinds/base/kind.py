"""The protocol of a kind of state, with defaults that suit most kinds."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tidemark.errors import DeclarationError
from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.lookup import KNOWN
from tidemark.model.kinds.base.sql import quoted
from tidemark.model.schema.field_descriptors import StateDescriptor
from tidemark.model.schema.operator_schema import StoredField
from tidemark.portable_sql.custom_aggregate import Aggregate

Accumulators = tuple[tuple[str, FieldType], ...]
"""Column and type of each accumulator, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """The input of a declared field, bound to the record type.

    Attributes:
        over: type of the record field; for a process, type of the value, the element or the entry's value.
        aggregate: the bound expressions of an author's aggregate.
        others: further record paths and their types.
    """

    over: FieldType
    aggregate: Aggregate | None = None
    others: tuple[tuple[str, FieldType], ...] = ()


class StateKind(ABC):
    """A kind of state. It has no attributes of its own: all fields of a kind share one instance.

    Attributes:
        name: stored in declarations and manifests; never change it.
        shown: name of the function of `tidemark.state` that declares it.
        is_process: whether it belongs in a `Process`.
        is_collection: whether it is never null: a key without it has an empty one.
        is_limited: whether `limit=` bounds it.
        expires_by_element: whether `ttl=` applies to each element instead of the whole.
        is_stored_by_entry: whether it has a row per entry in addition to the row of its key.
        keeps_nulls: whether an element or an entry may be null, so that null does not mean absence.
        annotation: the kind of type that its annotation must have; empty = any.
    """

    name: ClassVar[str]
    shown: ClassVar[str] = ""
    is_process: ClassVar[bool] = False
    is_collection: ClassVar[bool] = False
    is_limited: ClassVar[bool] = False
    expires_by_element: ClassVar[bool] = False
    is_stored_by_entry: ClassVar[bool] = False
    keeps_nulls: ClassVar[bool] = False
    annotation: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        """Registers a kind; `shown` defaults to its name."""
        if "name" in cls.__dict__:
            KNOWN[cls.name] = cls
            cls.shown = cls.__dict__.get("shown", cls.name)

    # Declarations

    def default(self, declared: StateDescriptor) -> object:
        """Returns the value for a key without such state; a new object each time if it is mutable."""
        return [] if self.is_collection else declared.initial

    def is_optional(self, declared: StateDescriptor, found: FieldType) -> bool:
        """Whether the finished value may be null, given the annotation."""
        return True

    def check_annotation(self, declared: StateDescriptor, found: FieldType, where: str) -> StateDescriptor:
        """Returns the descriptor, completed by its annotation if the kind needs it.

        Raises:
            DeclarationError: the kind cannot have that type.
        """
        return declared

    @abstractmethod
    def bound(self, at: str, declared: StateDescriptor, record: FieldType) -> Input:
        """Returns the input of a declared field.

        Args:
            at: the field, for messages.
            declared: the descriptor with its name and type.
            record: the struct of the operator's records.

        Raises:
            DeclarationError: the record field does not exist, or the kind or the annotation does not fit its type.
        """

    # Columns

    @abstractmethod
    def accumulators(self, field: StoredField) -> Accumulators:
        """Returns the columns of the table that hold the field."""

    def absent(self, field: StoredField) -> tuple[object, ...]:
        """Returns the value of each accumulator in rows that were written without the field."""
        return (None,) * len(field.accumulators)

    def inputs(self, field: StoredField) -> tuple[str, ...]:
        """Returns the record paths that the field is computed from."""
        return (field.source, *(path for path, _ in field.others))

    def is_exact(self, field: StoredField) -> bool:
        """Whether regrouping gives equal bits; other fields stay out of state hashes."""
        return True

    # State from a table: an import, a bootstrap, a patch

    @abstractmethod
    def given(self, field: StoredField) -> Iterator[tuple[str, FieldType]]:
        """Returns (column, type) for each column that a table of imported state must have."""

    def stored(self, field: StoredField, at_ms: int) -> Iterator[tuple[str, str]]:
        """Returns (accumulator, DuckDB expression over the imported columns) for the row of the key; others stay null.

        Args:
            field: the field.
            at_ms: access time of all keys, on the operator's clock, in milliseconds.
        """
        yield field.name, quoted(field.name)

    def torn(self, field: StoredField) -> Iterator[tuple[str, str]]:
        """Returns (condition for an inconsistent imported row, explanation)."""
        yield from ()


def record_field(at: str, path: str, record: FieldType) -> FieldType:
    """Returns the type of a record field.

    Raises:
        DeclarationError: it does not exist.
    """
    found = record.at(path)
    if found is None:
        raise DeclarationError(f"{at}: the record has no field {path!r}", next="name a field of the record.")
    return found
