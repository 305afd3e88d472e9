"""Files of tables on a local or shared file system: listed, followed through their logs, deleted (`ports.TableFiles`).

The log is read by itself, commit by commit, so that a thousand versions cost a thousand small reads once and then only
what was committed since. deltalake opens the Delta log checkpoint where the commits before it are gone.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from deltalake.exceptions import DeltaError

from tidemark.adapters.delta_reading import files_in, open_table
from tidemark.errors import NameRefusedError, StoreError
from tidemark.model.delta_logs import LOG, log_version
from tidemark.model.shared_state import StoredFile, TableFile, TableHistory, unknown

_NEXT = "look at the disk and its permissions, then ask again: what is done already is not done twice."


@dataclass
class _Replayed:
    """A log as far as it was read: every file that was ever added, the live ones by path, the newest version."""

    oldest: int
    newest: int
    ended: list[TableFile] = field(default_factory=list)
    live: dict[str, TableFile] = field(default_factory=dict)


@dataclass
class LocalTableFiles:
    """Implements `ports.TableFiles`.

    Attributes:
        warehouse: root of all tables.
    """

    warehouse: str
    _replayed: dict[str, _Replayed] = field(default_factory=dict)

    def files(self, folder: str) -> Sequence[StoredFile]:
        """See `ports.TableFiles`."""
        root, found = self._place(folder), list[StoredFile]()
        with _mapped("list", folder):
            for at, _, names in os.walk(root, onerror=_raise_unless_missing):
                below = Path(at).relative_to(self.warehouse).as_posix()
                for name in names:
                    # A file of another deleter's may go between the two. No Path for each: there are many.
                    with suppress(FileNotFoundError):
                        found.append(StoredFile(path=f"{below}/{name}", bytes=os.stat(f"{at}/{name}").st_size))
        return sorted(found, key=lambda f: f.path)

    def history(self, table: str) -> TableHistory:
        """See `ports.TableFiles`."""
        root = self._place(table)
        with _mapped("read the log of", table):
            state = self._replayed.get(table) or _begun(root, table)
            while _versions(root)[-1:] > [state.newest]:
                raw = _commit(root, state.newest + 1)
                if raw is None:
                    raise unknown(f"the log of {table} has a hole behind version {state.newest}")
                while raw is not None:
                    state.newest += 1
                    _apply(state, table, raw)
                    raw = _commit(root, state.newest + 1)
        self._replayed[table] = state
        files = sorted((*state.ended, *state.live.values()), key=lambda f: (f.added, f.path))
        return TableHistory(table=table, oldest=state.oldest, newest=state.newest, files=tuple(files))

    def write_log_checkpoint(self, table: str, version: int) -> None:
        """See `ports.TableFiles`."""
        with _mapped("write a Delta log checkpoint of", table):
            open_table(self._place(table), version).create_checkpoint()

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
        """Removes a folder and those above it, as long as they are empty; never a log."""
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


def _begun(root: Path, table: str) -> _Replayed:
    """The state at the oldest version that can be read."""
    versions = _versions(root)
    if not versions or versions[0] == 0:
        return _Replayed(oldest=0, newest=-1)
    # A log that was trimmed, perhaps not to the end: it can be read from a Delta log checkpoint that has its commit.
    first = next((v for v in versions if (root / LOG / f"{v:020d}.checkpoint.parquet").is_file()), None)
    if first is None:
        raise unknown(f"the log of {table} begins at {versions[0]}, without a Delta log checkpoint")
    state = _Replayed(oldest=first, newest=first)
    for f in files_in(open_table(root, first)):
        path = f"{table}/{unquote(f.path)}"
        made = TableFile(path=path, bytes=f.file.size, checkpoint=f.checkpoint, added=first)
        state.live[path] = made
    return state


def _apply(state: _Replayed, table: str, raw: bytes) -> None:
    for line in raw.splitlines():
        try:
            action: dict[str, Any] = json.loads(line)
        except ValueError as error:
            raise unknown(f"commit {state.newest} of {table} is no JSON") from error
        if (removed := action.get("remove")) is not None:
            gone = state.live.pop(f"{table}/{unquote(removed['path'])}", None)
            if gone is not None:
                state.ended.append(replace(gone, removed=state.newest))
        if (added := action.get("add")) is not None:
            path, partition = f"{table}/{unquote(added['path'])}", added["partitionValues"]
            before = state.live.get(path)
            state.live[path] = TableFile(
                path=path,
                bytes=int(added["size"]),
                checkpoint=int(partition["_checkpoint"]),
                added=state.newest if before is None else before.added,
            )


def _commit(root: Path, version: int) -> bytes | None:
    try:
        return (root / LOG / f"{version:020d}.json").read_bytes()
    except FileNotFoundError:
        return None


def _versions(root: Path) -> list[int]:
    """Versions whose commits are there, in order."""
    try:
        names = os.listdir(root / LOG)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = (log_version(name) for name in names if name.endswith(".json"))
    return sorted(version for version in found if version is not None)


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


@contextmanager
def _mapped(verb: str, what: str) -> Iterator[None]:
    """The one seam where errors of disk and library become ours."""
    try:
        yield
    except (OSError, DeltaError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise StoreError(
            f"could not {verb} {what}: {why}", safe="every restore point that is kept is intact.", next=_NEXT
        ) from error
    except (KeyError, TypeError, ValueError) as error:
        raise unknown(f"the log of {what} has an action that is not ours ({error})") from error
