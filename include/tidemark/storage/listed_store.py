"""A store in a bucket, as one answer sees it: its records are listed once, and none is read that was read before.

A page polls every few seconds, and each of its answers follows the same few records. Over HTTP that takes a request
per record and per look at a slot that is still free.

Only answers that decide nothing may use it (adr/0033). They see the moment of the listing: a key that it lacks counts
as free, and the key behind the newest one is not probed. A body is remembered under the ETag that the listing gives,
so a warehouse that was created again under the same keys is read again.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock

from tidemark.ports import PutOutcome
from tidemark.storage.s3_store import S3Store

UNLISTED = frozenset({"dead_letters", "plans", "scratch", "sinks", "state"})
"""Folders with a file per checkpoint or per run: the listing leaves them out, and their objects are read directly."""
_MOST_BYTES = 64 * 2**20


class ReadBodies:
    """Bodies by key and ETag, the most recently used ones. Thread-safe.

    Args:
        most: their bytes at most.
    """

    def __init__(self, most: int = _MOST_BYTES) -> None:
        self._most, self._held, self._lock = most, 0, Lock()
        self._bodies: OrderedDict[tuple[str, str], bytes] = OrderedDict()

    def get(self, key: str, stamp: str) -> bytes | None:
        """The body of a key that had this ETag; None if it was not read, or was dropped since."""
        with self._lock:
            found = self._bodies.get((key, stamp))
            if found is not None:
                self._bodies.move_to_end((key, stamp))
            return found

    def put(self, key: str, stamp: str, body: bytes) -> None:
        """Remembers a body, and drops those that were not used for the longest time."""
        with self._lock:
            self._held += len(body) - len(self._bodies.pop((key, stamp), b""))
            self._bodies[key, stamp] = body
            while self._held > self._most and self._bodies:
                self._held -= len(self._bodies.popitem(last=False)[1])


@dataclass
class ListedStore:
    """The store for one answer. Implements `ports.CheckpointStore`; only one thread may use it.

    Attributes:
        store: the store itself.
        bodies: what earlier answers have read.
    """

    store: S3Store
    bodies: ReadBodies
    _stamps: Mapping[str, str] | None = field(default=None, init=False)

    def put_if_absent(self, key: str, body: bytes) -> PutOutcome:
        """See `ports.CheckpointStore`. What follows sees the store as it is then."""
        self._stamps = None
        return self.store.put_if_absent(key, body)

    def get(self, key: str) -> bytes | None:
        """See `ports.CheckpointStore`; None for a key that the listing lacks."""
        if _is_unlisted(key):
            return self.store.get(key)
        stamp = self._listed().get(key)
        if stamp is None:
            return None
        found = self.bodies.get(key, stamp)
        if found is None:
            found = self.store.get(key)
            if found is not None:
                self.bodies.put(key, stamp, found)
        return found

    def list(self, prefix: str) -> Sequence[str]:
        """See `ports.CheckpointStore`."""
        if _is_unlisted(prefix):
            return self.store.list(prefix)
        below = prefix if prefix.endswith("/") else f"{prefix}/"
        return [key for key in self._listed() if key.startswith(below)]

    def stamps(self, prefix: str) -> Mapping[str, str]:
        """See `ports.caching.StampedStore`; as fresh as the listing."""
        if _is_unlisted(prefix):
            return self.store.stamps(prefix)
        return {key: stamp for key, stamp in self._listed().items() if key.startswith(prefix)}

    def _listed(self) -> Mapping[str, str]:
        if self._stamps is None:
            self._stamps = dict(sorted(self.store.stamps_without(UNLISTED).items()))
        return self._stamps


def _is_unlisted(key: str) -> bool:
    return key.partition("/")[0] in UNLISTED
