"""The state object for a process function: an instance of the author's class, whose fields are cells."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from tidemark.model.schema.operator_schema import OperatorSchema, StoredField
from tidemark.processing.cells import Cell, CellType, Entry, ValueCell
from tidemark.processing.clock import KeyClock
from tidemark.processing.lists import ListCell
from tidemark.processing.maps import MapCell
from tidemark.processing.shapes import Shape
from tidemark.processing.value_codec import codec_of
from tidemark.state import Keyed

if TYPE_CHECKING:
    from tidemark.model.kinds.base.process_kind import ProcessKind

StoredRow = Mapping[str, Any]
"""A stored row of a key, values in stored form, by column; see `sql.map_entries`."""


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

    def open(self, rows: Iterable[StoredRow], clock: KeyClock) -> tuple[Any, dict[str, Cell]]:
        """Returns the live state of a key, and its cells.

        Args:
            rows: its stored rows that are values, only the newest of each kind.
            clock: clock of the key.
        """
        own, entries = self._sorted(rows)
        cells = {name: make(clock, own, entries) for name, make in self._makers}
        seen = cells
        if self._hidden is not None:
            seen = cells.copy()
            del seen[self._hidden]
        live: Any = object.__new__(self._live)
        object.__setattr__(live, "_cells", seen)
        return live, cells

    def _sorted(self, rows: Iterable[StoredRow]) -> tuple[StoredRow | None, dict[str, dict[Any, tuple[Any, int]]]]:
        own: StoredRow | None = None
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
        made = type(self.cls.__name__, (Live, self.cls), {n: property(_reading(n)) for n in self._names})
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
    def _makers(self) -> list[tuple[str, Callable[..., Cell]]]:
        return [(f.name, _maker(f, self.shapes[f.name])) for f in self.schema.fields]


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


def settle(cells: Collection[Cell]) -> StateResult:
    """Finishes the work on a key; called once."""
    changed = False
    for cell in cells:
        # Every cell must settle, even after one has changed.
        changed = cell.settle() or changed
    if not changed:
        return _UNCHANGED
    # One pass: this runs for every key.
    is_empty, size = True, 0
    columns: list[Any] = []
    entries: list[Entry] = []
    for cell in cells:
        if type(cell) is ValueCell:
            if (held := cell.gather(columns)) is not None:
                is_empty, size = False, size + held
            continue
        is_empty = is_empty and not cell.is_present
        size += cell.size
        columns += cell.columns()
        entries += cell.entries()
    return StateResult(True, is_empty, size, tuple(columns), tuple(entries))


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
