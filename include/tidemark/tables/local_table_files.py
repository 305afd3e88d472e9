"""Table files on a local or shared disk: listed, traced through their logs, deleted (`ports.TableFiles`)."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tidemark.errors import NameRefusedError, StoreError
from tidemark.model.checkpoint.segments import LOG, log_version
from tidemark.model.retention.shared_state import StoredFile, TableHistory, registry_error
from tidemark.ports.caching import Cache
from tidemark.tables.delta_history import LogReplays
from tidemark.tables.delta_reader import commit_file, open_table
from tidemark.tables.log_repair import secure

_NEXT = "check the disk and its permissions, then run this again: finished steps are not repeated."


@dataclass
class LocalTableFiles:
    """Implements `ports.TableFiles`.

    Attributes:
        warehouse: root of all tables.
        cache: keeps parsed logs; None = in memory only.
    """

    warehouse: str
    cache: Cache | None = None

    def __post_init__(self) -> None:
        self._replays = LogReplays(_LocalLogs(Path(self.warehouse)), self.cache)

    def files(self, folder: str) -> Sequence[StoredFile]:
        """See `ports.TableFiles`."""
        root, found = self._place(folder), list[StoredFile]()
        with _mapped("list", folder):
            for at, _, names in os.walk(root, onerror=_raise_unless_missing):
                below = Path(at).relative_to(self.warehouse).as_posix()
                for name in names:
                    # Another process may delete a file between the two. No Path objects, because there are many files.
                    with suppress(FileNotFoundError):
                        found.append(StoredFile(path=f"{below}/{name}", bytes=os.stat(f"{at}/{name}").st_size))
        return sorted(found, key=lambda f: f.path)

    def history(self, table: str) -> TableHistory:
        """See `ports.TableFiles`."""
        self._place(table)
        with _mapped("read the log of", table):
            return self._replays.history(table)

    def ensure_log_checkpoint(self, table: str, version: int) -> None:
        """See `ports.TableFiles`."""
        with _mapped("write a Delta log checkpoint of", table):
            secure(self._place(table), version)

    def delete(self, paths: Iterable[str]) -> int:
        """See `ports.TableFiles`."""
        count, folders = 0, dict[Path, None]()
        for path in paths:
            with _mapped("delete", path):
                try:
                    self._place(path).unlink()
                    count += 1
                except FileNotFoundError:
                    continue
                finally:
                    folders[self._place(path).parent] = None
        for folder in folders:
            self._remove_empty(folder)
        return count

    def _remove_empty(self, folder: Path) -> None:
        """Removes a folder and its parents as long as they are empty; never a log."""
        root = Path(self.warehouse)
        while folder != root and folder.name != LOG:
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent

    def _place(self, path: str) -> Path:
        target = Path(self.warehouse, path)
        if ".." in target.parts or path.startswith("/") or not path:
            raise NameRefusedError(f"path refused: {path!r}", next="this is a defect of Tidemark: report it.")
        return target


@dataclass(frozen=True, slots=True)
class _LocalLogs:
    """The logs in a folder."""

    root: Path

    def versions(self, table: str, after: int) -> list[int]:
        try:
            names = os.listdir(self.root / table / LOG)
        except (FileNotFoundError, NotADirectoryError):
            return []
        found = (log_version(name) for name in names if name.endswith(".json"))
        return sorted(version for version in found if version is not None and version > after)

    def commit(self, table: str, version: int) -> bytes | None:
        try:
            return commit_file(self.root / table, version).read_bytes()
        except FileNotFoundError:
            return None

    def has_checkpoint(self, table: str, version: int) -> bool:
        return (self.root / table / LOG / f"{version:020d}.checkpoint.parquet").is_file()

    def open(self, table: str, version: int) -> DeltaTable:
        return open_table(self.root / table, version)


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


@contextmanager
def _mapped(verb: str, what: str) -> Iterator[None]:
    """Translates errors of the disk and of libraries."""
    try:
        yield
    except (OSError, DeltaError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise StoreError(
            f"could not {verb} {what}: {why}", safe="every remaining restore point is intact.", next=_NEXT
        ) from error
    except (KeyError, TypeError, ValueError) as error:
        raise registry_error(f"the log of {what} has an unknown action ({error})") from error
