"""Live lists: a `list` to the author, plus the access time of every element."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, Self, SupportsIndex

from tidemark.processing.cells import CellType, Entry
from tidemark.processing.clock import KeyClock


class Owner(Protocol):
    """Gets notified of an author's changes to a list."""

    def copy_in(self, value: Any) -> Any:
        """Returns a copy of an element that the author adds."""

    def record_change(self) -> int:
        """Records that the author changed the list; returns the access time."""


class LiveList(list[Any]):
    """A list that stores the last access time of each element; its slices and copies are plain lists."""

    __slots__ = ("at", "cell")

    def __init__(self, cell: Owner, values: Iterable[Any], at: Sequence[int | None]) -> None:
        super().__init__(values)
        self.cell, self.at = cell, list(at)

    def append(self, value: Any) -> None:
        """Appends an element, accessed now."""
        super().append(self.cell.copy_in(value))
        self.at.append(self.cell.record_change())

    def extend(self, values: Iterable[Any]) -> None:
        """Appends elements."""
        for value in list(values):
            self.append(value)

    def insert(self, index: SupportsIndex, value: Any) -> None:
        """Inserts an element at an index."""
        super().insert(index, self.cell.copy_in(value))
        self.at.insert(index, self.cell.record_change())

    def pop(self, index: SupportsIndex = -1) -> Any:
        """Removes and returns an element."""
        value = super().pop(index)
        self.at.pop(index)
        self.cell.record_change()
        return value

    def remove(self, value: Any) -> None:
        """Removes the first equal element."""
        del self[self.index(value)]

    def clear(self) -> None:
        """Removes all elements."""
        del self[:]

    def reverse(self) -> None:
        """Reverses the list in place."""
        super().reverse()
        self.at.reverse()
        self.cell.record_change()

    def sort(self, *, key: Any = None, reverse: bool = False) -> None:
        """Sorts the list in place; each element keeps its access time."""
        by = [v if key is None else key(v) for v in self]
        order = sorted(range(len(by)), key=by.__getitem__, reverse=reverse)
        super().__setitem__(slice(None), [self[n] for n in order])
        self.at[:] = [self.at[n] for n in order]
        self.cell.record_change()

    def __setitem__(self, index: Any, value: Any) -> None:
        now = self.cell.record_change()
        if isinstance(index, slice):
            taken = [self.cell.copy_in(v) for v in value]
            super().__setitem__(index, taken)
            self.at[index] = [now] * len(taken)
        else:
            super().__setitem__(index, self.cell.copy_in(value))
            self.at[index] = now

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        super().__delitem__(index)
        del self.at[index]
        self.cell.record_change()

    def __add__(self, other: Any) -> list[Any]:
        return list(self) + list(other)

    def __iadd__(self, values: Any) -> Self:
        self.extend(values)
        return self

    def __imul__(self, times: SupportsIndex) -> Self:
        before = list(self)
        n = times.__index__()
        if n < 1:
            self.clear()
        for _ in range(n - 1):
            self.extend(before)
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return (list, (list(self),))


class ListCell:
    """A field `state.list()`; expiry is handled when the field is read from the state."""

    __slots__ = ("_changed", "_clock", "_live", "_read", "_stored", "_type")

    def __init__(self, of: CellType, clock: KeyClock, own: Mapping[str, Any] | None) -> None:
        self._type, self._clock = of, clock
        self._stored: list[dict[str, Any]] = (None if own is None else own[of.field.name]) or []
        self._live: LiveList | None = None
        self._read = self._changed = False

    def copy_in(self, value: Any) -> Any:
        """Returns a copy of an element that the author adds."""
        return self._type.codec.copy(self._type.dump(value))

    def record_change(self) -> int:
        """Records that the author changed the list; returns the access time."""
        self._changed = True
        return self._clock.now

    def get(self) -> LiveList:
        """Returns the list without expired elements, or with them a last time; a read that is an access renews it."""
        live = self._opened()
        if self._type.ttl_ms is not None:
            self._expire(live)
        self._read = True
        return live

    def set(self, value: Any) -> None:
        """Replaces all elements; each counts as accessed now."""
        if value is self._live and value is not None:
            return
        if not isinstance(value, list | tuple):
            raise TypeError(f"{self._type.field.name}: {value!r:.200} is not a list")
        taken = [self.copy_in(v) for v in value]
        self._live = LiveList(self, taken, [self.record_change()] * len(taken))

    def clear(self) -> None:
        """Clears all elements."""
        if self._opened():
            self.set([])

    def settle(self) -> bool:
        """See `Cell`."""
        now, of = self._clock.now, self._type
        if self._live is None and of.hides and any(of.is_expired(e["at"], now) for e in self._stored):
            self._opened()
        if self._live is not None:
            self._close(self._live, now)
        return self._changed

    @property
    def is_present(self) -> bool:
        """See `Cell`."""
        return bool(self._stored)

    @property
    def size(self) -> int:
        """See `Cell`."""
        size_of = self._type.codec.bytes_of
        return sum(8 + size_of(e["value"]) for e in self._stored)

    @property
    def length(self) -> int:
        """Returns the number of elements; valid after `settle`."""
        return len(self._stored)

    def columns(self) -> tuple[Any, ...]:
        """Returns all elements with their access times."""
        return (self._stored or None,)

    def entries(self) -> Iterable[Entry]:
        """None."""
        return ()

    def _opened(self) -> LiveList:
        if self._live is None:
            copied = self._type.codec.copy
            self._live = LiveList(self, [copied(e["value"]) for e in self._stored], [e["at"] for e in self._stored])
        return self._live

    def _expire(self, live: LiveList) -> None:
        """Removes expired elements that were visible before; newly expired ones are removed, or shown this once."""
        now, of = self._clock.now, self._type
        gone = [at is None or (of.hides and of.is_expired(at, now)) for at in live.at]
        if any(gone):
            self._keep(live, gone)
        for n, at in enumerate(live.at):
            if at is not None and of.is_expired(at, now):
                live.at[n], self._changed = None, True
            elif at is not None and of.renews and at != now:
                live.at[n], self._changed = now, True

    def _keep(self, live: LiveList, gone: list[bool]) -> None:
        kept = [(v, at) for v, at, g in zip(live, live.at, gone, strict=True) if not g]
        list.__setitem__(live, slice(None), [v for v, _ in kept])
        live.at[:] = [at for _, at in kept]
        self._changed = True

    def _close(self, live: LiveList, now: int) -> None:
        of = self._type
        gone = [at is None or (of.hides and of.is_expired(at, now)) for at in live.at]
        if any(gone):
            self._keep(live, gone)
        if self._changed or (self._read and of.codec.changeable):
            stored = [{"at": at, "value": of.dump(v)} for v, at in zip(live, live.at, strict=True)]
            self._changed = self._changed or stored != self._stored
            self._stored = stored
