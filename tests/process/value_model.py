"""Brute force: one plain dict per key, moved record by record. No code of the product."""

from dataclasses import dataclass, field
from typing import Any

TTL = 3_600_000
"""Of every field that has one, in milliseconds."""


@dataclass
class Key:
    """What is known of one key: values and entries as (value, access time), a list of them."""

    value: tuple[int, int] | None = None
    kept: tuple[int, int] | None = None
    items: list[tuple[int, int]] = field(default_factory=list)
    entries: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Rules:
    """The ttl of `value`, `items` and `entries`; `kept` has none."""

    renews: bool
    hides: bool


def expired(at: int, now: int) -> bool:
    return at + TTL <= now


class Model:
    """All keys; `say` collects what the author's function would observe."""

    def __init__(self, rules: Rules) -> None:
        self.rules, self.keys, self.said = rules, dict[str, Key](), list[tuple[Any, ...]]()

    def step(self, name: str, now: int, act: str, x: int) -> None:
        """One record."""
        key = self.keys.setdefault(name, Key())
        getattr(self, f"_{act}")(key, now, x)

    def _set(self, key: Key, now: int, x: int) -> None:
        key.value = (x, now)
        key.kept = (x, now)

    def _get(self, key: Key, now: int, x: int) -> None:
        seen = -1
        if key.value is not None:
            value, at = key.value
            if not expired(at, now):
                seen = value
                if self.rules.renews:
                    key.value = (value, now)
            else:
                seen = -1 if self.rules.hides else value
                key.value = None
        self.said.append(("get", seen, -1 if key.kept is None else key.kept[0]))

    def _add(self, key: Key, now: int, x: int) -> None:
        self._read_items(key, now)
        key.items.append((x, now))

    def _show(self, key: Key, now: int, x: int) -> None:
        self.said.append(("show", self._read_items(key, now)))

    def _drop(self, key: Key, now: int, x: int) -> None:
        """Removes the first element, if there is one."""
        seen = self._read_items(key, now)
        if seen:
            # With expired elements handed out this once, the first of them is what goes.
            if self._handed:
                self._handed.pop(0) if self._first_handed else key.items.pop(0)
            else:
                key.items.pop(0)

    def _read_items(self, key: Key, now: int) -> list[int]:
        old = [v for v, at in key.items if expired(at, now)]
        order = [(v, expired(at, now)) for v, at in key.items]
        key.items = [(v, now if self.rules.renews else at) for v, at in key.items if not expired(at, now)]
        self._handed = [] if self.rules.hides else old
        self._first_handed = bool(order) and order[0][1] and not self.rules.hides
        return [v for v, gone in order if not (gone and self.rules.hides)]

    def _put(self, key: Key, now: int, x: int) -> None:
        key.entries[str(x % 3)] = (x, now)

    def _look(self, key: Key, now: int, x: int) -> None:
        name = str(x % 3)
        if name not in key.entries:
            self.said.append(("look", -1))
            return
        value, at = key.entries[name]
        if expired(at, now):
            del key.entries[name]
            self.said.append(("look", -1 if self.rules.hides else value))
            return
        if self.rules.renews:
            key.entries[name] = (value, now)
        self.said.append(("look", value))

    def _forget(self, key: Key, now: int, x: int) -> None:
        key.entries.pop(str(x % 3), None)

    def _all(self, key: Key, now: int, x: int) -> None:
        seen = {k: v for k, (v, at) in key.entries.items() if not (expired(at, now) and self.rules.hides)}
        key.entries = {
            k: (v, now if self.rules.renews else at) for k, (v, at) in key.entries.items() if not expired(at, now)
        }
        self.said.append(("all", seen))

    def _clear(self, key: Key, now: int, x: int) -> None:
        key.value = key.kept = None
        key.items, key.entries = [], {}

    def seen(self, now: int) -> dict[str, dict[str, Any]]:
        """What a reader sees of every live key at a time."""

        def gone(at: int) -> bool:
            return self.rules.hides and expired(at, now)

        found = {}
        for name, key in self.keys.items():
            value = None if key.value is None or gone(key.value[1]) else key.value[0]
            items = [v for v, at in key.items if not gone(at)]
            entries = {k: v for k, (v, at) in key.entries.items() if not gone(at)}
            kept = None if key.kept is None else key.kept[0]
            if value is not None or kept is not None or items or entries:
                found[name] = {"value": value, "kept": kept, "items": items, "entries": entries}
        return found
