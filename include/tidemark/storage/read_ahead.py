"""A store that makes reads in one go that would follow each other: over HTTP, ten reads in a row take ten round trips.

A caller that knows which keys and folders it will read says so with `ahead`. They are read at once, and its later
reads in the block are answered from that. What this process writes ends it: a read is never answered from before this
process's own last put, so the order of a write and the reads behind it stays as the code has it (adr/0068). A block may
except its first puts from that (adr/0071): their order with the reads is open then, and the block's author has to show
that each order is right.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tidemark.errors import StoreError
from tidemark.ports import CheckpointStore, PutOutcome
from tidemark.ports.caching import Reading, StampedStore

T = TypeVar("T")

_AT_ONCE = 8
AT_START, AT_NEED = 1, 0
"""Values of `at_once` for schedules of one thread: reads are made as early, or as late, as a block allows."""


@dataclass
class ReadAheadStore:
    """Implements `ports.CheckpointStore` and `ports.caching.ReadsAhead`; only one thread may use it.

    Attributes:
        store: the store itself, which may be read from several threads.
        at_once: reads at a time; with `AT_START` they are made in this thread, in the given order; with `AT_NEED` also,
            but those that nothing waits for are made when their answer is needed.
        heads: see `ports.caching.ReadsAhead`; the stores of a process share them.

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
    heads: dict[str, int] = field(default_factory=dict)
    _bodies: dict[str, Reading[bytes | None]] = field(default_factory=dict, init=False)
    _listed: dict[str, Reading[Sequence[str]]] = field(default_factory=dict, init=False)
    _puts: int = field(default=0, init=False)
    _excepted: int = field(default=0, init=False)
    _of_block: Sequence[Reading[Any]] = field(default=(), init=False)
    """The reads of the innermost block, which outlive the puts that it excepts; those of blocks around it do not."""

    def put_if_absent(self, key: str, body: bytes) -> PutOutcome:
        """See `ports.CheckpointStore`. What follows is read again, unless the block excepts this put."""
        self._puts += 1
        if self._excepted:
            self._excepted -= 1
            self._bodies = {name: found for name, found in self._bodies.items() if found in self._of_block}
            self._listed = {name: found for name, found in self._listed.items() if found in self._of_block}
        else:
            self._forget()
        return self.store.put_if_absent(key, body)

    def get(self, key: str) -> bytes | None:
        """See `ports.CheckpointStore`; as of the beginning of the block that named the key, if any did."""
        return _answer(self._bodies, key, self.store.get)

    def list(self, prefix: str) -> Sequence[str]:
        """See `ports.CheckpointStore`; as of the beginning of the block that named the folder, if any did."""
        return _answer(self._listed, prefix, self.store.list)

    def stamps(self, prefix: str) -> Mapping[str, str]:
        """See `ports.caching.StampedStore`."""
        assert isinstance(self.store, StampedStore)  # noqa: S101  (for the type checker: retention uses no other)
        return self.store.stamps(prefix)

    def start(self, key: str) -> Reading[bytes | None]:
        """See `ports.caching.ReadsAhead`."""
        (reading,) = self._started([(self.store.get, key)])
        return reading

    @contextmanager
    def ahead(
        self, keys: Collection[str], folders: Collection[str] = (), *, over_puts: int = 0
    ) -> Iterator[Callable[[], None]]:
        """See `ports.caching.ReadsAhead`."""
        # All are read, even those that a block around this one has read: older answers must not count here.
        names, listed = list(dict.fromkeys(keys)), list(dict.fromkeys(folders))
        puts, self._excepted = self._puts, over_puts
        found = self._started([*((self.store.list, name) for name in listed), *((self.store.get, n) for n in names)])
        self._of_block = found
        if not over_puts:
            for reading in found:
                _wait(reading)
        if puts == self._puts:  # or a second thread, which should not be there, has put something meanwhile
            self._listed |= dict(zip(listed, found, strict=False))
            self._bodies |= dict(zip(names, found[len(listed) :], strict=True))
        try:
            yield self._forget
        finally:
            self._excepted, self._of_block = 0, ()
            for name in listed:
                self._listed.pop(name, None)
            for name in names:
                self._bodies.pop(name, None)

    def _started(self, reads: Sequence[tuple[Callable[[str], Any], str]]) -> Sequence[Reading[Any]]:
        """Starts reads, as many at a time as the store may make."""
        if self.at_once in (AT_START, AT_NEED):
            found = [_OwnRead(*read) for read in reads]
            for reading in found if self.at_once == AT_START else ():
                _wait(reading)
            return found
        if not reads:
            return ()
        pool = ThreadPoolExecutor(min(self.at_once, len(reads)))
        try:
            return [pool.submit(read, name) for read, name in reads]
        finally:
            pool.shutdown(wait=False)

    def _forget(self) -> None:
        self._excepted = 0
        self._bodies.clear()
        self._listed.clear()


@dataclass(eq=False)
class _OwnRead:
    """A read that this thread makes when its answer is needed first."""

    read: Callable[[str], Any]
    name: str
    _made: Future[Any] = field(default_factory=Future)

    def done(self) -> bool:
        return self._made.done()

    def result(self) -> Any:  # noqa: ANN401
        if not self._made.done():
            try:
                self._made.set_result(self.read(self.name))
            except StoreError as error:
                self._made.set_exception(error)
        return self._made.result()


def _answer(known: Mapping[str, Reading[T]], name: str, read: Callable[[str], T]) -> T:
    """Returns the answer that was read ahead; a read that failed is made again, where its error belongs."""
    if name not in known:
        return read(name)
    try:
        return known[name].result()
    except StoreError:
        return read(name)


def _wait(reading: Reading[Any]) -> None:
    """Waits until a read has been answered; its error is left to the reader."""
    try:
        reading.result()
    except StoreError:
        return
