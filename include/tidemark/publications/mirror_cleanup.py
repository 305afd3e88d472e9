"""Deletes files of a mirror that no version names any more and that no clean-up of others would find."""

import re
from collections.abc import Iterator

from tidemark.publications.deletion_vectors import FOLDER, number_of
from tidemark.publications.delta_log import DeltaLog, TableState
from tidemark.publications.target_folder import TargetFolder

_PART = re.compile(r"part-(\d{12})-[^/]+\.parquet")


def part_path(number: int, name: str) -> str:
    """Returns the path of a data file of a step."""
    return f"part-{number:012d}-{name}.zstd.parquet"


def clean_up(folder: TargetFolder, application: str) -> list[str]:
    """Deletes deletion vectors and leftovers of failed attempts, and returns their paths.

    A file is deleted if the number of its step is below those of all steps in the log, and neither the log nor its
    oldest Delta log checkpoint names it: the entry of its step was cleaned up after the table's log retention, and no
    version that can still be read has the file. A later attempt at that step finds a newer one, and names no file.

    Args:
        folder: the table.
        application: id of the publication.

    Raises:
        StoreError: the table cannot be read, or a file cannot be deleted.
    """
    log = DeltaLog(folder)
    oldest = log.oldest()
    if oldest is None or oldest.known == 0:
        return []  # every commit is there, so every file has its entry, or may still get one
    named, numbers = set(_files(oldest)), list[int]()
    for version in range(oldest.known, log.newest().version + 1):
        for action in log.actions(version):
            found = TableState()
            found.apply({kind: value for kind, value in action.items() if kind == "add"})
            named.update(_files(found))
            if action.get("txn", {}).get("appId") == application:
                numbers.append(int(action["txn"]["version"]))
    if not numbers:
        return []
    gone = [path for path, number in _numbered(folder) if number < min(numbers) and path not in named]
    for path in gone:
        folder.delete(path)
    return gone


def _files(state: TableState) -> Iterator[str]:
    for file in state.files.values():
        yield file.path
        if file.vector is not None and file.vector.file is not None:
            yield file.vector.file


def _numbered(folder: TargetFolder) -> Iterator[tuple[str, int]]:
    for path in folder.list(""):
        part = _PART.fullmatch(path)
        number = int(part[1]) if part else number_of(path) if path.startswith(f"{FOLDER}/") else None
        if number is not None:
            yield path, number
