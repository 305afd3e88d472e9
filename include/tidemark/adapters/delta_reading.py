"""What the log of a Delta table says: files of a version with their partition values, commits by their write id."""

import hashlib
import json
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidemark.adapters.located import Located, storage_options
from tidemark.errors import StoreError
from tidemark.ports import LiveFile, WrittenFile


@dataclass(frozen=True, slots=True)
class FoundCommit:
    """One commit file, as it lies in the log."""

    write_id: str | None
    sha256: str


def open_table(path: Located, version: int | None) -> DeltaTable:
    """A table at a version, or at its newest.

    Raises:
        StoreError: no such table or version.
    """
    try:
        return DeltaTable(str(path), version=version, storage_options=storage_options(path))
    except (DeltaError, OSError) as error:
        raise refused(path, f"version {'newest' if version is None else version} is not readable ({error})") from error


def newest(path: Located) -> DeltaTable | None:
    """A table at its newest version; None where nobody has committed one.

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
    """Live files whose `_checkpoint` lies in `(after, through]`, oldest first; by default all."""
    # Not `pa.table`, which imports pandas.
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=False)).read_all()
    found = [_live(row) for row in actions.to_pylist()]
    if through is not None:
        found = [f for f in found if after < f.checkpoint <= through]
    return sorted(found, key=lambda f: (f.checkpoint, -f.level, f.path))


def commit_file(table: Located, version: int) -> Located:
    """The log file of a version."""
    return table / f"_delta_log/{version:020d}.json"


def commit_at(table: Located, version: int) -> FoundCommit | None:
    """The commit of a version, or None where there is none.

    Raises:
        StoreError: the file cannot be read.
    """
    try:
        raw = commit_file(table, version).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refused(table, f"commit {version} is not readable ({error})") from error
    return FoundCommit(_write_id(raw), hashlib.sha256(raw).hexdigest())


def refused(table: Located, why: str) -> StoreError:
    """The error of a table that is not as we left it."""
    return StoreError(
        f"table not usable: {table}: {why}",
        safe="nothing was committed; other restore points may be intact.",
        next="put the table's files back from a backup of the warehouse, then run the pipeline again.",
    )


def _write_id(raw: bytes) -> str | None:
    for line in raw.splitlines():
        try:
            info = json.loads(line).get("commitInfo")
            if info is not None:
                found = info.get("write_id")
                return None if found is None else str(found)
        except (ValueError, AttributeError):
            return None
    return None


def _live(row: dict[str, Any]) -> LiveFile:
    partition = row["partition"]
    bounds = {
        "numRecords": row["num_records"],
        "minValues": _known(row.get("min")),
        "maxValues": _known(row.get("max")),
        "nullCount": _known(row.get("null_count")),
    }
    file = WrittenFile(
        path=row["path"],
        size=row["size_bytes"],
        rows=row["num_records"] or 0,
        stats=json.dumps(bounds, ensure_ascii=False),
    )
    return LiveFile(file=file, level=int(partition["_level"]), checkpoint=int(partition["_checkpoint"]))


def _known(bounds: dict[str, Any] | None) -> dict[str, Any]:
    return {name: _json(value) for name, value in (bounds or {}).items() if _json(value) is not None}


def _json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, date):
        return value.isoformat()
    return value if isinstance(value, str | int | bool) else None
