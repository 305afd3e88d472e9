"""Files of a warehouse: their paths and hashes, and the checkpoint store and lock on a local disk.

The store writes a temporary file, fsyncs it, links it to the final name with `os.link`, and fsyncs the folder.

`os.link` fails if the name exists, atomically among all processes of a host. A linked object is complete, because its
bytes were durable before it had a name. This does not hold for a folder that several hosts share.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate, takewhile
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias

from tidemark.errors import BusyError, NameRefusedError, StoreError
from tidemark.model.core.names import checked_name
from tidemark.ports import PutOutcome
from tidemark.storage.bucket_path import BucketPath

if TYPE_CHECKING:
    from tidemark.storage.s3_folder import S3Folder
    from tidemark.storage.s3_location import S3Place

# The location of a warehouse for readers: a local path, or an open folder of a bucket.
#
# Readers use `join_path(warehouse, ...)` and what both have in common. Nothing of S3 is imported here.
Root: TypeAlias = "str | S3Folder"
"""Root of all tables."""
WarehousePath: TypeAlias = Path | BucketPath
"""A file or a folder below it."""


def join_path(warehouse: Root, *parts: str) -> WarehousePath:
    """Returns a path in a warehouse."""
    return Path(warehouse, *parts) if isinstance(warehouse, str) else warehouse.at(*parts)


def spark_root(warehouse: Root) -> str:
    """Returns the warehouse as Spark names it."""
    return warehouse if isinstance(warehouse, str) else warehouse.place.spark_url


def address_of(warehouse: Root) -> "str | S3Place":
    """Returns the address of the warehouse for another process, without connections and credentials."""
    return warehouse if isinstance(warehouse, str) else warehouse.place


@contextmanager
def open_warehouse(address: "str | S3Place") -> Iterator[Root]:
    """Opens a warehouse by its address, a bucket for the duration of the block and with this process's credentials.

    Raises:
        UsageError: AWS's variables or profiles are invalid.
    """
    if isinstance(address, str):
        yield address
        return
    from tidemark.storage.s3_folder import open_folder

    with open_folder(address) as folder:
        yield folder


def relative(warehouse: Root, path: WarehousePath) -> str:
    """Returns the path relative to the warehouse."""
    return path.path if isinstance(path, BucketPath) else path.relative_to(str(warehouse)).as_posix()


def size_of(path: WarehousePath) -> int:
    """Returns the size of a file in bytes.

    Raises:
        FileNotFoundError: it does not exist.
        OSError, StoreError: it cannot be read.
    """
    return path.size if isinstance(path, BucketPath) else path.stat().st_size


def storage_options(path: WarehousePath) -> dict[str, str] | None:
    """Returns deltalake's storage options; None on a disk."""
    return path.storage_options if isinstance(path, BucketPath) else None


def arrow_place(path: WarehousePath) -> tuple[str, Any]:
    """Returns the path for pyarrow's readers, and their `filesystem`; None = the local one."""
    return path.arrow if isinstance(path, BucketPath) else (str(path), None)


# sha256 of data files: recorded by the commit that adds them, whose own hash is in the manifest.
KEY = "tidemark_sha256"
"""Key of commitInfo; its value is JSON: path relative to the table -> sha256."""
_CHUNK = 2**20


def hash_of(path: WarehousePath) -> str:
    """Returns the sha256 of a file as lower-case hex.

    Raises:
        OSError, StoreError: it cannot be read.
    """
    if isinstance(path, BucketPath):
        return path.sha256()
    made = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            made.update(chunk)
    return made.hexdigest()


def to_metadata(table: WarehousePath, paths: Iterable[str]) -> dict[str, str]:
    """Returns the record of a commit about the files that it adds.

    Raises:
        OSError, StoreError: one cannot be read.
    """
    files = {path: table / path for path in paths}
    made = {path: f.sha256_as_sent() if isinstance(f, BucketPath) else hash_of(f) for path, f in files.items()}
    return {KEY: json.dumps(made, sort_keys=True)}


def from_commit(raw: bytes) -> Mapping[str, str]:
    """Returns the hashes in a commit file by path; empty if it is older than hashes, or damaged."""
    for line in raw.splitlines():
        try:
            info = json.loads(line).get("commitInfo")
            if info is not None:
                return dict(json.loads(info.get(KEY) or "{}"))
        except (ValueError, AttributeError, TypeError):
            return {}
    return {}


# Folders of data files that this process writes itself: in place on a disk, uploaded when complete to a bucket.
@contextmanager
def stage_folder(warehouse: Root, folder: str) -> Iterator[Path]:
    """Yields a local folder to write to; after the block, its files are in the warehouse.

    Args:
        warehouse: root of all tables.
        folder: path relative to it; no other process uses it. The yielded folder has the same name; on a disk, the
            caller creates it.

    Raises:
        StoreError: a bucket refuses the files, or returns different bytes.
        OSError: the disk refused.
    """
    if isinstance(warehouse, str):
        yield Path(warehouse, folder)
        return
    with TemporaryDirectory(prefix="tidemark-") as aside:
        local = Path(aside, folder.rpartition("/")[2])
        yield local
        for path in sorted(p for p in local.rglob("*") if p.is_file()):
            _send(warehouse, f"{folder}/{path.relative_to(local).as_posix()}", path)


def _send(warehouse: "S3Folder", path: str, file: Path) -> None:
    if not warehouse.send_compared(path, file):
        raise StoreError(
            f"{warehouse.at(path)}: the store returns different bytes than were sent",
            safe="no record names the uploaded file.",
            next="repeat the command; if that does not help, check the store.",
        )


# Makes files survive a power cut on a local disk.
def fsync(path: Path) -> None:
    """Forces a file, or the entries of a folder, to the disk.

    Raises:
        OSError: the disk refused, or the path does not exist.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_ASIDE = ".tmp-"
_INTACT = "every earlier object is intact."


@dataclass(frozen=True)
class LocalStore:
    """Objects of one pipeline as files in a folder.

    Attributes:
        root: `<warehouse>/<pipeline>`; created with the first object.
    """

    root: Path

    def put_if_absent(self, key: str, body: bytes) -> PutOutcome:
        """See `ports.CheckpointStore`. On a local disk the outcome is never unknown."""
        target = self._path(key)
        with _mapped("write", key):
            folder = os.path.dirname(target)
            self._make(Path(folder))
            return self._linked(folder, target, body)

    def get(self, key: str) -> bytes | None:
        """See `ports.CheckpointStore`."""
        target = self._path(key)
        with _mapped("read", key):
            try:
                with open(target, "rb") as found:
                    return found.read()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def list(self, prefix: str) -> Sequence[str]:
        """See `ports.CheckpointStore`."""
        return sorted(key for key, _ in self._list_files(prefix))

    def stamps(self, prefix: str) -> Mapping[str, str]:
        """See `ports.caching.StampedStore`: inode, size and times of the file."""
        found: dict[str, str] = {}
        with _mapped("list", prefix):
            for key, path in sorted(self._list_files(prefix)):
                with suppress(FileNotFoundError):
                    at = os.stat(path)
                    found[key] = f"{at.st_ino}.{at.st_size}.{at.st_mtime_ns}.{at.st_ctime_ns}"
        return found

    def _list_files(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Yields keys with a prefix, with the paths of their files."""
        base = self._path(prefix)
        above = len(base) - len(prefix.removesuffix("/"))
        with _mapped("list", prefix):
            for folder, _, names in os.walk(base, onerror=_raise_unless_missing):
                below = folder[above:]
                yield from ((f"{below}/{name}", f"{folder}/{name}") for name in names if not name.startswith(_ASIDE))

    def _linked(self, folder: str, target: str, body: bytes) -> PutOutcome:
        with NamedTemporaryFile(dir=folder, prefix=_ASIDE, delete=False) as aside:
            try:
                aside.write(body)
                aside.flush()
                os.fsync(aside.fileno())
                # Permissions by the umask: a temporary file is private, an object is not.
                os.fchmod(aside.fileno(), 0o644)
                os.link(aside.name, target)
            except FileExistsError:
                fsync(Path(folder))  # its writer may have been killed before this, and this process relies on it now
                return PutOutcome.LOST
            finally:
                # Another process may have deleted it; a crash here leaves a file that no listing shows.
                with suppress(FileNotFoundError):
                    os.unlink(aside.name)
        fsync(Path(folder))
        return PutOutcome.WON

    def _make(self, folder: Path) -> None:
        missing = list(takewhile(lambda p: not p.exists(), (folder, *folder.parents)))
        folder.mkdir(parents=True, exist_ok=True)
        for made in reversed(missing):
            fsync(made.parent)

    def _path(self, key: str) -> str:
        """Returns the file of a key as text: Path objects and parent links took most of the time of a read."""
        parts = key.removesuffix("/").split("/")
        if "\0" in key or any(part in ("", ".", "..") for part in parts):
            raise NameRefusedError(f"object key refused: {key!r}", next="this is a defect of Tidemark: report it.")
        # Links above the root are not refused, so only one below it makes the root's own path of interest.
        folders = list(accumulate(parts[:-1], lambda above, part: f"{above}/{part}", initial=str(self.root)))
        if any(map(os.path.islink, folders[1:])) and not Path(folders[-1]).resolve().is_relative_to(
            self.root.resolve()
        ):
            raise NameRefusedError(
                f"object key leaves the warehouse: {key!r}", next="remove the symbolic link below the warehouse."
            )
        return f"{folders[-1]}/{parts[-1]}"


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


@contextmanager
def _mapped(verb: str, key: str) -> Iterator[None]:
    """Translates errors of the file system."""
    try:
        yield
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise StoreError(
            f"could not {verb} {key}: {why}",
            safe=_INTACT,
            next="check that the warehouse is writable and has free space, then run the same command again.",
        ) from error


# The timeline's lock among processes of one host, by flock: the kernel releases it when its holder dies.
#
# It avoids wasted work and is never needed for correctness: the outcome key fences attempts. A holder that hangs (it
# was stopped, or its disk does not answer) blocks no other process past the time that it wrote into the lock file: the
# next one uses another file in its place.
_TRIES = 10
"""How often a lock file may disappear while locking before the timeline counts as busy."""


@dataclass(frozen=True)
class HeldTimeline:
    """A lock that is held.

    Attributes:
        handle: of the lock file.
        now_ms: the clock.
    """

    handle: int
    now_ms: Callable[[], int]

    def renew(self, timeout: timedelta) -> None:
        """Writes until when others wait, for an attempt that begins with this timeout.

        Raises:
            StoreError: the lock file cannot be written.
        """
        until = self.now_ms() + timeout // timedelta(milliseconds=1)
        # Only a hint for others: the lock itself is the kernel's, so leftovers of a dead process are harmless.
        try:
            os.pwrite(self.handle, f"{os.getpid():<10} {until:<20}\n".encode(), 0)
        except OSError as error:
            raise _unwritten("write the lock of a timeline", error) from error


@dataclass(frozen=True)
class FileTimelineLock:
    """One lock file per timeline.

    Attributes:
        folder: `<warehouse>/<pipeline>/locks`.
        now_ms: the clock.
    """

    folder: Path
    now_ms: Callable[[], int]

    @contextmanager
    def hold(self, timeline: str, timeout: timedelta) -> Iterator[HeldTimeline]:
        """See `ports.TimelineLock`; it never waits.

        Raises:
            BusyError: another process holds it; the message contains its process id if known.
            StoreError: the lock file cannot be opened or written.
        """
        held = HeldTimeline(self._acquired(checked_name("timeline", timeline), timeout), self.now_ms)
        try:
            yield held
        finally:
            os.ftruncate(held.handle, 0)
            os.close(held.handle)

    def _acquired(self, timeline: str, timeout: timedelta) -> int:
        path = self.folder / f"{timeline}.lock"
        for _ in range(_TRIES):
            handle = self._opened(path, timeline)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder, until = _read_holder(handle)
                hangs = until is not None and until < self.now_ms()
                if hangs and _is_at(handle, path):
                    path.unlink(missing_ok=True)
                os.close(handle)
                if not hangs:
                    raise _busy(timeline, holder) from None
                continue
            if _is_at(handle, path):
                try:
                    HeldTimeline(handle, self.now_ms).renew(timeout)
                except StoreError:
                    os.close(handle)
                    raise
                return handle
            os.close(handle)  # the file was removed between open and lock
        raise _busy(timeline, None)

    def _opened(self, path: Path, timeline: str) -> int:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _unwritten(f"open the lock of timeline {timeline}", error) from error


def _unwritten(what: str, error: OSError) -> StoreError:
    return StoreError(
        f"could not {what}: {error.strerror}",
        next="check that the warehouse is writable and has space left, then run the same command again.",
    )


def _read_holder(handle: int) -> tuple[str | None, int | None]:
    """Returns the process that holds a lock, and until when others wait; release 0.1 wrote the process alone."""
    found = os.pread(handle, 64, 0).decode(errors="replace").split()
    numbers = [text for text in found if text.isdecimal()]
    return (numbers[0] if numbers else None), (int(numbers[1]) if len(numbers) > 1 else None)


def _is_at(handle: int, path: Path) -> bool:
    """Whether an open file is the one at a path: another process may have replaced it."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(handle)
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)


def _busy(timeline: str, holder: str | None) -> BusyError:
    return BusyError(
        f"timeline {timeline} is busy: {f'process {holder}' if holder else 'another process'} holds it",
        next="wait until it has finished, then run the same command again.",
    )
