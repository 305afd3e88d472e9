"""The ports of caches: their contents may be lost at any time, and nothing depends on them."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar, runtime_checkable

T_co = TypeVar("T_co", covariant=True)


class Cache(Protocol):
    """Bytes by name, outside the warehouse. Readers must check them: they may be old, or torn.

    Retention uses it for data that it has read from immutable objects.
    """

    def get(self, name: str) -> bytes | None:
        """Returns the last bytes put under a name, or None: never put, deleted, or unreadable. Raises nothing."""

    def put(self, name: str, body: bytes) -> None:
        """Replaces the bytes under a name. If that fails, nothing useful is kept. Raises nothing."""


@runtime_checkable
class StampedStore(Protocol):
    """A `CheckpointStore` whose listing distinguishes two objects that had the same key."""

    def stamps(self, prefix: str) -> Mapping[str, str]:
        """Lists keys like `list`, fresh, each with a stamp that changes if other bytes are put there.

        No object is ever edited, but a warehouse may be created again, or restored from a backup, under an old index.

        Raises:
            StoreError: it cannot be listed.
        """


class Reading(Protocol[T_co]):
    """A read that is under way."""

    def done(self) -> bool:
        """Whether it is answered."""

    def result(self) -> T_co:
        """Waits for the answer and returns it, or raises the error of the read."""


@runtime_checkable
class ReadsAhead(Protocol):
    """A `CheckpointStore` for which a round trip is long, so that it reads several objects at the same time.

    Attributes:
        heads: per timeline, the highest slot that this process has seen taken, to be read with the listing.
    """

    heads: dict[str, int]

    def ahead(
        self, keys: Collection[str], folders: Collection[str] = (), *, over_puts: int = 0
    ) -> AbstractContextManager[Callable[[], None]]:
        """Reads keys and listings now, in any order; reads of them in the block are answered from that.

        It ends with the block, with the next put of this store, before that is sent, or when the block calls the
        function that it gets. A read that fails here is made again when it is needed.

        Args:
            keys: the keys.
            folders: the listings.
            over_puts: the block's first puts that do not end it. If there are any, nothing waits for the reads before
                their answers are needed, so that they are under way with those puts: in any order with them.
        """

    def start(self, key: str) -> Reading[bytes | None]:
        """Starts a fresh read of a key, whatever was read ahead; the caller works while it is under way."""


@runtime_checkable
class Prefetches(Protocol):
    """A `CheckpointStore` for answers that decide nothing, which can read several objects at the same time."""

    def prefetch(self, keys: Iterable[str]) -> None:
        """Reads keys that will be read next, all but those that were read before; absent ones cost nothing.

        Raises:
            StoreError: one of them cannot be read.
        """

    def renew(self) -> None:
        """What follows sees the store as it is then."""

    def newest(self, prefix: str) -> tuple[Mapping[str, str], bool]:
        """The last keys below a folder with stamps, in order, at least one if there is any; and whether these are all.

        It does not list the middle of a long folder, as `list` does.

        Raises:
            StoreError: it cannot be listed.
        """

    def around(self, key: str) -> tuple[Sequence[str], bool, bool]:
        """Keys of the folder of a key on both sides of it, in order, without a gap; it may exist or not.

        It does not list the whole of a long folder, as `list` does.

        Returns:
            The keys, and whether they include the first and the last key of the folder.

        Raises:
            StoreError: it cannot be listed.
        """

    def folders(self, prefix: str) -> Sequence[str]:
        """The names of the folders directly below a folder, likewise.

        Raises:
            StoreError: it cannot be listed.
        """
