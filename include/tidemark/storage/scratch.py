"""Scratch folders of a warehouse: each is held by its owner through flock, and swept once the owner is gone (I10).

The lock is on a file in the folder, so the kernel frees it when its holder dies, however it dies. A folder without that
file is nobody's: a session that outlived its client may have written there after a sweep.
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
"""Below a pipeline's folder; nothing in it is part of any checkpoint."""
OWNER = "owner.lock"
_PREFIX = "replay-"
_TRIES = 100


@contextmanager
def scratch_folder(
    warehouse: Path, pipeline: str, ids: Callable[[], str], emptied: Callable[[str], None] = lambda folder: None
) -> Iterator[str]:
    """A folder of one's own, relative to the warehouse; gone afterwards, as are those whose owners are gone.

    Args:
        warehouse: root of all tables; abandoned folders of all of its pipelines are swept.
        pipeline: whose folder it is.
        ids: fresh names.
        emptied: called with each folder that is about to go, for what lies elsewhere under the same name.

    Raises:
        StoreError: it cannot be made.
    """
    sweep(warehouse, emptied)
    held = warehouse / checked_name("pipeline", pipeline) / FOLDER
    try:
        folder, handle = _taken(held, ids)
    except OSError as error:
        raise StoreError(
            f"could not make a folder below {held}: {error.strerror}",
            safe="nothing was written.",
            next="check that the warehouse is writable, then run the same command again.",
        ) from error
    try:
        yield folder.relative_to(warehouse).as_posix()
    finally:
        emptied(folder.relative_to(warehouse).as_posix())
        _remove(folder, handle)


def sweep(warehouse: Path, emptied: Callable[[str], None] = lambda folder: None) -> list[Path]:
    """Removes scratch folders that nobody holds; returns them."""
    swept = []
    for found in sorted(glob(f"*/{FOLDER}/*", root_dir=warehouse)):
        folder = warehouse / found
        # The holder's lock file may be missing, so it is made: then nobody else can take the folder meanwhile.
        handle = _locked(folder)
        if handle is not None:
            emptied(found)
            _remove(folder, handle)
            swept.append(folder)
    return swept


def _taken(held: Path, ids: Callable[[], str]) -> tuple[Path, int]:
    for _ in range(_TRIES):
        folder = held / f"{_PREFIX}{ids()}"
        # Another replay may sweep it before it is held, or remove what it stands in (FileExistsError: between finding
        # that it is there and looking what it is); then another name is tried.
        with suppress(FileNotFoundError, FileExistsError):
            folder.mkdir(parents=True, exist_ok=True)
        handle = _locked(folder)
        if handle is not None:
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)  # for people only
            return folder, handle
    raise FileNotFoundError(None, "it is removed again and again")


def _locked(folder: Path) -> int | None:
    """The open and locked file of a folder; None where somebody holds it, or where the folder is gone."""
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
    return os.fstat(handle).st_nlink > 0  # else it was removed after it was opened


def _remove(folder: Path, handle: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(handle)
    with suppress(OSError):  # another one is at work there
        folder.parent.rmdir()
