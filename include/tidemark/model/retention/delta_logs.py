"""The names in a table's log, and which prefix of a log is needed no more (E11, fault 39).

A reader of a version needs the newest Delta log checkpoint that is not above it, and the commits behind that. So a
prefix goes up to a Delta log checkpoint that is not above the oldest version that anything names. The commit of that
very version stays: Spark finds no history in a log that begins with a Delta log checkpoint alone.
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
"""Ends the name of a commit that a power cut has torn and a writer has set aside; it goes with its neighbours."""
_NUMBERED = re.compile(r"(\d{20})\.(json|checkpoint\.parquet|crc|json\.torn)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPrefix:
    """What of a log may go.

    Attributes:
        table: relative to the warehouse.
        until: version up to which, exclusive; it has a Delta log checkpoint, or gets one.
        lacks_checkpoint: whether that is to be written first.
        files: what goes.
    """

    table: str
    until: int
    lacks_checkpoint: bool
    files: tuple[StoredFile, ...]

    @property
    def bytes(self) -> int:
        """Of the files that go."""
        return sum(f.bytes for f in self.files)


def log_version(name: str) -> int | None:
    """The version that a file of a log is of; None for `_last_checkpoint` and what is not ours."""
    found = _NUMBERED.fullmatch(name)
    return None if found is None else int(found[1])


def log_prefix(table: str, log: Sequence[StoredFile], oldest: int) -> LogPrefix | None:
    """The prefix that may go; None where none does, or it is not worth it.

    Args:
        table: relative to the warehouse.
        log: the files of its log.
        oldest: oldest version that anything names, or the newest version where nothing does.
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
