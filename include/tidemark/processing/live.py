"""The state object for a process function: an instance of the author's class.

Its fields are cells, except for plain values: immutable ones that are stored as they are and never expire. These are
entries of its `__dict__`, in the columns of its stored row, so that Python itself reads them (adr/0072).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from tidemark.model.schema.operator_schema import OperatorSchema, StoredField
from tidemark.processing.cells import Cell, CellType, Entry, PlainField, ValueCell
from tidemark.processing.clock import KeyClock
from tidemark.processing.instances import InstanceMaker
from tidemark.processing.lists import ListCell
from tidemark.processing.maps import MapCell
from tidemark.processing.shapes import Shape
from tidemark.processing.value_codec import DoesNotFit, codec_of
from tidemark.state import Keyed

if TYPE_CHECKING:
    from tidemark.model.kinds.base.process_kind import ProcessKind

StoredRow = Mapping[str, Any] | tuple[Any, ...]
"""A stored row of a key, values in stored form, by column; see `sql.map_entries`. If no field needs a cell, and each
has a value, it may be a tuple in `StateType.plain_columns`."""


class Live:
    """Mixed into the author's class: reading and assigning a field use its cell, any other name is refused."""

    _cells: dict[str, Cell]

    def __init_subclass__(cls) -> None:
        """Declares nothing: the author's class has declared all fields."""

    def __setattr__(self, name: str, value: Any) -> None:
        cell = self._cells.get(name)
        if cell is None:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}")
        cell.set(value)

    def clear(self) -> None:
        """Clears all state of the key; see `Keyed.clear`."""
        for cell in self._cells.values():
            cell.clear()

    def __eq__(self, other: object) -> bool:
        names = self._cells
        return isinstance(other, Keyed) and all(getattr(self, n) == getattr(other, n, None) for n in names)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{n}={c.get()!r}' for n, c in self._cells.items())})"


class LiveKey(Live):
    """Mixed into the author's class of the state of a key.

    Plain values, their access times, the clock and the cells of all other fields are in its `__dict__`: the values
    under the names of their fields. `_has_changed` says whether a plain value was assigned or cleared.
    """

    _key_clock: KeyClock
    _has_changed: bool
    _live_names: tuple[str, ...]
    """The fields that the author sees, in declaration order."""
    _plain_fields: Mapping[str, PlainField]

    def __setattr__(self, name: str, value: Any) -> None:
        field = self._plain_fields.get(name)
        if field is None:
            Live.__setattr__(self, name, value)
            return
        held = self.__dict__
        if value is None:
            if held[field.at_name] is not None:
                field.clear(held)
            return
        try:
            held[name] = field.dump(value)
        except (TypeError, DoesNotFit, UnicodeEncodeError) as error:
            raise field.refused(error) from None
        held[field.at_name] = held["_key_clock"].now
        held["_has_changed"] = True

    def clear(self) -> None:
        """Clears all state of the key; see `Keyed.clear`."""
        held = self.__dict__
        for field in self._plain_fields.values():
            if held[field.at_name] is not None:
                field.clear(held)
        Live.clear(self)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keyed) and all(getattr(self, n) == getattr(other, n, None) for n in self._live_names)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{n}={getattr(self, n)!r}' for n in self._live_names)})"


@dataclass(frozen=True)
class StateType:
    """The common part of the live state of all keys of an operator.

    Attributes:
        cls: the author's class.
        schema: the stored schema.
        shapes: shape of each field's annotation.
    """

    cls: type[Keyed]
    schema: OperatorSchema
    shapes: Mapping[str, Shape]

    def open(self, rows: Sequence[StoredRow], clock: KeyClock) -> tuple[Any, dict[str, Cell]]:
        """Returns the live state of a key, and the cells of its fields that are not plain values.

        Args:
            rows: its stored rows that are values, only the newest of each kind.
            clock: clock of the key.
        """
        row = rows[-1] if rows else self._absent
        if type(row) is tuple:
            return self._make(*row, _NO_CELLS, clock, False), _NO_CELLS
        return self._opened(rows, clock)

    def _opened(self, rows: Sequence[Any], clock: KeyClock) -> tuple[Any, dict[str, Cell]]:
        own, entries = self._sorted(rows)
        columns = [self._initials[n] if own is None else own[n] for n in self.plain_columns]
        for n, plain in enumerate(self._plain.values()):
            if columns[2 * n + 1] is None:
                columns[2 * n] = plain.initial
        cells = {name: make(clock, own, entries) for name, make in self._makers}
        seen = cells
        if self._hidden is not None:
            seen = cells.copy()
            del seen[self._hidden]
        return self._make(*columns, seen, clock, False), cells

    def settle(self, live: Any, cells: Mapping[str, Cell]) -> "StateResult":
        """Finishes the work on a key; called once.

        Args:
            live: the live state.
            cells: its cells, including hidden ones.
        """
        held = live.__dict__
        changed: bool = held["_has_changed"]
        for cell in cells.values():
            # Every cell must settle, even after one has changed.
            changed = cell.settle() or changed
        if not changed:
            return _UNCHANGED
        if not cells:
            columns = self._all(held)
            if None not in map(held.__getitem__, self._times):
                size = self._fixed
                for name, size_of in self._sized:
                    size += size_of(held[name])
                return StateResult(True, False, size, columns, ())
        return self._gathered(held, cells)

    def _gathered(self, held: Mapping[str, Any], cells: Mapping[str, Cell]) -> "StateResult":
        is_empty, size = True, 0
        columns: list[Any] = []
        entries: list[Entry] = []
        for name in (f.name for f in self.schema.fields):
            plain = self._plain.get(name)
            if plain is None:
                cell = cells[name]
                is_empty = is_empty and not cell.is_present
                size += cell.size
                columns += cell.columns()
                entries += cell.entries()
            elif held[plain.at_name] is None:
                columns += (None, None)
            else:
                is_empty, size = False, size + plain.size_of(held[name])
                columns += (held[name], held[plain.at_name])
        return StateResult(True, is_empty, size, tuple(columns), tuple(entries))

    def _sorted(
        self, rows: Iterable[Mapping[str, Any]]
    ) -> tuple[Mapping[str, Any] | None, dict[str, dict[Any, tuple[Any, int]]]]:
        own: Mapping[str, Any] | None = None
        entries: dict[str, dict[Any, tuple[Any, int]]] = {}
        for row in rows:
            name = row.get("_field")
            if name is None:
                own = row
            else:
                entries.setdefault(name, {})[row[f"{name}__key"]] = (row[name], row[f"{name}__at"])
        return own, {n: found if len(found) == 1 else dict(sorted(found.items())) for n, found in entries.items()}

    @cached_property
    def _live(self) -> type:
        space: dict[str, Any] = {n: property(_reading(n)) for n in self._names if n not in self._plain}
        # What the author's class has under the name of a plain value, such as its descriptor, is no data descriptor.
        space |= {"_live_names": self._names, "_plain_fields": self._plain}
        made = type(self.cls.__name__, (LiveKey, self.cls), space)
        made.__qualname__ = self.cls.__qualname__
        return made

    @cached_property
    def _hidden(self) -> str | None:
        """The field of the timers, which the author's class does not have."""
        return None if self.schema.timers is None else self.schema.timers.name

    @cached_property
    def _names(self) -> tuple[str, ...]:
        """The fields that the author's class has: all but the timers."""
        return tuple(f.name for f in self.schema.fields if f.name != self._hidden)

    @cached_property
    def _plain(self) -> dict[str, PlainField]:
        values = [f for f in self.schema.fields if _makers()[type(f.process_kind)] is _value_maker]
        # None is not assigned: it clears the field.
        shapes = {f.name: replace(s, type=s.type.with_null(False)) for f in values if (s := self.shapes[f.name])}
        found = ((f.name, PlainField.of(f, codec_of(shapes[f.name]))) for f in values)
        return {name: plain for name, plain in found if plain is not None}

    @cached_property
    def plain_columns(self) -> tuple[str, ...]:
        """The columns of plain values: of each the value, then its access time."""
        return tuple(column for f in self._plain.values() for column in (f.name, f.at_name))

    @cached_property
    def has_cells(self) -> bool:
        """Whether a field is no plain value."""
        return bool(self._makers)

    @cached_property
    def _make(self) -> Callable[..., Any]:
        return InstanceMaker(self._live, (*self.plain_columns, "_cells", "_key_clock", "_has_changed")).make

    @cached_property
    def _initials(self) -> dict[str, Any]:
        """The columns of a key without values."""
        return {n: v for f in self._plain.values() for n, v in ((f.name, f.initial), (f.at_name, None))}

    @cached_property
    def _absent(self) -> StoredRow:
        """The row of a key without stored rows."""
        return {} if self.has_cells else tuple(self._initials.values())

    # What a key without cells leaves, if each field has a value.
    @cached_property
    def _all(self) -> Any:
        return itemgetter(*self.plain_columns)

    @cached_property
    def _times(self) -> tuple[str, ...]:
        return tuple(f.at_name for f in self._plain.values())

    @cached_property
    def _fixed(self) -> int:
        return sum(8 for f in self._plain.values() if f.size is None)

    @cached_property
    def _sized(self) -> list[tuple[str, Callable[[Any], int]]]:
        return [(f.name, f.size_of) for f in self._plain.values() if f.size is not None]

    @cached_property
    def _makers(self) -> list[tuple[str, Callable[..., Cell]]]:
        return [(f.name, _maker(f, self.shapes[f.name])) for f in self.schema.fields if f.name not in self._plain]


class StateResult(NamedTuple):
    """The result of a key's state; one is made for every key.

    Attributes:
        changed: whether anything must be written.
        is_empty: whether nothing is left.
        size: approximate size in bytes.
        columns: the columns of the fields in the key's own row, in declaration order.
        entries: changed entries of maps.
    """

    changed: bool
    is_empty: bool
    size: int
    columns: tuple[Any, ...]
    entries: tuple[Entry, ...]


_UNCHANGED = StateResult(False, False, 0, (), ())
_NO_CELLS: dict[str, Cell] = {}


def _reading(name: str) -> Callable[[Any], Any]:
    return lambda live: live._cells[name].get()


def _maker(field: StoredField, shape: Shape) -> Callable[..., Cell]:
    return _makers()[type(field.process_kind)](field, shape)


def _map_maker(field: StoredField, shape: Shape) -> Callable[..., Cell]:
    keys, values = shape.inner
    of = CellType.of(field, codec_of(values), codec_of(keys))
    return lambda clock, own, entries: MapCell(of, clock, entries.get(field.name, {}))


def _list_maker(field: StoredField, shape: Shape) -> Callable[..., Cell]:
    of = CellType.of(field, codec_of(shape.inner[0]))
    return lambda clock, own, entries: ListCell(of, clock, own)


def _value_maker(field: StoredField, shape: Shape) -> Callable[..., Cell]:
    of = CellType.of(field, codec_of(shape))
    return lambda clock, own, entries: ValueCell(of, clock, own)


@cache
def _makers() -> "Mapping[type[ProcessKind], Callable[[StoredField, Shape], Callable[..., Cell]]]":
    """The cells by kind: the kinds of the model do not know cells."""
    from tidemark.model.kinds.list_of_values import ProcessList
    from tidemark.model.kinds.map import Map
    from tidemark.model.kinds.value import Value

    return {Map: _map_maker, ProcessList: _list_maker, Value: _value_maker}
