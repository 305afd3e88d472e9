"""The index of manifests: each manifest is read once and kept for later calls and for the next process.

The index holds only what never changes: manifests, tombstones and job records, by key. The keys are listed at every
call, so new revisions, tombstones and closings are found. A key counts as read only with the stamp that it was read
with. Nothing is decided by an entry that the index lacks: it is read instead. The file may be lost, torn, or belong to
another warehouse; see ADR 0017.
"""

from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tidemark.coordinator.records.objects import Objects
from tidemark.coordinator.records.tombstones import drop_withdrawn, newest_keys, tombstones_of_checkpoints
from tidemark.errors import CorruptObjectError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import Closing, Genesis, JobRecord
from tidemark.model.retention.manifest_index_file import Indexed, Known, read_index, written_index
from tidemark.model.retention.manifest_lines import ManifestLine
from tidemark.model.retention.savepoint import TombstoneRecord
from tidemark.ports.caching import Cache, Prefetches

T = TypeVar("T")


@dataclass
class ManifestIndex:
    """The indexed objects of one pipeline's store. Concurrent threads may read the same object twice.

    Attributes:
        cache: the cache that keeps the index; None = in memory only.
        name: name of the index in the cache.
    """

    cache: Cache | None = None
    name: str = "manifests.json"
    _held: Indexed | None = None
    _others: dict[str, str] = field(default_factory=dict)
    """Stamps of entries that `read_some` has read and that are no manifests, or damaged."""
    _kept: Indexed = field(default_factory=Indexed)

    def entries(
        self, objects: Objects, gone: Set[str], damaged: Callable[[str, CorruptObjectError], None] | None = None
    ) -> list[ManifestLine | Genesis | Closing]:
        """The highest revision of every entry in the slots of all timelines.

        Args:
            objects: the store.
            gone: keys of slots to omit without reading them.
            damaged: receives each damaged entry, by its key, which is then omitted. Without it, damage is an error.

        Raises:
            CorruptObjectError: an entry that is not in the index is damaged.
            StoreError: the store could not be read.
        """
        known, lines = self._known().manifests, dict[str, tuple[str, ManifestLine]]()
        found = list[ManifestLine | Genesis | Closing]()
        for key, stamp in _highest(stamps_of(objects, "timelines/"), gone):
            line = _same(known, key, stamp)
            if line is None:
                try:
                    entry = objects.entry(key)
                except CorruptObjectError as error:
                    if damaged is None:
                        raise
                    damaged(key, error)
                    continue
                if not isinstance(entry, Checkpoint):
                    found += [] if entry is None else [entry]
                    continue
                line = ManifestLine.of(entry)
            lines[key] = (stamp, line)
            found.append(line)
        self._held = replace(self._known(), manifests=lines)
        return found

    def read_some(self, objects: Objects, most: int) -> tuple[int, int]:
        """Reads at most `most` manifests that the index lacks, the newest first, so that `entries` need not.

        If it has none yet, it reads a quarter of that and lists only the newest, if it can: an answer is waited for.

        Returns:
            How many entries of timelines are read, and how many there are, without those of released checkpoints; at
            most so many, if only the newest are listed.

        Raises:
            StoreError: the store could not be read.
        """
        gone = {record.place for record in self.tombstones(objects).values() if record.confirmed}
        known = dict(self._known().manifests)
        is_first = not (known or self._others)
        stamps, others = _newest(objects) if is_first else (stamps_of(objects, "timelines/"), 0)
        listed = list(_highest(stamps, gone))
        wanted = [(k, at) for k, at in listed if at and _same(known, k, at) is None and self._others.get(k) != at]
        wanted.sort(key=lambda found: keys.place_of(found[0])[1], reverse=True)
        chosen = wanted[: max(1, most // 4) if is_first else most]
        if isinstance(objects.store, Prefetches):
            objects.store.prefetch([key for key, _ in chosen])
        for key, stamp in chosen:
            with suppress(CorruptObjectError):  # `entries` reports it
                entry = objects.entry(key)
                if isinstance(entry, Checkpoint):
                    known[key] = (stamp, ManifestLine.of(entry))
                    continue
            self._others[key] = stamp
        self._held = replace(self._known(), manifests=known)
        return len(listed) - len(wanted) + len(chosen), len(listed) + others

    def tombstones(self, objects: Objects) -> Mapping[str, TombstoneRecord]:
        """As `tombstones.of_checkpoints`.

        Raises:
            CorruptObjectError, StoreError: as `entries`.
        """
        stamps = stamps_of(objects, tombstones_of_checkpoints())
        newest = newest_keys(stamps)
        wanted = {key: stamps[key] for key in newest.values()}
        found = _read(self._known().tombstones, wanted, lambda key: objects.read(TombstoneRecord, key))
        self._held = replace(self._known(), tombstones=found)
        return drop_withdrawn({name: found[key][1] if key in found else None for name, key in newest.items()})

    def jobs(self, objects: Objects, stamps: Mapping[str, str]) -> list[JobRecord]:
        """The job records under listed keys.

        Raises:
            CorruptObjectError, StoreError: as in `entries`.
        """
        found = _read(self._known().jobs, stamps, lambda key: objects.read(JobRecord, key))
        self._held = replace(self._known(), jobs=found)
        return [record for _, record in found.values()]

    def save(self) -> None:
        """Saves the index for the next process; does nothing if nothing new was read."""
        held = self._known().drop_unstamped()
        if self.cache is not None and held != self._kept:
            self.cache.put(self.name, written_index(held))
            self._kept = held

    def _known(self) -> Indexed:
        """The index in memory; read from the cache at the first call."""
        if self._held is None:
            raw = None if self.cache is None else self.cache.get(self.name)
            self._held = self._kept = Indexed() if raw is None else read_index(self.name, raw)
        return self._held


def stamps_of(objects: Objects, prefix: str) -> Mapping[str, str]:
    """A fresh listing with stamps. If the store has no stamps, they are empty and nothing is taken from the index."""
    # Not by `isinstance`: with a protocol it takes longer than the listing.
    stamps: Callable[[str], Mapping[str, str]] | None = getattr(objects.store, "stamps", None)
    return dict.fromkeys(objects.list(prefix), "") if stamps is None else stamps(prefix)


def _newest(objects: Objects) -> tuple[Mapping[str, str], int]:
    """The newest entries of all timelines with stamps, and how many older ones there are at most."""
    if not isinstance(objects.store, Prefetches):
        return stamps_of(objects, "timelines/"), 0
    stamps, others = dict[str, str](), 0
    for name in objects.store.folders("timelines/"):
        found, is_all = objects.store.newest(f"timelines/{name}/")
        stamps |= found
        others += 0 if is_all else min(map(keys.number_of, found)) - 1
    return stamps, others


def _highest(stamps: Mapping[str, str], gone: Set[str]) -> Iterator[tuple[str, str]]:
    """Key and stamp of the highest revision in each slot that is not gone."""
    found: dict[tuple[str, int], tuple[int, str]] = {}
    for key in stamps:
        place = keys.place_of(key)
        if keys.slot_key(*place) not in gone:
            found[place] = max((keys.revision_of(key), key), found.get(place, (-1, "")))
    for _, key in found.values():
        yield key, stamps[key]


def _same(known: Known[T], key: str, stamp: str) -> T | None:
    """The indexed object of a key, if the object under the key is still the same."""
    at, held = known.get(key, ("", None))
    return held if stamp and at == stamp else None


def _read(known: Known[T], stamps: Mapping[str, str], read: Callable[[str], T | None]) -> dict[str, tuple[str, T]]:
    """The objects under listed keys; keys that no longer exist are omitted."""
    found: dict[str, tuple[str, T]] = {}
    for key, stamp in stamps.items():
        held = _same(known, key, stamp)
        made = read(key) if held is None else held
        if made is not None:
            found[key] = (stamp, made)
    return found
