"""The protocol of a kind of state, with what most kinds answer."""

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
    """What a declared field folds, bound to the type of the record.

    Attributes:
        over: type of the record field; of a process: the type of the value, the element or the entry's value.
        aggregate: of an author's aggregate: its texts, bound.
        others: further record paths and their types.
    """

    over: FieldType
    aggregate: Aggregate | None = None
    others: tuple[tuple[str, FieldType], ...] = ()


class StateKind(ABC):
    """A kind of state. It has no attributes of its own: all fields of a kind share one instance.

    Attributes:
        name: what declarations and manifests carry; never changed.
        shown: the name of the function of `tidemark.state` that declares it.
        is_process: whether it belongs in a `Process`.
        is_collection: whether it is never null: a key without it has an empty one.
        is_limited: whether `limit=` bounds it.
        expires_by_element: whether `ttl=` is of each element, not of the whole.
        is_stored_by_entry: whether it has a row per entry besides the row of its key.
        keeps_nulls: whether null may be an element or an entry, so that null is no longer absence.
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
        """Makes a kind known; it is shown by its name, unless it says otherwise."""
        if "name" in cls.__dict__:
            KNOWN[cls.name] = cls
            cls.shown = cls.__dict__.get("shown", cls.name)

    # Declarations

    def default(self, declared: StateDescriptor) -> object:
        """What a key without such state has; a new object each time where it can be changed."""
        return [] if self.is_collection else declared.initial

    def is_optional(self, declared: StateDescriptor, found: FieldType) -> bool:
        """Whether the finished value may be null, given the annotation."""
        return True

    def check_annotation(self, declared: StateDescriptor, found: FieldType, where: str) -> StateDescriptor:
        """The descriptor, completed by its annotation where the kind needs that.

        Raises:
            DeclarationError: the kind cannot be of that type.
        """
        return declared

    @abstractmethod
    def bound(self, at: str, declared: StateDescriptor, record: FieldType) -> Input:
        """What a declared field folds.

        Args:
            at: the field, for messages.
            declared: with its name and its type.
            record: the struct of the operator's records.

        Raises:
            DeclarationError: no such record field, or the kind or the annotation does not fit its type.
        """

    # Columns

    @abstractmethod
    def accumulators(self, field: StoredField) -> Accumulators:
        """The columns of the table that hold the field."""

    def absent(self, field: StoredField) -> tuple[object, ...]:
        """What each accumulator holds in rows that were written without the field."""
        return (None,) * len(field.accumulators)

    def inputs(self, field: StoredField) -> tuple[str, ...]:
        """The record paths that it is made of."""
        return (field.source, *(path for path, _ in field.others))

    def is_exact(self, field: StoredField) -> bool:
        """Whether regrouping gives equal bits; what does not stays out of state hashes."""
        return True

    # State that is given as a table: an import, a bootstrap, a patch

    @abstractmethod
    def given(self, field: StoredField) -> Iterator[tuple[str, FieldType]]:
        """(column, type) that a table of given state must have."""

    def stored(self, field: StoredField, at_ms: int) -> Iterator[tuple[str, str]]:
        """(accumulator, DuckDB expression over the given columns) in the row of the key; others stay null.

        Args:
            field: the field.
            at_ms: when keys were accessed, on the operator's clock, in milliseconds.
        """
        yield field.name, quoted(field.name)

    def torn(self, field: StoredField) -> Iterator[tuple[str, str]]:
        """(condition on a given row that contradicts itself, what is wrong with it)."""
        yield from ()


def record_field(at: str, path: str, record: FieldType) -> FieldType:
    """The type of a record field.

    Raises:
        DeclarationError: there is none.
    """
    found = record.at(path)
    if found is None:
        raise DeclarationError(f"{at}: the record has no field {path!r}", next="name a field of the record.")
    return found
