"""The checkpoint store in a bucket: one conditional put per object (`If-None-Match: *`), so one writer wins.

After a lost reply it reads the object back, which contains a write id. This needs a store that keeps the first of two
objects with one name; `refuse_unconditional` checks it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePosixPath
from threading import Barrier

from tidemark.errors import NameRefusedError, StoreError, TidemarkError
from tidemark.ports import PutOutcome, UncertainPut, WriteIds
from tidemark.storage.read_ahead import ReadAheadStore
from tidemark.storage.s3_folder import S3Folder

_ASIDE = ".tidemark"
"""Next to the pipelines, whose names start differently."""
_PROBE = f"{_ASIDE}/conditional-put"
"""Object of a warehouse that is put once and stays: a second put must fail."""


@dataclass(frozen=True, slots=True)
class S3Store:
    """Objects of one pipeline in a folder of a bucket. Implements `ports.CheckpointStore`.

    Attributes:
        warehouse: the open folder that is the root of all pipelines.
        pipeline: name of the pipeline.
    """

    warehouse: S3Folder
    pipeline: str

    def put_if_absent(self, key: str, body: bytes) -> PutOutcome:
        """See `ports.CheckpointStore`."""
        return self.warehouse.put_if_absent(self._path(key), body)

    def get(self, key: str) -> bytes | None:
        """See `ports.CheckpointStore`."""
        return self.warehouse.get(self._path(key))

    def list(self, prefix: str) -> Sequence[str]:
        """See `ports.CheckpointStore`."""
        below = f"{self.pipeline}/"
        found = self.warehouse.list_sizes(f"{self._path(prefix)}/")
        return sorted(path.removeprefix(below) for path, _ in found)

    def stamps(self, prefix: str) -> Mapping[str, str]:
        """See `ports.caching.StampedStore`: ETags, which a listing has."""
        below = f"{self.pipeline}/"
        found = self.warehouse.objects(f"{self._path(prefix)}/")
        return {path.removeprefix(below): str(entry["ETag"]) for path, entry in found}

    def page(self, after: str, most: int, folder: str = "") -> tuple[Mapping[str, str], bool]:
        """See `shared_listing.PagedStore`.

        Raises:
            StoreError: it cannot be listed.
        """
        below = f"{self.pipeline}/"
        found, is_cut = self.warehouse.page(below + folder, below + after, most)
        return {path.removeprefix(below): str(entry["ETag"]) for path, entry in found}, is_cut

    def folders(self, prefix: str) -> Sequence[str]:
        """Returns the names of the folders directly below a folder, in order, without the keys in them.

        Raises:
            StoreError: it cannot be listed.
        """
        return self.warehouse.folders(f"{self._path(prefix)}/")

    def stamps_without(self, folders: Collection[str]) -> Mapping[str, str]:
        """Like `stamps`, for all keys of the pipeline but those in some folders, over which the listing jumps.

        Raises:
            StoreError: it cannot be listed.
        """
        found, below = dict[str, str](), f"{self.pipeline}/"
        start: str | None = None
        while True:
            for path, entry in self.warehouse.objects(below, start):
                key = path.removeprefix(below)
                if (folder := key.partition("/")[0]) in folders and "/" in key:
                    start = f"{below}{folder}0"  # the character after the slash
                    break
                found[key] = str(entry["ETag"])
            else:
                return found

    def _path(self, key: str) -> str:
        plain = key.removesuffix("/")
        parts = PurePosixPath(plain).parts
        unsafe = key.startswith("/") or any(p in ("..", ".") or "\0" in p for p in parts)
        if not parts or plain != "/".join(parts) or unsafe:
            raise NameRefusedError(f"object key refused: {key!r}", next="this is a defect of Tidemark: report it.")
        return f"{self.pipeline}/{plain}"


def store_of(warehouse: S3Folder, pipeline: str) -> ReadAheadStore:
    """Returns the store of a pipeline for a process that coordinates checkpoints."""
    return ReadAheadStore(
        S3Store(warehouse, pipeline), heads=warehouse.heads.setdefault((warehouse.place, pipeline), {})
    )


def refuse_unconditional(warehouse: S3Folder, ids: WriteIds) -> None:
    """Returns if the store keeps the first of two objects with one name; later calls need one request.

    A process calls it before its first plan. The object stays, so no right to delete is needed.

    Raises:
        NotFoundError: the bucket does not exist.
        StoreError: the store keeps the second object, does not answer, or denies access.
    """
    warehouse.reach()
    outcome = _put(warehouse, _PROBE, ids)
    if outcome is PutOutcome.WON and _put(warehouse, _PROBE, ids) is PutOutcome.WON:
        raise _ignored(warehouse, "a second put replaced the first")


def refuse_racing_winners(warehouse: S3Folder, ids: WriteIds, racers: int = 8, rounds: int = 8) -> None:
    """Checks the same, and that exactly one of several racing conditional puts wins; called by `doctor`.

    Raises:
        NotFoundError, StoreError: see `refuse_unconditional`; or a race did not have exactly one winner.
    """
    refuse_unconditional(warehouse, ids)
    for _ in range(rounds):
        name, start = f"{_ASIDE}/race-{ids()}", Barrier(racers)

        def race(name: str = name, start: Barrier = start) -> PutOutcome:
            start.wait()
            return _put(warehouse, name, ids)

        try:
            won = _raced(race, racers).count(PutOutcome.WON)
        finally:
            _forget(warehouse, name)
        if won != 1:
            raise _ignored(warehouse, f"{won} of {racers} writers won one name")


def _raced(race: Callable[[], PutOutcome], racers: int) -> list[PutOutcome]:
    with ThreadPoolExecutor(racers) as pool:
        return [found.result() for found in [pool.submit(race) for _ in range(racers)]]


def _put(warehouse: S3Folder, name: str, ids: WriteIds) -> PutOutcome:
    try:
        return warehouse.put_if_absent(name, ids().encode())
    except UncertainPut as error:
        raise StoreError(
            f"{warehouse.place.url}: the outcome of the write is unknown",
            safe="every completed checkpoint is intact; nothing was planned.",
            next="check the store's health, then run the same command again.",
        ) from error


def _forget(warehouse: S3Folder, name: str) -> None:
    try:
        warehouse.remove(name)
    except TidemarkError:
        return  # without the right to delete, it stays unused


def _ignored(warehouse: S3Folder, why: str) -> StoreError:
    return StoreError(
        f"{warehouse.place.url}: the store ignores If-None-Match ({why}), so two runs could both complete a checkpoint",
        safe="every completed checkpoint is intact; nothing was planned.",
        next="use a store, or a newer release of it, with conditional puts; check any proxy in front of it.",
    )
