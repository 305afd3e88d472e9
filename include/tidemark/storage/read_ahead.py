"""A store that makes reads in one go that would follow each other: over HTTP, ten reads in a row take ten round trips.

A caller that knows which keys and folders it will read says so with `ahead`. They are read at once, and its later
reads in the block are answered from that. What this process writes ends it: a read is never answered from before this
process's own last put, so the order of a write and the reads behind it stays as the code has it (adr/0068).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tidemark.errors import StoreError
from tidemark.ports import CheckpointStore, PutOutcome
from tidemark.ports.caching import StampedStore

_AT_ONCE = 8


@dataclass
class ReadAheadStore:
    """Implements `ports.CheckpointStore` and `ports.caching.ReadsAhead`; only one thread may use it.

    Attributes:
        store: the store itself, which may be read from several threads.
        at_once: reads at a time; with 1 they are made in this thread, in the given order.

    Example:
        >>> from tidemark.testing.twin.memory import MemoryStore
        >>> there = MemoryStore({"ids/1.json": b"one"})
        >>> store = ReadAheadStore(there)
        >>> with store.ahead(["ids/1.json", "ids/2.json"], ["ids/"]):
        ...     there.objects["ids/2.json"] = b"two"
        ...     store.list("ids/"), store.get("ids/2.json")
        (['ids/1.json'], None)
        >>> store.get("ids/2.json")
        b'two'
    """

    store: CheckpointStore
    at_once: int = _AT_ONCE
    _bodies: dict[str, bytes | None] = field(default_factory=dict, init=False)
    _listed: dict[str, Sequence[str]] = field(default_factory=dict, init=False)
    _puts: int = field(default=0, init=False)

    def put_if_absent(self, key: str, body: bytes) -> PutOutcome:
        """See `ports.CheckpointStore`. What follows is read again."""
        self._puts += 1
        self._forget()
        return self.store.put_if_absent(key, body)

    def get(self, key: str) -> bytes | None:
        """See `ports.CheckpointStore`; as of the beginning of the block that named the key, if any did."""
        return self._bodies[key] if key in self._bodies else self.store.get(key)

    def list(self, prefix: str) -> Sequence[str]:
        """See `ports.CheckpointStore`; as of the beginning of the block that named the folder, if any did."""
        return self._listed[prefix] if prefix in self._listed else self.store.list(prefix)

    def stamps(self, prefix: str) -> Mapping[str, str]:
        """See `ports.caching.StampedStore`."""
        assert isinstance(self.store, StampedStore)  # noqa: S101  (for the type checker: retention uses no other)
        return self.store.stamps(prefix)

    @contextmanager
    def ahead(self, keys: Collection[str], folders: Collection[str] = ()) -> Iterator[Callable[[], None]]:
        """See `ports.caching.ReadsAhead`."""
        # All are read, even those that a block around this one has read: older answers must not count here.
        reads = [(self.store.list, folder) for folder in dict.fromkeys(folders)]
        bodies = [(self.store.get, key) for key in dict.fromkeys(keys)]
        puts = self._puts
        found = _read_all([*reads, *bodies], self.at_once)
        if puts == self._puts:  # or a second thread, which should not be there, has put something meanwhile
            self._listed |= {name: listed[0] for (_, name), listed in zip(reads, found, strict=False) if listed}
            self._bodies |= {name: body[0] for (_, name), body in zip(bodies, found[len(reads) :], strict=True) if body}
        try:
            yield self._forget
        finally:
            for _, name in reads:
                self._listed.pop(name, None)
            for _, name in bodies:
                self._bodies.pop(name, None)

    def _forget(self) -> None:
        self._bodies.clear()
        self._listed.clear()


def _try(read: Callable[[str], Any], name: str) -> tuple[Any] | None:
    """Reads one thing; what fails is left to the reader, who gets the error where it belongs."""
    try:
        return (read(name),)
    except StoreError:
        return None


def _read_all(reads: Sequence[tuple[Callable[[str], Any], str]], at_once: int) -> list[tuple[Any] | None]:
    """Returns each answer in a tuple, or None where it failed."""
    if at_once == 1 or len(reads) < 2:
        return [_try(*read) for read in reads]
    with ThreadPoolExecutor(min(at_once, len(reads))) as pool:
        return list(pool.map(lambda read: _try(*read), reads))
