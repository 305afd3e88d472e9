"""Reads the log of a Delta table: files of a version with their partition values, and commits with their write ids."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidemark.errors import StoreError
from tidemark.model.checkpoint.segments import LOG, Segment, log_version
from tidemark.ports import LiveFile, WrittenFile
from tidemark.storage.bucket_path import BucketPath
from tidemark.storage.local_store import WarehousePath, storage_options

# The log of a table on a local disk after a power cut: its complete files, and the table from these alone.
#
# A power cut leaves files that were not fsynced in any state: a name without bytes, half of the bytes, zeros, or no
# name. deltalake fsyncs nothing, and opens no table whose newest Delta log checkpoint is torn or only named by the hint
# (`_last_checkpoint`), even if the commits are complete. This part never changes a log.
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
                opened.read(use_threads=False)  # a table of files is small: threads would take longer
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


PARENT = "tidemark_parent"
"""Metadata of a commit: the version of its input, if it had one."""


@dataclass(frozen=True, slots=True)
class FoundCommit:
    """One commit file in the log.

    Attributes:
        write_id: id of the writer; None if Tidemark did not write the commit.
        sha256: hash of its bytes.
        parent: the version of its input, which was durable before; -1 if there was none, or it is not recorded.
    """

    write_id: str | None
    sha256: str
    parent: int = -1


def open_table(path: WarehousePath, version: int | None) -> DeltaTable:
    """Opens a table at a version, or at its newest one.

    If a power cut has torn files of the log, the version is opened from the other files, if these suffice. The result
    is for readers: writers repair the log first (`log_repair`).

    Raises:
        StoreError: there is no such table or version.
    """
    try:
        return DeltaTable(str(path), version=version, storage_options=storage_options(path))
    except (DeltaError, OSError) as error:
        refuse_away(path, error)
        torn = ""
        if version is not None and not isinstance(path, BucketPath):
            found = opened_by_what_is_whole(path, version)
            if found is not None:
                return found
            torn = flaws_of(path, version)
        what = "newest" if version is None else version
        raise unusable_table(path, f"version {what} is not readable ({torn or error})") from error


def newest(path: WarehousePath) -> DeltaTable | None:
    """Opens a table at its newest version; returns None if it has no commits.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        return DeltaTable(str(path), storage_options=storage_options(path))
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        refuse_away(path, error)
        raise unusable_table(path, f"its newest version is not readable ({error})") from error


def files_in(table: DeltaTable, after: int = 0, through: int | None = None) -> list[LiveFile]:
    """Returns live files whose `_checkpoint` lies in `(after, through]`, oldest first; by default all."""
    # Not `pa.table`, which imports pandas.
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=False)).read_all()
    found = [_live(row) for row in actions.to_pylist()]
    if through is not None:
        found = [f for f in found if after < f.checkpoint <= through]
    return sorted(found, key=lambda f: (f.checkpoint, -f.level, f.path))


def written_by(table: DeltaTable, checkpoint: int, attempt: int) -> bool:
    """Whether a version of a table contains a file that an attempt wrote."""
    folder = f"{checkpoint}.{attempt}/"
    return any(f.path.startswith(folder) for f in files_in(table, checkpoint - 1, checkpoint))


def segment_files(path: WarehousePath, segment: Segment, live: Sequence[LiveFile] | None = None) -> list[LiveFile]:
    """Returns the files of a segment, oldest first: exactly the committed ones.

    Args:
        path: path of the table.
        segment: a segment of the table.
        live: the files of the table at the segment's version, oldest first; read here if they are missing.

    Raises:
        StoreError: the table has no such version, or has other files in it than the segment names: an action was lost.
    """
    live = files_in(open_table(path, segment.version)) if live is None else live
    found = [f for f in live if segment.after < f.checkpoint <= segment.through]
    why = segment.difference((f.file.size, f.file.rows) for f in found)
    if why is not None:
        torn = "" if isinstance(path, BucketPath) else flaws_of(path, segment.version)
        raise unusable_table(path, f"version {segment.version} differs from its commit: {why}{torn and f' ({torn})'}")
    return found


def commit_file(table: WarehousePath, version: int) -> WarehousePath:
    """Returns the log file of a version."""
    return table / f"_delta_log/{version:020d}.json"


def commit_at(table: WarehousePath, version: int) -> FoundCommit | None:
    """Returns the commit of a version, or None if there is none.

    Raises:
        StoreError: the file cannot be read.
    """
    try:
        raw = commit_file(table, version).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unusable_table(table, f"commit {version} is not readable ({error})") from error
    return parse_commit(raw)


def parse_commit(raw: bytes) -> FoundCommit:
    """Returns a commit by the bytes of its file."""
    info = _commit_info(raw)
    write_id, parent = info.get("write_id"), str(info.get(PARENT, ""))
    return FoundCommit(
        write_id=None if write_id is None else str(write_id),
        sha256=hashlib.sha256(raw).hexdigest(),
        parent=int(parent) if parent.isdecimal() else -1,
    )


def refuse_away(path: WarehousePath, error: Exception) -> None:
    """Refuses if deltalake failed because a store did not answer, or answered an error: the table may be whole.

    Raises:
        StoreError: the store, without texts of its own, which have many lines and may hold secrets.
    """
    if not isinstance(path, BucketPath) or "S3 error" not in str(error):
        return
    status = re.search(r"\b[45]\d\d\b(?= [A-Z])", str(error))
    raise StoreError(
        f"could not read or write the log of {path}: S3 answers {f'HTTP {status[0]}' if status else 'nothing'}",
        safe="every completed checkpoint is intact.",
        next="check the store, its permissions and TIDEMARK_S3_ENDPOINT, then repeat the command.",
    ) from error


def unusable_table(table: WarehousePath, why: str) -> StoreError:
    """Returns the error for a table that differs from its last commit."""
    return StoreError(
        f"unusable table: {table}: {why}",
        safe="nothing was committed; other restore points may be intact.",
        next="restore the table's files from a backup of the warehouse, then run the pipeline again.",
    )


def _commit_info(raw: bytes) -> dict[str, Any]:
    for line in raw.splitlines():
        try:
            info = json.loads(line).get("commitInfo")
        except (ValueError, AttributeError):
            return {}
        if isinstance(info, dict):
            return info
    return {}


def _live(row: dict[str, Any]) -> LiveFile:
    partition = row["partition"]
    bounds = {
        "numRecords": row["num_records"],
        "minValues": _known_statistics(row.get("min")),
        "maxValues": _known_statistics(row.get("max")),
        "nullCount": _known_statistics(row.get("null_count")),
    }
    file = WrittenFile(
        path=row["path"],
        size=row["size_bytes"],
        rows=row["num_records"] or 0,
        stats=json.dumps(bounds, ensure_ascii=False),
    )
    return LiveFile(file=file, level=int(partition["_level"]), checkpoint=int(partition["_checkpoint"]))


def _known_statistics(bounds: dict[str, Any] | None) -> dict[str, Any]:
    return {name: _json(value) for name, value in (bounds or {}).items() if _json(value) is not None}


def _json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, date):
        return value.isoformat()
    return value if isinstance(value, str | int | bool) else None
