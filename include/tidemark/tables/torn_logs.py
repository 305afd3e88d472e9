"""The log of a table on a local disk after a power cut: its complete files, and the table from these alone.

A power cut leaves files that were not fsynced in any state: a name without bytes, half of the bytes, zeros, or no name.
deltalake fsyncs nothing, and opens no table whose newest Delta log checkpoint is torn or only named by the hint
(`_last_checkpoint`), even if the commits are complete. This module never changes a log.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tidemark.model.retention.delta_logs import LOG, log_version

HINT = "_last_checkpoint"
"""The file of a log that names its newest Delta log checkpoint."""


def hinted_version(raw: bytes | None) -> int | None:
    """Returns the version in a hint: None without a hint, -1 if it is torn."""
    if raw is None:
        return None
    try:
        return int(json.loads(raw)["version"])
    except (ValueError, TypeError, LookupError):
        return -1


@dataclass(frozen=True, slots=True)
class LogFolder:
    """A listing of a log.

    Attributes:
        path: the folder.
        commits: versions with a commit file, complete or not.
        checkpoints: versions with a Delta log checkpoint, complete or not.
    """

    path: Path
    commits: frozenset[int]
    checkpoints: frozenset[int]

    @classmethod
    def of(cls, table: Path) -> "LogFolder | None":
        """Lists the log of a table; returns None if there is no such folder.

        Raises:
            OSError: it cannot be listed.
        """
        path = table / LOG
        try:
            names = [p.name for p in path.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return None
        found = [(log_version(name), name) for name in names]
        commits = frozenset(v for v, name in found if v is not None and name.endswith(".json"))
        checkpoints = frozenset(v for v, name in found if v is not None and name.endswith(".checkpoint.parquet"))
        return cls(path, commits, checkpoints)

    @property
    def newest(self) -> int:
        """The newest version with a file; -1 = none."""
        return max((*self.commits, *self.checkpoints), default=-1)

    def hinted(self) -> int | None:
        """Returns the version that the hint names; see `hinted_version`.

        Raises:
            OSError: it cannot be read.
        """
        try:
            return hinted_version((self.path / HINT).read_bytes())
        except FileNotFoundError:
            return None

    def commit(self, version: int) -> Path:
        """Returns the path of a version's commit file."""
        return self.path / f"{version:020d}.json"

    def checkpoint(self, version: int) -> Path:
        """Returns the path of a version's Delta log checkpoint."""
        return self.path / f"{version:020d}.checkpoint.parquet"

    def flaw_of_commit(self, version: int) -> str | None:
        """Returns why a commit is not complete; None if it is.

        Raises:
            OSError: it exists but cannot be read.
        """
        # By its name, because the listing may lack a commit that was made in the meantime.
        try:
            lines = self.commit(version).read_bytes().splitlines()
        except FileNotFoundError:
            return "it is gone"
        try:
            whole = all(isinstance(json.loads(line), dict) for line in lines)
        except ValueError:
            return "it is torn"
        return None if lines and whole else "it is empty" if whole else "it is torn"

    def has_whole_checkpoint(self, version: int) -> bool:
        """Whether the whole Delta log checkpoint can be read."""
        try:
            with pq.ParquetFile(self.checkpoint(version)) as opened:
                opened.read()
        except (pa.ArrowException, OSError):
            return False
        return True

    def base(self, version: int, without: int | None = None) -> int | None:
        """Returns the complete Delta log checkpoint from which a version can be read; -1 = commits alone.

        Args:
            version: the version to read.
            without: a Delta log checkpoint to ignore.

        Returns:
            The version of the newest such Delta log checkpoint; None if a commit is missing or torn.
        """
        following = version
        for base in sorted((v for v in self.checkpoints if v <= version and v != without), reverse=True):
            while following > base and self.flaw_of_commit(following) is None:
                following -= 1
            if following > base:
                return None
            if self.has_whole_checkpoint(base):
                return base
        while following >= 0 and self.flaw_of_commit(following) is None:
            following -= 1
        return None if following >= 0 else -1

    def flaws(self, version: int) -> dict[str, str]:
        """Returns the damage of the files that a reader of a version needs, by name."""
        base = max((v for v in self.checkpoints if v <= version and self.has_whole_checkpoint(v)), default=-1)
        torn = [self.checkpoint(v).name for v in sorted(self.checkpoints) if base < v <= version]
        whys = {self.commit(v).name: self.flaw_of_commit(v) for v in range(base + 1, version + 1)}
        return dict.fromkeys(torn, "it is torn") | {name: why for name, why in whys.items() if why is not None}


@contextmanager
def by_what_is_whole(log: LogFolder, version: int, without: int | None = None) -> Iterator[DeltaTable | None]:
    """Opens a table from the complete files of its log alone, for the block; None if they do not lead to the version.

    Args:
        log: the log of the table.
        version: the version to open.
        without: a Delta log checkpoint to ignore.

    Raises:
        DeltaError, OSError: raised by deltalake.
    """
    base = log.base(version, without)
    if base is None:
        yield None
        return
    with TemporaryDirectory(prefix="tidemark-log-") as aside:
        (folder := Path(aside, LOG)).mkdir()
        needed = [log.commit(v) for v in range(base + 1, version + 1)]
        for path in [*needed, *([log.checkpoint(base)] if base >= 0 else ())]:
            (folder / path.name).symlink_to(path.absolute())
        yield DeltaTable(aside, version=version)


def opened_by_what_is_whole(table: Path, version: int) -> DeltaTable | None:
    """Opens a table at a version for readers, with its actions in memory; None if its log does not lead there."""
    try:
        log = LogFolder.of(table)
        if log is None:
            return None
        with by_what_is_whole(log, version) as found:
            return found
    except (DeltaError, OSError):
        return None


def flaws_of(table: Path, version: int) -> str:
    """Returns the damage of a table's log up to a version, in words; empty if none is found."""
    try:
        log = LogFolder.of(table)
        flaws = {LOG: "it is gone"} if log is None else log.flaws(version)
    except OSError as error:
        flaws = {LOG: f"it cannot be read ({error.strerror or error})"}
    return ", ".join(f"{name}: {why}" for name, why in list(flaws.items())[:3])
