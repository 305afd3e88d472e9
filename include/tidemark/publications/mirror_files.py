"""Files of a mirror: their names, their actions in the log, and the clean-up of those that no version names."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyroaring import BitMap64

from tidemark.publications.deletion_vectors import FOLDER, VectorPlace, number_of
from tidemark.publications.delta_log import DeltaLog, MirrorFile, TableState
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


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A data file that was written."""

    path: str
    size: int
    rows: int

    def action(self, now: int) -> dict[str, Any]:
        """Returns the action that adds it."""
        return {"add": _addition(self.path, self.size, now, json.dumps({"numRecords": self.rows}))}


@dataclass(slots=True, kw_only=True)
class FilePlan:
    """The future of each file with deleted rows: it has none left, it is rewritten, or a vector marks them."""

    deleted: dict[str, BitMap64]
    emptied: list[str] = field(default_factory=list)
    rewritten: list[str] = field(default_factory=list)
    marked: list[str] = field(default_factory=list)

    def rewrite(self, paths: Iterable[str]) -> None:
        """Rewrites some files, unless no row of them is left."""
        more = [path for path in paths if path not in self.emptied and path not in self.rewritten]
        self.rewritten += more
        self.marked = [path for path in self.marked if path not in more]


def _addition(path: str, size: int, now: int, stats: str | None) -> dict[str, Any]:
    found = {"path": path, "partitionValues": {}, "size": size, "modificationTime": now, "dataChange": True}
    return found if stats is None else {**found, "stats": stats}


def marking(file: MirrorFile, place: VectorPlace, now: int) -> dict[str, Any]:
    """Returns the action that marks deleted rows of a file; its removal precedes it."""
    stats = {**json.loads(file.stats or "{}"), "tightBounds": False}
    return {"add": {**_addition(file.path, file.size, now, json.dumps(stats)), "deletionVector": place.to_json()}}


def removal(file: MirrorFile, now: int) -> dict[str, Any]:
    """Returns the action that removes a file, with its deletion vector."""
    found: dict[str, Any] = {
        "path": file.path,
        "deletionTimestamp": now,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": {},
        "size": file.size,
    }
    if file.vector is not None:
        found["deletionVector"] = file.vector.to_json()
    return {"remove": found}
