"""One field of one key's live state: reading, assigning, expiry, and the changes to write."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tidemark.model.kinds.base.process_kind import initial_of
from tidemark.model.schema.operator_schema import StoredField
from tidemark.processing.clock import KeyClock
from tidemark.processing.value_codec import Codec, DoesNotFit, type_of

Entry = tuple[str, Any, Any, int | None]
"""A stored entry of a map: the field, the entry's key, its value in stored form, its access time; None = removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellType:
    """The common part of all keys' cells of a field.

    Attributes:
        field: the stored field.
        codec: codec of the value, the element, or the entry's value.
        keys: of a map, the codec of its keys.
        ttl_ms: time to live; None = for ever.
        hides: whether expired values are hidden from the function.
        renews: whether a read is an access.
        initial: of a value, what a key without one has, in stored form.
        names: the columns of a value and of its access time.
    """

    field: StoredField
    codec: Codec
    keys: Codec | None = None
    ttl_ms: int | None = None
    hides: bool = True
    renews: bool = False
    initial: Any = None
    names: tuple[str, str] = ("", "")

    @classmethod
    def of(cls, field: StoredField, codec: Codec, keys: Codec | None = None) -> "CellType":
        """Returns the type of a field's cells."""
        names = (field.name, f"{field.name}__at")
        made = cls(field=field, codec=codec, keys=keys, initial=initial_of(field), names=names)
        ttl = field.ttl
        return made if ttl is None else replace(made, ttl_ms=ttl.ms, hides=ttl.hides, renews=ttl.renews_on_read)

    def is_expired(self, at: int, now: int) -> bool:
        """Whether a value last accessed at `at` has expired."""
        return self.ttl_ms is not None and at + self.ttl_ms <= now

    def dump(self, value: Any) -> Any:
        """Returns the stored form of a value, element or entry.

        Raises:
            TypeError, DoesNotFit: it is not a value of the declared type; the message names the field.
        """
        try:
            return self.codec.dump(value)
        except (TypeError, DoesNotFit, UnicodeEncodeError) as error:
            raise self.refused(error) from None

    def refused(self, error: Exception) -> Exception:
        """Returns an error of the codec that names the field."""
        return type_of(error)(f"{self.field.name}: {error}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainField:
    """A field `state.value` whose values are immutable, stored as they are, and never expire: it needs no cells.

    Attributes:
        name: the field, and its column.
        at_name: the column of access times.
        dump: returns the value that is stored for one that the author assigns; see `Codec`.
        size: see `Codec`.
        initial: what a key without a value has.
    """

    name: str
    at_name: str
    dump: Callable[[Any], Any]
    size: Callable[[Any], int] | None
    initial: Any

    @classmethod
    def of(cls, field: StoredField, codec: Codec) -> "PlainField | None":
        """Returns a field `state.value` as one of plain values; None if it needs cells."""
        if field.ttl is not None or codec.load is not None or codec.changeable:
            return None
        name, at_name = CellType.of(field, codec).names
        return cls(name=name, at_name=at_name, dump=codec.dump, size=codec.size, initial=initial_of(field))

    def size_of(self, value: Any) -> int:
        """Returns the approximate bytes of a value."""
        return 8 if self.size is None or value is None else self.size(value)

    def clear(self, held: dict[str, Any]) -> None:
        """Clears the value among the columns of a key."""
        held[self.name], held[self.at_name], held["_has_changed"] = self.initial, None, True

    def refused(self, error: Exception) -> Exception:
        """Returns an error of `dump` that names the field."""
        return type_of(error)(f"{self.name}: {error}")


class Cell(Protocol):
    """A field of a key while its function runs."""

    def get(self) -> Any:
        """Returns `remembered.<field>` for the author."""

    def set(self, value: Any) -> None:
        """Assigns `remembered.<field> = value` for the author."""

    def clear(self) -> None:
        """Clears the field."""

    def settle(self) -> bool:
        """Finishes the key: drops expired values and finds in-place changes; returns whether anything must be written.

        It is called once, after the function has returned.
        """

    @property
    def is_present(self) -> bool:
        """Whether the field has any content; valid after `settle`."""

    @property
    def size(self) -> int:
        """Returns the approximate size of the content in bytes; valid after `settle`."""

    @property
    def length(self) -> int:
        """Returns the number of elements or entries; valid after `settle`."""

    def columns(self) -> tuple[Any, ...]:
        """Returns the field's columns in the key's own row."""

    def entries(self) -> Iterable[Entry]:
        """Returns the rows of changed entries; empty except for a map."""


class ValueCell:
    """A field `state.value`."""

    __slots__ = ("_at", "_changed", "_clock", "_plain", "_read_at", "_type", "_value")

    def __init__(self, of: CellType, clock: KeyClock, own: Mapping[str, Any] | None) -> None:
        self._type, self._clock = of, clock
        self._plain = self._value = None
        self._at: int | None = None
        if own is not None:
            name, at_name = of.names
            self._plain, self._at = own[name], own[at_name]
            self._value = None if self._at is None else of.codec.copy(self._plain)
        self._read_at: int | None = None
        self._changed = False

    def get(self) -> Any:
        """Returns the value, or the initial one if there is none; see `model.core.ttl` for expired values."""
        at, of = self._at, self._type
        if at is None:
            return self._initial()
        if of.ttl_ms is not None:
            now = self._clock.now
            if at + of.ttl_ms <= now:
                value = self._value
                self.clear()
                return self._initial() if of.hides else value
            if of.renews and at != now:
                self._at, self._changed = now, True
        if of.codec.changeable:
            self._read_at = self._clock.now
        return self._value

    def set(self, value: Any) -> None:
        """Stores a copy of the value; None clears the field."""
        if value is None:
            self.clear()
            return
        of = self._type
        try:  # as `CellType.dump` does, without a call per assignment
            plain = of.codec.dump(value)
        except (TypeError, DoesNotFit, UnicodeEncodeError) as error:
            raise of.refused(error) from None
        load = of.codec.load
        self._plain, self._value = plain, plain if load is None else load(plain)
        self._at, self._read_at, self._changed = self._clock.now, None, True

    def clear(self) -> None:
        """Clears the value."""
        self._changed = self._changed or self._at is not None
        self._plain = self._value = self._at = self._read_at = None

    def settle(self) -> bool:
        """See `Cell`."""
        if self._read_at is not None:
            plain = self._type.dump(self._value)
            if plain != (self._type.initial if self._at is None else self._plain):
                self._plain, self._at, self._changed = plain, self._read_at, True
        if self._at is not None and self._type.hides and self._type.is_expired(self._at, self._clock.now):
            self.clear()
        return self._changed

    def _initial(self) -> Any:
        """Returns the initial value; one that the function changes in place becomes the value."""
        of = self._type
        if not of.codec.changeable or of.initial is None:
            return of.codec.copy(of.initial)
        if self._value is None:
            self._value = of.codec.copy(of.initial)
        self._read_at = self._clock.now
        return self._value

    @property
    def is_present(self) -> bool:
        """See `Cell`."""
        return self._at is not None

    @property
    def size(self) -> int:
        """See `Cell`."""
        return 0 if self._at is None else self._type.codec.bytes_of(self._plain)

    @property
    def length(self) -> int:
        """One value, or none."""
        return int(self.is_present)

    def columns(self) -> tuple[Any, ...]:
        """The value and its access time."""
        return (self._plain, self._at)

    def entries(self) -> Iterable[Entry]:
        """None."""
        return ()
