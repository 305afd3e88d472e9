"""The names in a table's log, and the prefix of a log that is no longer needed.

To read a version you need the newest Delta log checkpoint that is not above it, and the later commits up to it. So a
prefix ends at a Delta log checkpoint that is not above the oldest version in use. The commit of that version itself
stays: Spark finds no history in a log that begins with a Delta log checkpoint alone.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.model.retention.shared_state import StoredFile

LOG = "_delta_log"
"""The folder of a table's log."""
INTERVAL = 20
"""Commits between two Delta log checkpoints; a log is trimmed in steps of this size."""
TORN = ".torn"
"""Suffix of a commit that a power cut has torn and a writer has set aside; it is deleted with its neighbours."""
_NUMBERED = re.compile(r"(\d{20})\.(json|checkpoint\.parquet|crc|json\.torn)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPrefix:
    """The part of a log that may be deleted.

    Attributes:
        table: path relative to the warehouse.
        until: version up to which files are deleted, exclusive; it has a Delta log checkpoint, or gets one.
        lacks_checkpoint: whether that checkpoint must be written first.
        files: the files to delete.
    """

    table: str
    until: int
    lacks_checkpoint: bool
    files: tuple[StoredFile, ...]

    @property
    def bytes(self) -> int:
        """Bytes of the files to delete."""
        return sum(f.bytes for f in self.files)


def log_version(name: str) -> int | None:
    """Returns the version that a file of a log belongs to; None for `_last_checkpoint` and unknown files."""
    found = _NUMBERED.fullmatch(name)
    return None if found is None else int(found[1])


def log_prefix(table: str, log: Sequence[StoredFile], oldest: int) -> LogPrefix | None:
    """Returns the prefix that may be deleted; None if there is none, or if deleting it is not worth it.

    Args:
        table: path relative to the warehouse.
        log: the files of its log.
        oldest: oldest version in use, or the newest version if none is.
    """
    numbered = [(log_version(f.path.rpartition("/")[2]), f) for f in log]
    found = sorted(((v, f) for v, f in numbered if v is not None), key=lambda pair: (pair[0], pair[1].path))
    commits = {v for v, f in found if f.path.endswith(".json")}
    checkpoints = [v for v, f in found if f.path.endswith(".parquet") and v <= oldest and v in commits]
    until = max(checkpoints, default=-1)
    lacks = oldest in commits and oldest - max(until, min(commits, default=0)) >= INTERVAL
    until = oldest if lacks else until
    gone = tuple(f for v, f in found if v < until)
    return LogPrefix(table=table, until=until, lacks_checkpoint=lacks, files=gone) if gone else None
