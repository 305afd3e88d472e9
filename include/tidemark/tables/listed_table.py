"""A table in a bucket, listed once: the sizes of its files, and the files of each version by replaying its commits.

For each version that it opens, deltalake lists and reads the log of a table. A check opens every version that a
restore point names, so over HTTP its requests grow with the square of their number. Here each commit is read once.

It gives only certain answers: if a log has anything unusual, deltalake has to say which files a reader finds.
"""

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.model.checkpoint.segments import LOG
from tidemark.ports import LiveFile, WrittenFile

if TYPE_CHECKING:
    from tidemark.storage.s3_folder import S3Folder

_KNOWN = frozenset({"add", "remove", "commitInfo", "protocol", "metaData", "txn"})
_AT_ONCE = 8


@dataclass
class ListedTable:
    """A table as it was when it was listed.

    Attributes:
        warehouse: the open folder that is the root of all tables.
        path: of the table.
    """

    warehouse: "S3Folder"
    path: str
    _commits: dict[int, bytes | None] = field(default_factory=dict)
    _bases: dict[int, dict[str, LiveFile] | None] = field(default_factory=dict)
    _live: dict[str, LiveFile] = field(default_factory=dict)
    _at: tuple[int, int] = (-2, -1)
    """Base and version of `_live`; -2 = it belongs to none."""

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Bytes of every file of the table, by its path in the table."""
        below = f"{self.path}/"
        return {path.removeprefix(below): size for path, size in self.warehouse.list_sizes(below)}

    def needed(self, version: int) -> range:
        """The versions whose commits a reader replays: those after the newest Delta log checkpoint."""
        return range(self._base(version) + 1, version + 1)

    def commit(self, version: int) -> bytes | None:
        """The bytes of a commit; None if there is none. Reads those before it as well, several at once.

        If the one before it was read already, the versions are asked for in turn, so the next ones are read too.

        Raises:
            StoreError: it could not be read.
        """
        if version not in self._commits:
            wanted = {*self.needed(version), version}
            if version - 1 in self._commits:
                wanted |= {v for v in range(version, version + _AT_ONCE) if self._has(v)}
            self._read(v for v in wanted if v not in self._commits)
        return self._commits[version]

    def files(self, version: int) -> list[LiveFile] | None:
        """The files of a version, without statistics; None if its log is not one that Tidemark writes.

        Raises:
            StoreError: a commit could not be read.
        """
        base = self._base(version)
        if self._at[0] != base or self._at[1] > version:
            begun = self._opened(base)
            if begun is None:
                return None
            self._live, self._at = dict(begun), (base, base)
        for number in range(self._at[1] + 1, version + 1):
            actions = _actions(self.commit(number))
            if actions is None or not self._apply(actions, number):
                self._at = (-2, -1)
                return None
            self._at = (base, number)
        return sorted(self._live.values(), key=lambda f: (f.checkpoint, -f.level, f.path))

    def _base(self, version: int) -> int:
        """The newest version that has a Delta log checkpoint, up to one; -1 if there is none."""
        found = (v for v in range(version, -1, -1) if f"{LOG}/{v:020d}.checkpoint.parquet" in self.sizes)
        return next(found, -1)

    def _opened(self, base: int) -> dict[str, LiveFile] | None:
        if base < 0:
            return {}
        if base not in self._bases:
            raw = self.warehouse.get(f"{self.path}/{LOG}/{base:020d}.checkpoint.parquet")
            self._bases[base] = None if raw is None else _checkpointed(raw)
        return self._bases[base]

    def _apply(self, actions: list[dict[str, Any]], version: int) -> bool:
        """Applies a commit; False if it is not one that Tidemark writes."""
        names = {name for action in actions for name in action}
        if not names <= _KNOWN or (version == 0 and not {"protocol", "metaData"} <= names):
            return False
        try:
            for gone in (action["remove"] for action in actions if "remove" in action):
                self._live.pop(unquote(gone["path"]), None)
            for made in (_live_file(action["add"]) for action in actions if "add" in action):
                self._live[made.path] = made
        except (LookupError, TypeError, ValueError):
            return False
        return True

    def _has(self, version: int) -> bool:
        return f"{LOG}/{version:020d}.json" in self.sizes

    def _read(self, versions: Iterable[int]) -> None:
        there = {v: f"{LOG}/{v:020d}.json" for v in versions}
        listed = {v: name for v, name in there.items() if name in self.sizes}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            bodies = pool.map(lambda name: self.warehouse.get(f"{self.path}/{name}"), listed.values())
            self._commits |= dict.fromkeys(there) | dict(zip(listed, bodies, strict=True))


def _checkpointed(raw: bytes) -> dict[str, LiveFile] | None:
    """The files in a Delta log checkpoint; None if it is not one that deltalake writes for Tidemark."""
    try:
        rows = pq.read_table(pa.BufferReader(raw), columns=["add", "protocol", "metaData"]).to_pylist()
        if not all(any(row[name] is not None for row in rows) for name in ("protocol", "metaData")):
            return None
        return {f.path: f for f in (_live_file(row["add"]) for row in rows if row["add"] is not None)}
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError):
        return None


def _actions(raw: bytes | None) -> list[dict[str, Any]] | None:
    try:
        found = [json.loads(line) for line in (raw or b"").splitlines()]
    except ValueError:
        return None
    return found if found and all(isinstance(action, dict) for action in found) else None


def _live_file(added: dict[str, Any]) -> LiveFile:
    partition, rows = dict(added["partitionValues"]), json.loads(added["stats"])["numRecords"]
    file = WrittenFile(path=unquote(added["path"]), size=int(added["size"]), rows=int(rows), stats="")
    return LiveFile(file=file, level=int(partition["_level"]), checkpoint=int(partition["_checkpoint"]))
