"""The index of manifests: each is read once, and what was read is kept for the next look, and the next process (E15).

It knows what never changes, and nothing else: manifests, tombstones and job records under their keys. Which of them
there are is listed at every look, so a revision, a tombstone, a closing that was put since is met. A key counts as
read only under the stamp that it was read with. Nothing is decided by what the index lacks: that is read. The file may
be lost, torn, or be another warehouse's; see adr/0017.
"""

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tidemark.coordinator.records.objects import Objects
from tidemark.coordinator.records.tombstones import newest_keys, standing, tombstones_of_checkpoints
from tidemark.errors import CorruptObjectError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import Closing, Genesis, JobRecord
from tidemark.model.retention.manifest_index_file import Indexed, Known, read_index, written_index
from tidemark.model.retention.manifest_lines import ManifestLine
from tidemark.model.retention.savepoint import TombstoneRecord
from tidemark.ports.caching import Cache

T = TypeVar("T")


@dataclass
class ManifestIndex:
    """What was read of one pipeline's store. Several threads may ask at once: they may read the same twice.

    Attributes:
        cache: where it is kept; None = in memory only.
        name: under which name.
    """

    cache: Cache | None = None
    name: str = "manifests.json"
    _held: Indexed | None = None
    _kept: Indexed = field(default_factory=Indexed)

    def entries(
        self, objects: Objects, gone: Set[str], damaged: Callable[[str, CorruptObjectError], None] | None = None
    ) -> list[ManifestLine | Genesis | Closing]:
        """What has taken the places of all timelines, the highest revision of each.

        Args:
            objects: the store.
            gone: keys of places that are left out, unread.
            damaged: told of each one that is damaged, by its key; it is left out then. Without it that is an error.

        Raises:
            CorruptObjectError: one that is not known yet is damaged.
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
        return standing({name: found[key][1] if key in found else None for name, key in newest.items()})

    def jobs(self, objects: Objects, stamps: Mapping[str, str]) -> list[JobRecord]:
        """The records of jobs under listed keys.

        Raises:
            CorruptObjectError, StoreError: as `entries`.
        """
        found = _read(self._known().jobs, stamps, lambda key: objects.read(JobRecord, key))
        self._held = replace(self._known(), jobs=found)
        return [record for _, record in found.values()]

    def save(self) -> None:
        """Keeps what was read, for the next process; does nothing where nothing was."""
        held = self._known().stamped()
        if self.cache is not None and held != self._kept:
            self.cache.put(self.name, written_index(held))
            self._kept = held

    def _known(self) -> Indexed:
        """What is known; read from the cache at the first call."""
        if self._held is None:
            raw = None if self.cache is None else self.cache.get(self.name)
            self._held = self._kept = Indexed() if raw is None else read_index(self.name, raw)
        return self._held


def stamps_of(objects: Objects, prefix: str) -> Mapping[str, str]:
    """A fresh listing with stamps; where the store knows none they are empty, and nothing is taken from an index."""
    # Not by `isinstance`: against a protocol it takes longer than the listing.
    stamps: Callable[[str], Mapping[str, str]] | None = getattr(objects.store, "stamps", None)
    return dict.fromkeys(objects.list(prefix), "") if stamps is None else stamps(prefix)


def _highest(stamps: Mapping[str, str], gone: Set[str]) -> Iterator[tuple[str, str]]:
    """Of each place that is not gone the key of its highest revision, with the stamp."""
    found: dict[tuple[str, int], tuple[int, str]] = {}
    for key in stamps:
        place = keys.place_of(key)
        if keys.slot_key(*place) not in gone:
            found[place] = max((keys.revision_of(key), key), found.get(place, (-1, "")))
    for _, key in found.values():
        yield key, stamps[key]


def _same(known: Known[T], key: str, stamp: str) -> T | None:
    """What was read under a key, if it is still what lies there."""
    at, held = known.get(key, ("", None))
    return held if stamp and at == stamp else None


def _read(known: Known[T], stamps: Mapping[str, str], read: Callable[[str], T | None]) -> dict[str, tuple[str, T]]:
    """What lies under listed keys; one that is gone is left out."""
    found: dict[str, tuple[str, T]] = {}
    for key, stamp in stamps.items():
        held = _same(known, key, stamp)
        made = read(key) if held is None else held
        if made is not None:
            found[key] = (stamp, made)
    return found
