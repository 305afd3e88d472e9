"""The ports of caches: their contents may be lost at any time, and nothing depends on them."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable


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
