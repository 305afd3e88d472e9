"""Scratch folders of a warehouse: the owner of each holds a flock, and it is swept once the owner is gone.

The lock is on a file in the folder, so the kernel releases it when its holder dies for any reason. A folder without
that file has no owner: a session that outlived its client may have written there after a sweep.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path

from tidemark.errors import StoreError
from tidemark.model.core.names import checked_name

FOLDER = "scratch"
"""In the folder of a pipeline; nothing in it belongs to a checkpoint."""
OWNER = "owner.lock"
_PREFIX = "replay-"
_TRIES = 100


@contextmanager
def scratch_folder(
    warehouse: Path, pipeline: str, ids: Callable[[], str], emptied: Callable[[str], None] = lambda folder: None
) -> Iterator[str]:
    """Yields a private folder, relative to the warehouse, then deletes it, and those of owners that are gone.

    Args:
        warehouse: root of all tables; abandoned folders of all of its pipelines are swept.
        pipeline: owner of the folder.
        ids: creates new names.
        emptied: called with each folder before its deletion, for files elsewhere under the same name.

    Raises:
        StoreError: it cannot be created.
    """
    sweep(warehouse, emptied)
    held = warehouse / checked_name("pipeline", pipeline) / FOLDER
    try:
        folder, handle = _take_folder(held, ids)
    except OSError as error:
        raise StoreError(
            f"could not create a folder in {held}: {error.strerror}",
            safe="nothing was written.",
            next="check that the warehouse is writable, then run the same command again.",
        ) from error
    try:
        yield folder.relative_to(warehouse).as_posix()
    finally:
        emptied(folder.relative_to(warehouse).as_posix())
        _remove(folder, handle)


def sweep(warehouse: Path, emptied: Callable[[str], None] = lambda folder: None) -> list[Path]:
    """Removes scratch folders without a holder; returns them."""
    swept = []
    for found in sorted(glob(f"*/{FOLDER}/*", root_dir=warehouse)):
        folder = warehouse / found
        # If the holder's lock file is missing, it is created, so that no other process can take the folder.
        handle = _locked(folder)
        if handle is not None:
            emptied(found)
            _remove(folder, handle)
            swept.append(folder)
    return swept


def _take_folder(held: Path, ids: Callable[[], str]) -> tuple[Path, int]:
    for _ in range(_TRIES):
        folder = held / f"{_PREFIX}{ids()}"
        # Another process may sweep it before it is locked, or remove its parent (FileExistsError, between two checks);
        # then another name is tried.
        with suppress(FileNotFoundError, FileExistsError):
            folder.mkdir(parents=True, exist_ok=True)
        handle = _locked(folder)
        if handle is not None:
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)  # for people only
            return folder, handle
    raise FileNotFoundError(None, "it is removed each time")


def _locked(folder: Path) -> int | None:
    """Returns the open and locked file of a folder; None if another process holds it, or the folder is gone."""
    try:
        handle = os.open(folder / OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if _is_ours(handle):
        return handle
    os.close(handle)
    return None


def _is_ours(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return os.fstat(handle).st_nlink > 0  # otherwise it was removed after it was opened


def _remove(folder: Path, handle: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(handle)
    with suppress(OSError):  # another process works there
        folder.parent.rmdir()
