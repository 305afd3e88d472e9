"""The checkpoint store on a local disk: write a temporary file, fsync, `os.link` to the final name, fsync the folder.

`os.link` fails if the name exists, atomically among all processes of a host. A linked object is complete, because its
bytes were durable before it had a name. This does not hold for a folder that several hosts share.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate, takewhile
from pathlib import Path
from tempfile import NamedTemporaryFile

from tidemark.errors import NameRefusedError, StoreError
from tidemark.ports import PutOutcome
from tidemark.storage.fsync import fsync

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
        root = os.path.realpath(self.root)
        folders = list(accumulate(parts[:-1], lambda above, part: f"{above}/{part}", initial=root))
        if any(map(os.path.islink, folders[1:])) and not Path(folders[-1]).resolve().is_relative_to(root):
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
