"""Live maps: a `dict` to the author, stored as a row per entry; only changed entries are written."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from tidemark.processing.cells import CellType, Entry
from tidemark.processing.clock import KeyClock

_ABSENT: Any = object()


class LiveMap(dict[Any, Any]):
    """A dict that records changed entries; its copies are plain dicts."""

    __slots__ = ("cell",)

    def __init__(self, cell: "MapCell", entries: Mapping[Any, Any]) -> None:
        super().__init__(entries)
        self.cell = cell

    def __setitem__(self, key: Any, value: Any) -> None:
        key, value = self.cell.copy_in(key, value)
        super().__setitem__(key, value)

    def __delitem__(self, key: Any) -> None:
        self.cell.look_at(self, key)
        super().__delitem__(key)
        self.cell.record_removal(key)

    def pop(self, key: Any, default: Any = _ABSENT) -> Any:
        """Removes an entry and returns its value."""
        if default is not _ABSENT and key not in self:
            return default
        value = dict.__getitem__(self, key)
        del self[key]
        return value

    def popitem(self) -> tuple[Any, Any]:
        """Removes and returns the entry that was added last."""
        for key in reversed(list(self)):
            return key, self.pop(key)
        raise KeyError("popitem(): dictionary is empty")

    def clear(self) -> None:
        """Removes all entries."""
        for key in list(dict.keys(self)):
            dict.__delitem__(self, key)
            self.cell.record_removal(key)

    def update(self, *others: Any, **named: Any) -> None:
        """Sets entries."""
        for key, value in dict(*others, **named).items():
            self[key] = value

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Returns the entry's value; sets the default first if there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def __or__(self, other: Any) -> dict[Any, Any]:
        return self.copy() | dict(other)

    def __ior__(self, other: Any) -> Self:
        self.update(other)
        return self

    def copy(self) -> dict[Any, Any]:
        """Returns a plain dict with the same entries."""
        return dict(self.items())

    def __reduce_ex__(self, protocol: Any) -> Any:
        return (dict, (self.copy(),))


class ExpiringMap(LiveMap):
    """A map with a ttl: reads skip expired entries, or return them for the last time, and may renew entries.

    `in`, `len` and the keys neither renew nor clean up.
    """

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        self.cell.look_at(self, key)
        value = super().__getitem__(key)
        self.cell.record_read(self, key)
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        """Returns the entry's value, or the default."""
        # Check first, because a miss is not an access.
        found = key in self
        return self[key] if found else default

    def pop(self, key: Any, default: Any = _ABSENT) -> Any:
        """Removes an entry and returns its value."""
        self.cell.look_at(self, key)
        return super().pop(key, default)

    def __contains__(self, key: Any) -> bool:
        self.cell.look_at(self, key)
        return super().__contains__(key)

    def __len__(self) -> int:
        self.cell.look_at_all(self)
        return super().__len__()

    def __iter__(self) -> Iterator[Any]:
        self.cell.look_at_all(self)
        return super().__iter__()

    def __reversed__(self) -> Iterator[Any]:
        self.cell.look_at_all(self)
        return super().__reversed__()

    def keys(self) -> Any:
        """Returns the keys of the entries."""
        self.cell.look_at_all(self)
        return super().keys()

    def values(self) -> Any:
        """Returns a snapshot of the values."""
        return self._handed().values()

    def items(self) -> Any:
        """Returns a snapshot of the entries."""
        return self._handed().items()

    def __eq__(self, other: object) -> bool:
        self.cell.look_at_all(self)
        return super().__eq__(other)

    def __repr__(self) -> str:
        self.cell.look_at_all(self)
        return super().__repr__()

    def _handed(self) -> dict[Any, Any]:
        self.cell.look_at_all(self)
        found = dict(super().items())
        for key in found:
            self.cell.record_read(self, key)
        return found


class MapCell:
    """A field `state.map()`. Keys are Python's objects here, as the author has them; entries leave in stored form."""

    __slots__ = ("_at", "_changed", "_clock", "_live", "_stored", "_type")

    def __init__(self, of: CellType, clock: KeyClock, stored: Mapping[Any, tuple[Any, int]]) -> None:
        load = None if of.keys is None else of.keys.load
        self._type, self._clock = of, clock
        self._stored = stored if load is None else {load(key): entry for key, entry in stored.items()}
        self._at: dict[Any, int] = {key: at for key, (_, at) in self._stored.items()}
        self._changed: set[Any] = set()
        self._live: LiveMap | None = None

    def get(self) -> LiveMap:
        """Returns the map."""
        if self._live is None:
            copied = self._type.codec.copy
            made = LiveMap if self._type.ttl_ms is None else ExpiringMap
            self._live = made(self, {key: copied(plain) for key, (plain, _) in self._stored.items()})
        return self._live

    def set(self, value: Any) -> None:
        """Replaces all entries; each counts as accessed now."""
        live = self.get()
        if value is live:
            return
        if not isinstance(value, dict):
            raise TypeError(f"{self._type.field.name}: {value!r:.200} is not a dict")
        put = dict(value.items())
        live.clear()
        live.update(put)

    def clear(self) -> None:
        """Clears all entries."""
        self.get().clear()

    def copy_in(self, key: Any, value: Any) -> tuple[Any, Any]:
        """Returns the key and the value of an entry that the author sets, in their declared types."""
        of = self._type
        assert of.keys is not None  # noqa: S101  (for the type checker: a map has keys)
        kept = of.keys.copy(of.keys.dump(key))
        plain = of.dump(value)
        self._at[kept] = self._clock.now
        self._changed.add(kept)
        return kept, of.codec.copy(plain)

    def record_removal(self, key: Any) -> None:
        """Records that an entry is removed."""
        self._at.pop(key, None)
        self._changed.add(key)

    def look_at(self, live: LiveMap, key: Any) -> None:
        """Removes an expired entry, if expired entries are hidden."""
        at = self._at.get(key)
        if at is not None and self._type.hides and self._type.is_expired(at, self._clock.now):
            dict.__delitem__(live, key)
            self.record_removal(key)

    def look_at_all(self, live: LiveMap) -> None:
        """Removes all expired entries, if expired entries are hidden."""
        if self._type.hides and self._type.ttl_ms is not None:
            for key in list(self._at):
                self.look_at(live, key)

    def record_read(self, live: LiveMap, key: Any) -> None:
        """Records a read of an entry: renews it if a read is an access, and removes it if it has expired."""
        now, of = self._clock.now, self._type
        at = self._at[key]
        if of.is_expired(at, now):
            dict.__delitem__(live, key)
            self.record_removal(key)
        elif of.renews and at != now:
            self._at[key] = now
            self._changed.add(key)

    def settle(self) -> bool:
        """See `Cell`."""
        of, now = self._type, self._clock.now
        if of.hides and of.ttl_ms is not None and any(of.is_expired(at, now) for at in self._at.values()):
            self.look_at_all(self.get())
        if self._live is not None and of.codec.changeable:
            for key, value in dict.items(self._live):
                stored = self._stored.get(key)
                if key not in self._changed and stored is not None and of.dump(value) != stored[0]:
                    self._at[key] = now
                    self._changed.add(key)
        if not self._changed:
            return False
        # An entry that was added and removed within the batch leaves no trace.
        self._changed = {key for key in self._changed if key in self._at or key in self._stored}
        return bool(self._changed)

    @property
    def is_present(self) -> bool:
        """See `Cell`."""
        return bool(self._at)

    @property
    def length(self) -> int:
        """Returns the number of entries; valid after `settle`."""
        return len(self._at)

    @property
    def size(self) -> int:
        """See `Cell`."""
        if self._live is None or self._type.codec.size is None:
            plain = self._type.codec.bytes_of
            values = sum(plain(p) for p, _ in self._stored.values()) if self._live is None else 8 * len(self._at)
        else:
            values = sum(self._type.codec.bytes_of(self._type.dump(v)) for v in dict.values(self._live))
        keys = self._type.keys
        return values + (0 if keys is None else sum(keys.bytes_of(self._plain(key)) for key in self._at))

    def columns(self) -> tuple[Any, ...]:
        """Returns nothing: a map is not in the key's own row."""
        return (None, None, None)

    def entries(self) -> Iterable[Entry]:
        """Returns the changed entries, in order of their keys."""
        live, name = self._live, self._type.field.name
        for plain, key in sorted((self._plain(key), key) for key in self._changed):
            at = self._at.get(key)
            if at is None:
                yield (name, plain, None, None)
            else:
                assert live is not None  # noqa: S101  (only live keys have changes)
                yield (name, plain, self._type.dump(dict.__getitem__(live, key)), at)

    def _plain(self, key: Any) -> Any:
        """Returns a key in stored form."""
        keys = self._type.keys
        return key if keys is None or keys.load is None else keys.dump(key)
