"""A store in a bucket, as one answer sees it: its records are listed once, and none is read that was read before.

A page polls every few seconds, and each of its answers follows the same few records. Over HTTP that takes a request
per record and per look at a slot that is still free. Answers of pages share the listing (`shared_listing`); a check
lists all records itself.

Only answers that decide nothing may use it (adr/0033). They see the moment of the listing: a key that it lacks counts
as free, and the key behind the newest one is not probed. A body is remembered under the ETag that the listing gives,
so a warehouse that was created again under the same keys is read again.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock

from tidemark.ports import PutOutcome
from tidemark.storage.key_survey import folder_of
from tidemark.storage.s3_store import S3Store
from tidemark.storage.shared_listing import RecordSnapshot, SharedListing, order_records

UNLISTED = frozenset({"dead_letters", "plans", "scratch", "sinks", "state"})
"""Folders with a file per checkpoint or per run: the listing leaves them out, and their objects are read directly."""
CROSSED = frozenset({"scratch"})
"""Those of them that are empty while no command works on files: the listing of several answers crosses them."""
_FIRST = ("fates", "publications", "retention", "savepoints", "stops", "timelines")
"""Folders whose newest records most answers need, and the records with which timelines begin."""
_MOST_BYTES = 64 * 2**20
_AT_ONCE = 8
"""Reads at a time, once records of a folder are read one after the other."""
_AHEAD = 32
"""Reads at a time of records that an answer names."""


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
        listing: the listing that the answers of this process share; None = this answer lists all itself.
    """

    store: S3Store
    bodies: ReadBodies
    unlisted: Collection[str] = UNLISTED
    listing: SharedListing | None = None
    _seen: RecordSnapshot | None = field(default=None, init=False)
    _direct: dict[str, bytes | None] = field(default_factory=dict, init=False)
    """Objects of unlisted folders that were read ahead."""
    _last: dict[str, str] = field(default_factory=dict, init=False)
    """The last key of each folder that was read."""

    def put_if_absent(self, key: str, body: bytes) -> PutOutcome:
        """See `ports.CheckpointStore`. What follows sees the store as it is then."""
        self.renew()
        return self.store.put_if_absent(key, body)

    def get(self, key: str) -> bytes | None:
        """See `ports.CheckpointStore`; None for a key that the listing lacks."""
        if self._is_unlisted(key):
            return self._direct[key] if key in self._direct else self.store.get(key)
        stamp = self._listed(key).stamps.get(key)
        if stamp is None:
            return None
        found = self.bodies.get(key, stamp)
        return self._read(key) if found is None else found

    def list(self, prefix: str) -> Sequence[str]:
        """See `ports.CheckpointStore`."""
        if self._is_unlisted(prefix):
            return self.store.list(prefix)
        folder = prefix if prefix.endswith("/") else f"{prefix}/"
        return [*self._listed(folder).below(folder)]

    def newest(self, prefix: str) -> tuple[Mapping[str, str], bool]:
        """See `ports.caching.Prefetches`."""
        return (self.stamps(prefix), True) if self._is_unlisted(prefix) else self._listed().newest(prefix)

    def around(self, key: str) -> tuple[Sequence[str], bool, bool]:
        """See `ports.caching.Prefetches`."""
        return (self.list(folder_of(key)), True, True) if self._is_unlisted(key) else self._listed(key).around(key)

    def folders(self, prefix: str) -> Sequence[str]:
        """The names of the folders directly below a folder: of one that is not listed, without listing it."""
        if self._is_unlisted(prefix):
            return self.store.folders(prefix)
        # A folder whose middle is not listed is known by its first keys.
        return sorted({key.split("/")[prefix.count("/")] for key in self._listed().below(prefix)})

    def stamps(self, prefix: str) -> Mapping[str, str]:
        """See `ports.caching.StampedStore`; as fresh as the listing."""
        if self._is_unlisted(prefix):
            return self.store.stamps(prefix)
        seen = self._listed(prefix)
        return {key: seen.stamps[key] for key in seen.below(prefix)}

    def renew(self) -> None:
        """See `ports.caching.Prefetches`."""
        self._seen = None
        self._direct.clear()

    def list_ends(self) -> Iterator[str]:
        """The first and the last key of folders that most answers need, and the last ids."""
        yield from (key for name in _FIRST for key in self._listed().ends(f"{name}/"))
        yield from [*self._listed().newest("ids/")[0]][-2:]

    def prefetch(self, keys: Iterable[str]) -> None:
        """See `ports.caching.Prefetches`."""
        wanted = list(dict.fromkeys(keys))
        stamps = self._listed(*wanted).stamps
        listed = [k for k in wanted if (stamp := stamps.get(k)) is not None and self.bodies.get(k, stamp) is None]
        direct = [k for k in wanted if self._is_unlisted(k) and k not in self._direct]
        for key, body in self._fetch([*listed, *direct], _AHEAD):
            if key in stamps:
                self._remember(key, body)
            else:
                self._direct[key] = body

    def _listed(self, *prefixes: str) -> RecordSnapshot:
        """The listing, with all keys that begin with some prefixes."""
        if self._seen is None:
            if self.listing is None:
                self._seen = order_records(self.store.stamps_without(self.unlisted))
            else:
                self._seen = self.listing.snapshot()
        if self.listing is not None and self._seen.gaps:
            gaps = {gap for prefix in prefixes for gap in self._seen.gaps_of(prefix)}
            if gaps:
                self._seen = self.listing.fill(self._seen, gaps)
        return self._seen

    def _read(self, key: str) -> bytes | None:
        """Reads a record; if the one before it was the last that was read, those that follow it as well."""
        seen, folder = self._listed(), key.partition("/")[0]
        at = seen.place_of(key)
        follows = at > 0 and seen.keys[at - 1] == self._last.get(folder)
        near = [k for k in seen.keys[at : at + _AT_ONCE if follows else at + 1] if k.startswith(f"{folder}/")]
        wanted = [key, *(k for k in near[1:] if self.bodies.get(k, seen.stamps[k]) is None)]
        found = dict(self._fetch(wanted, _AT_ONCE))
        for name, body in found.items():
            self._remember(name, body)
        self._last[folder] = near[-1]
        return found[key]

    def _fetch(self, keys: Sequence[str], at_once: int) -> Iterator[tuple[str, bytes | None]]:
        if not keys:
            return
        with ThreadPoolExecutor(min(at_once, len(keys))) as pool:
            yield from zip(keys, pool.map(self.store.get, keys), strict=True)

    def _remember(self, key: str, body: bytes | None) -> None:
        if body is not None:
            self.bodies.put(key, self._listed().stamps[key], body)

    def _is_unlisted(self, key: str) -> bool:
        return key.partition("/")[0] in self.unlisted
