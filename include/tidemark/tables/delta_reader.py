"""Reads the log of a Delta table: files of a version with their partition values, and commits with their write ids."""

import hashlib
import json
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidemark.errors import StoreError
from tidemark.model.checkpoint.segments import Segment
from tidemark.ports import LiveFile, WrittenFile
from tidemark.storage.bucket_path import BucketPath
from tidemark.storage.warehouse_path import Located, storage_options
from tidemark.tables.torn_logs import flaws_of, opened_by_what_is_whole

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


def open_table(path: Located, version: int | None) -> DeltaTable:
    """Opens a table at a version, or at its newest one.

    If a power cut has torn files of the log, the version is opened from the other files, if these suffice. The result
    is for readers: writers repair the log first (`log_repair`).

    Raises:
        StoreError: there is no such table or version.
    """
    try:
        return DeltaTable(str(path), version=version, storage_options=storage_options(path))
    except (DeltaError, OSError) as error:
        torn = ""
        if version is not None and not isinstance(path, BucketPath):
            found = opened_by_what_is_whole(path, version)
            if found is not None:
                return found
            torn = flaws_of(path, version)
        what = "newest" if version is None else version
        raise refused(path, f"version {what} is not readable ({torn or error})") from error


def newest(path: Located) -> DeltaTable | None:
    """Opens a table at its newest version; returns None if it has no commits.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        return DeltaTable(str(path), storage_options=storage_options(path))
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise refused(path, f"its newest version is not readable ({error})") from error


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


def segment_files(path: Located, segment: Segment, table: DeltaTable | None = None) -> list[LiveFile]:
    """Returns the files of a segment, oldest first: exactly the committed ones.

    Args:
        path: path of the table.
        segment: a segment of the table.
        table: the table at the segment's version; opened here if it is missing.

    Raises:
        StoreError: the table has no such version, or has other files in it than the segment names: an action was lost.
    """
    table = open_table(path, segment.version) if table is None else table
    found = files_in(table, segment.after, segment.through)
    why = segment.difference((f.file.size, f.file.rows) for f in found)
    if why is not None:
        torn = "" if isinstance(path, BucketPath) else flaws_of(path, segment.version)
        raise refused(path, f"version {segment.version} differs from its commit: {why}{torn and f' ({torn})'}")
    return found


def commit_file(table: Located, version: int) -> Located:
    """Returns the log file of a version."""
    return table / f"_delta_log/{version:020d}.json"


def commit_at(table: Located, version: int) -> FoundCommit | None:
    """Returns the commit of a version, or None if there is none.

    Raises:
        StoreError: the file cannot be read.
    """
    try:
        raw = commit_file(table, version).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refused(table, f"commit {version} is not readable ({error})") from error
    info = _commit_info(raw)
    write_id, parent = info.get("write_id"), str(info.get(PARENT, ""))
    return FoundCommit(
        write_id=None if write_id is None else str(write_id),
        sha256=hashlib.sha256(raw).hexdigest(),
        parent=int(parent) if parent.isdecimal() else -1,
    )


def refused(table: Located, why: str) -> StoreError:
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
