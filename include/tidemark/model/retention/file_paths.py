"""The table and the writer of a file, from its path in the warehouse."""

import re
from dataclasses import dataclass

from tidemark.model.checkpoint.segments import LOG, is_base

FOLDERS = ("state", "dead_letters", "outbox", "sinks")
"""Folders of a pipeline that contain its tables; nothing else is ever deleted."""
_ATTEMPT = re.compile(r"(\d+)\.(\d+)", re.ASCII)
_ERASURE = re.compile(r"erasure\.\d+\.\w+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFilePath:
    """A file of a table.

    Attributes:
        table: path relative to the warehouse.
        kind: `state`, `dead_letters`, `outbox` or `sinks`.
        owner: uid of the operator, or name of the sink.
        timeline: timeline of the table.
        folder: the folder in the table that one attempt, or one job, wrote to; empty if there is none.
        name: the rest of the path.
        is_base: whether only jobs commit to the table; erasures commit to other state tables too.
    """

    table: str
    kind: str
    owner: str
    timeline: str
    folder: str
    name: str
    is_base: bool

    @property
    def is_log(self) -> bool:
        """Whether it belongs to the table's log."""
        return self.folder == LOG

    @property
    def attempt(self) -> tuple[int, int] | None:
        """Id of the plan and number of the attempt that wrote it; None if a job, or another program, wrote it."""
        found = None if self.is_base else _ATTEMPT.fullmatch(self.folder)
        return None if found is None else (int(found[1]), int(found[2]))

    @property
    def job(self) -> str | None:
        """Id of the job that wrote it."""
        is_job = self.is_base or _ERASURE.fullmatch(self.folder) is not None
        return self.folder if is_job and self.folder and not self.is_log else None

    @property
    def data(self) -> str | None:
        """The data file of a checksum file (`.<name>.crc`); the folder of other side files."""
        last = self.name.rpartition("/")[2]
        if last.startswith(".") and last.endswith(".crc") and "/" not in self.name:
            return f"{self.table}/{self.folder}/{last[1:-4]}"
        return f"{self.table}/{self.folder}" if self.name.startswith(("_", ".")) else None


def place_of(path: str) -> TableFilePath | None:
    """Returns the location of a file; None if it belongs to no table.

    Args:
        path: path relative to the warehouse.
    """
    parts = path.split("/")
    if len(parts) < 5 or parts[1] not in FOLDERS:
        return None
    is_state = parts[1] == "state"
    depth = 5 if is_state else 4
    if len(parts) <= depth or (is_state and parts[4] not in ("runs", "base")):
        return None
    folder = parts[depth] if len(parts) > depth + 1 else ""
    return TableFilePath(
        table="/".join(parts[:depth]),
        kind=parts[1],
        owner=parts[2],
        timeline=parts[3].rpartition("-")[0] if is_state else parts[3].partition("~")[0],
        folder=folder,
        name="/".join(parts[depth + bool(folder) :]),
        is_base=is_base("/".join(parts[:depth])),
    )
