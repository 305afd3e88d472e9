"""A store in a bucket, as one answer sees it: its records are listed once, and none is read that was read before.

A page polls every few seconds, and each of its answers follows the same few records. Over HTTP that takes a request
per record and per look at a slot that is still free.

Only answers that decide nothing may use it (adr/0033). They see the moment of the listing: a key that it lacks counts
as free, and the key behind the newest one is not probed. A body is remembered under the ETag that the listing gives,
so a warehouse that was created again under the same keys is read again.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock

from tidemark.ports import PutOutcome
from tidemark.storage.s3_store import S3Store

UNLISTED = frozenset({"dead_letters", "plans", "scratch", "sinks", "state"})
"""Folders with a file per checkpoint or per run: the listing leaves them out, and their objects are read directly."""
_MOST_BYTES = 64 * 2**20
_AT_ONCE = 8
"""Reads at a time, once records of a folder are read one after the other."""


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
        unlisted: folders that the listing leaves out.
    """

    store: S3Store
    bodies: ReadBodies
    unlisted: Collection[str] = UNLISTED
    _stamps: Mapping[str, str] | None = field(default=None, init=False)
    _keys: Sequence[str] = field(default=(), init=False)
    _last: dict[str, str] = field(default_factory=dict, init=False)
    """The last key of each folder that was read."""

    def put_if_absent(self, key: str, body: bytes) -> PutOutcome:
        """See `ports.CheckpointStore`. What follows sees the store as it is then."""
        self._stamps = None
        return self.store.put_if_absent(key, body)

    def get(self, key: str) -> bytes | None:
        """See `ports.CheckpointStore`; None for a key that the listing lacks."""
        if self._is_unlisted(key):
            return self.store.get(key)
        stamp = self._listed().get(key)
        if stamp is None:
            return None
        found = self.bodies.get(key, stamp)
        return self._read(key) if found is None else found

    def list(self, prefix: str) -> Sequence[str]:
        """See `ports.CheckpointStore`."""
        if self._is_unlisted(prefix):
            return self.store.list(prefix)
        below = prefix if prefix.endswith("/") else f"{prefix}/"
        return [key for key in self._listed() if key.startswith(below)]

    def stamps(self, prefix: str) -> Mapping[str, str]:
        """See `ports.caching.StampedStore`; as fresh as the listing."""
        if self._is_unlisted(prefix):
            return self.store.stamps(prefix)
        return {key: stamp for key, stamp in self._listed().items() if key.startswith(prefix)}

    def _listed(self) -> Mapping[str, str]:
        if self._stamps is None:
            self._stamps = dict(sorted(self.store.stamps_without(self.unlisted).items()))
            self._keys = list(self._stamps)
        return self._stamps

    def _read(self, key: str) -> bytes | None:
        """Reads a record; if the one before it was the last that was read, those that follow it as well."""
        stamps, at, folder = self._listed(), bisect_left(self._keys, key), key.partition("/")[0]
        follows = at > 0 and self._keys[at - 1] == self._last.get(folder)
        near = [k for k in self._keys[at : at + _AT_ONCE if follows else at + 1] if k.startswith(f"{folder}/")]
        wanted = [key, *(k for k in near[1:] if self.bodies.get(k, stamps[k]) is None)]
        with ThreadPoolExecutor(len(wanted)) as pool:
            found = list(pool.map(self.store.get, wanted))
        for name, body in zip(wanted, found, strict=True):
            if body is not None:
                self.bodies.put(name, stamps[name], body)
        self._last[folder] = near[-1]
        return found[0]

    def _is_unlisted(self, key: str) -> bool:
        return key.partition("/")[0] in self.unlisted
