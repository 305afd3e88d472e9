"""The checkpoint store in a dict, and a wrapper that loses replies, refuses, and lists what is stale."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from threading import Lock
from zlib import crc32

from tidemark.errors import StoreError
from tidemark.ports import CheckpointStore, PutOutcome, UncertainPut

_PUTTING = Lock()
"""One for all instances, because several may share their objects."""


class Fault(Enum):
    """What may befall one call of a store."""

    LOST_REPLY = "lost_reply"
    """The put happens, its reply does not arrive."""
    LOST_REQUEST = "lost_request"
    """The put does not happen, and nobody can tell."""
    REFUSED = "refused"
    """The call fails, and certainly did nothing."""
    STALE = "stale"
    """A listing misses its newest key."""


@dataclass
class MemoryStore:
    """The twin of every `CheckpointStore`; `objects` may be shared by several instances, as a disk is."""

    objects: dict[str, bytes] = field(default_factory=dict)

    def put_if_absent(self, key: str, body: bytes) -> PutOutcome:
        """See `ports.CheckpointStore`."""
        with _PUTTING:
            if key in self.objects:
                return PutOutcome.LOST
            self.objects[key] = body
            return PutOutcome.WON

    def get(self, key: str) -> bytes | None:
        """See `ports.CheckpointStore`."""
        return self.objects.get(key)

    def list(self, prefix: str) -> Sequence[str]:
        """See `ports.CheckpointStore`."""
        return sorted([key for key in tuple(self.objects) if key.startswith(prefix)])

    def stamps(self, prefix: str) -> Mapping[str, str]:
        """See `ports.caching.StampedStore`."""
        return {key: f"{crc32(self.objects[key])}" for key in MemoryStore.list(self, prefix)}


@dataclass(frozen=True)
class FaultyStore:
    """A store whose calls fail as `choose` says.

    Attributes:
        inner: the store that does the work.
        choose: called with the operation (`put`, `get`, `list`) and the key or prefix; None = no fault.
    """

    inner: CheckpointStore
    choose: Callable[[str, str], Fault | None]

    def put_if_absent(self, key: str, body: bytes) -> PutOutcome:
        """See `ports.CheckpointStore`."""
        fault = self.choose("put", key)
        if fault is Fault.REFUSED:
            raise _refused(key)
        if fault is Fault.LOST_REQUEST:
            raise UncertainPut(key)
        outcome = self.inner.put_if_absent(key, body)
        if fault is Fault.LOST_REPLY:
            raise UncertainPut(key)
        return outcome

    def get(self, key: str) -> bytes | None:
        """See `ports.CheckpointStore`."""
        if self.choose("get", key) is Fault.REFUSED:
            raise _refused(key)
        return self.inner.get(key)

    def list(self, prefix: str) -> Sequence[str]:
        """See `ports.CheckpointStore`."""
        found = self.inner.list(prefix)
        return found[:-1] if self.choose("list", prefix) is Fault.STALE else found


def _refused(key: str) -> StoreError:
    return StoreError(f"the store refused {key}", next="run the same command again.")
