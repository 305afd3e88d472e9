"""Checks whether restore points are whole before you rely on one: manifests, logs, files, stored queries, schemas.

Every restore point is checked on its own, so that one damaged object hides no other, and a damaged file is reported
with every restore point that it breaks. Nothing is changed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidemark.coordinator.records.objects import KINDS, decode
from tidemark.coordinator.records.schema_book import StoredSchemas
from tidemark.coordinator.records.tombstones import of_checkpoints
from tidemark.coordinator.recovery.restore_points import Commits, RestorePoints
from tidemark.errors import CorruptObjectError, DamagedError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.commits import Commit
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.segments import Segment
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.model.core import canonical
from tidemark.model.retention.findings import CheckedRestorePoint, Flaws, Inspected, Verified, damages_of
from tidemark.ports.caching import Cache, StampedStore

CheckSegment = Callable[[Segment, Mapping[int, Commit]], Flaws]
"""Returns the flaws of a segment, given the known commits of its table; answered by the tables."""
Tell = Callable[[str, int, int], None]
"""Called with the progress: the restore point that is being checked, its number, and the total."""
_FOLDERS = (
    "ids", "compactions", "deliveries", "delivery_failures", "erasures", "fates", "holds", "jobs", "plans", "reports",
    "retention", "savepoints", "skips", "stops", "sweeps", "swept", "timelines", "tombstones",
)  # fmt: skip


@dataclass(frozen=True)
class KnownRecords:
    """Records of a store that an earlier check has read whole, by key and stamp; a check adds those that it reads.

    A hint of this host: without it every record is read. One whose stamp has changed since is read again.

    Attributes:
        cache: keeps them.
        name: of the entry in the cache.
    """

    cache: Cache
    name: str

    def load(self) -> dict[str, str]:
        """Stamps by key; empty if there is no valid entry."""
        raw = self.cache.get(self.name)
        try:
            return {} if raw is None else dict(canonical.decode("known_records", self.name, raw)["stamps"])
        except (CorruptObjectError, LookupError, TypeError, ValueError):
            return {}

    def save(self, stamps: Mapping[str, str]) -> None:
        """Replaces them."""
        self.cache.put(self.name, canonical.encode("known_records", {"stamps": dict(stamps)}))


def tell_nobody(name: str, number: int, count: int) -> None:
    """Ignores the progress."""


@dataclass(frozen=True, kw_only=True)
class Verifier:
    """Checks the restore points of one pipeline.

    Attributes:
        points: the restore points.
        check: checks a segment.
        inspected: amount of data that `check` has inspected so far.
        known: records that need not be read again; None = all are read.
    """

    points: RestorePoints
    check: CheckSegment
    inspected: Callable[[], Inspected]
    known: KnownRecords | None = None

    def verify_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Refuses a checkpoint that is not whole. Called before a restore or a fork begins.

        Raises:
            DamagedError: lists each damaged file and every restore point that it breaks.
            StoreError: the store could not be read.
        """
        refuse_damaged(self.verify_one(self.points.of(checkpoint)))

    def verify_kept_rows(self, genesis: Genesis, checkpoint: Checkpoint) -> None:
        """Refuses a restore if rows are damaged that its sinks keep from the live timeline and the checkpoint lacks.

        Raises:
            DamagedError: lists each damaged file, and how to restore without these rows.
            StoreError: the store could not be read.
        """
        checked = {sink for ack in checkpoint.sealed.acks for sink in ack.sinks}
        kept = tuple(table.handle for table in genesis.sinks.values() if table.handle not in checked)
        if not kept:
            return
        verified = self.verify_one(CheckedRestorePoint(name="the sinks of the restored timeline", handles=kept))
        if verified.damages:
            raise DamagedError(
                f"damaged rows of a sink: {' | '.join(f'{d.where}: {d.why}' for d in verified.damages)}",
                safe="nothing was started or changed.",
                next="repeat with --restore-sinks, which takes the sinks back with the state; or restore the files.",
            )

    def verify_one(self, point: CheckedRestorePoint, on_progress: Tell = tell_nobody) -> Verified:
        """Checks one restore point. Only if it is damaged, the others are checked too, to list all that is broken.

        Raises:
            StoreError: the store could not be read.
        """
        on_progress(point.name, 1, 1)
        flaws = self._flaws(point, self.points.commits_of(point))
        seen = self.inspected()
        if not flaws:
            return Verified(points=(point.name,), inspected=seen, damages=())
        found = self._all(self.points.all(), on_progress)
        shared = [(name, {where: why for where, why in its.items() if where in flaws}) for name, its in found]
        return Verified(points=(point.name,), inspected=seen, damages=damages_of(shared))

    def verify_all(self, on_progress: Tell = tell_nobody) -> Verified:
        """Checks every restore point of the pipeline, and that every other object can be read.

        Raises:
            StoreError: the store could not be read.
        """
        points = self.points.all()
        found = self._all(points, on_progress)
        damages = {where for _, flaws in found for where in flaws}
        others = [(where, why) for where, why in (*self._bad_objects(), *self._bad_schemas()) if where not in damages]
        names = tuple(point.name for point in points)
        return Verified(points=names, inspected=self.inspected(), damages=damages_of(found, others))

    def _all(self, points: Sequence[CheckedRestorePoint], on_progress: Tell) -> list[tuple[str, Flaws]]:
        commits, found = self.points.commits(), []
        for number, point in enumerate(points, 1):
            on_progress(point.name, number, len(points))
            found.append((point.name, self._flaws(point, commits)))
        return found

    def _flaws(self, point: CheckedRestorePoint, commits: Commits) -> Flaws:
        flaws = dict(point.flaws)
        for segment in (s for handle in point.handles for s in handle):
            flaws |= self.check(segment, commits.get(segment.path, {}))
        return flaws

    def _bad_objects(self) -> Iterator[tuple[str, str]]:
        objects = self.points.objects
        gone = {t.place for t in of_checkpoints(objects).values() if t.given_up and t.confirmed}
        known = {} if self.known is None else self.known.load()
        stamps = self._stamps()
        whole = {key: stamp for key, stamp in stamps.items() if stamp and known.get(key) == stamp}
        for key in (key for key in stamps if key not in whole):
            if key.startswith("timelines/") and keys.slot_key(*keys.place_of(key)) in gone:
                continue
            raw = objects.store.get(key) or b""
            try:
                kind = canonical.kind_of(key, raw)
                # For a kind that this release does not know, only the checksum can be verified.
                decode(kind, key, raw) if kind in KINDS.values() else canonical.decode(kind, key, raw)
                whole[key] = stamps[key]
            except CorruptObjectError as error:
                yield self.points.where(key), error.what
        if self.known is not None and whole != known:
            self.known.save(whole)

    def _bad_schemas(self) -> Iterator[tuple[str, str]]:
        """Stored schemas that no checked restore point needs: a later checkpoint may decode by them."""
        for registry, ids in StoredSchemas(self.points.objects).all().items():
            for id in ids:
                yield from self.points.schema_flaws(registry, id).items()

    def _stamps(self) -> dict[str, str]:
        """Every record with its stamp; with an empty one if all have to be read."""
        objects = self.points.objects
        if self.known is None or not isinstance(objects.store, StampedStore):
            return {key: "" for folder in _FOLDERS for key in objects.list(f"{folder}/")}
        return {key: stamp for folder in _FOLDERS for key, stamp in objects.store.stamps(f"{folder}/").items()}


def refuse_damaged(verified: Verified) -> None:
    """Refuses damage.

    Raises:
        DamagedError: lists each damaged file and every restore point that it breaks.
    """
    if not verified.damages:
        return
    damages = [f"{d.where}: {d.why}; breaks {', '.join(d.breaks) or 'no restore point'}" for d in verified.damages]
    raise DamagedError(
        f"damaged: {' | '.join(damages)}",
        safe="nothing was started or changed; restore points that are not listed here are whole.",
        next="restore these files from a backup of the warehouse, or go back to a restore point that is whole.",
    )
