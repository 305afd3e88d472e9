"""The ports of what is kept so that it is not read again: it may be lost at any time, and decides nothing."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable


class Cache(Protocol):
    """Bytes by name, outside the warehouse. Whoever reads them checks them: they may be old, or torn.

    Called by retention, for what it has read of objects that never change.
    """

    def get(self, name: str) -> bytes | None:
        """What was put last under a name, or None: never put, gone, or not to be read. Raises nothing."""

    def put(self, name: str, body: bytes) -> None:
        """Puts bytes in place of what was there. Where that fails, nothing of use is kept. Raises nothing."""


@runtime_checkable
class StampedStore(Protocol):
    """A `CheckpointStore` whose listing tells one object under a key from another one under the same key."""

    def stamps(self, prefix: str) -> Mapping[str, str]:
        """As `list`, which must be fresh, with a stamp for each key: it changes when somebody puts other bytes there.

        No object is ever edited; but a warehouse may be made anew, or put back from a backup, below an old index.

        Raises:
            StoreError: it cannot be listed.
        """
