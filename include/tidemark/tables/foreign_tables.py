"""External Delta tables that broadcast states copy, read with deltalake."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.fs as fs
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidemark.declare.sources import Broadcast, DeltaTable
from tidemark.errors import DataLostError, NotFoundError, StoreError
from tidemark.model.checkpoint.broadcast_copies import TableVersion
from tidemark.processing.broadcasts import checked_rows, misfit
from tidemark.tables.delta_tables import arrow_schema, fits

_UNREADABLE = (DeltaError, OSError, pa.ArrowException)


class DeltaForeignTables:
    """See `ports.ForeignTables`."""

    def newest(self, broadcast: Broadcast) -> TableVersion:
        """See `ports.ForeignTables`."""
        path = _path(broadcast)
        try:
            table = deltalake.DeltaTable(path)
            return TableVersion(id=str(table.metadata().id), version=table.version())
        except TableNotFoundError as error:
            raise NotFoundError(
                f"no Delta table at {path}", next="create it, or correct the path of the DeltaTable."
            ) from error
        except _UNREADABLE as error:
            raise _unreadable(path, error) from error

    def rows(self, broadcast: Broadcast, at: TableVersion) -> Sequence[Mapping[str, Any]]:
        """See `ports.ForeignTables`."""
        path = _path(broadcast)
        try:
            table = deltalake.DeltaTable(path, version=at.version)
            found_id = str(table.metadata().id)
        except (DeltaError, FileNotFoundError) as error:
            raise _lost_version(broadcast.uid, at, str(error)) from error
        except OSError as error:
            raise _unreadable(path, error) from error
        if found_id != at.id:
            raise _lost_version(broadcast.uid, at, f"the table there now has the id {found_id}, not {at.id}")
        try:
            rows = table.to_pyarrow_dataset(filesystem=_local(path))
            found = rows.head(broadcast.max_keys + 1, columns=_columns(broadcast, table))
        except FileNotFoundError as error:
            raise _lost_version(broadcast.uid, at, str(error)) from error
        except _UNREADABLE as error:
            raise _unreadable(path, error) from error
        return checked_rows(broadcast, _typed(broadcast, found).to_pylist())


def _path(broadcast: Broadcast) -> str:
    if not isinstance(broadcast.source, DeltaTable):
        raise TypeError(f"{broadcast.uid} is read from Kafka")
    return broadcast.source.path


def _local(path: str) -> fs.FileSystem | None:
    """Returns Arrow's own local file system; with deltalake's, a process may abort when it exits."""
    return None if "://" in path else fs.SubTreeFileSystem(str(Path(path).absolute()), fs.LocalFileSystem())


def _columns(broadcast: Broadcast, table: deltalake.DeltaTable) -> list[str]:
    there = {f.name for f in table.schema().fields}
    wanted = [name for name, _ in broadcast.source.schema.fields]
    missing = [name for name in wanted if name not in there]
    if missing:
        raise misfit(broadcast, f"there is no column {', '.join(missing)}")
    return wanted


def _typed(broadcast: Broadcast, found: pa.Table) -> pa.Table:
    fields = broadcast.source.schema.fields
    for name, of in fields:
        if not fits(found.schema.field(name).type, of):
            raise misfit(broadcast, f"{name} is {found.schema.field(name).type}, declared {of.sql}")
    try:
        return found.cast(arrow_schema([(name, of.sql) for name, of in fields]))
    except pa.ArrowException as error:
        raise misfit(broadcast, f"a value does not fit its declared type: {error}") from error


def _lost_version(uid: str, at: TableVersion, why: str) -> DataLostError:
    return DataLostError(
        f"data lost: version {at.version} of the table of broadcast state {uid} can no longer be read: {why}",
        safe="every completed checkpoint is intact; nothing was published.",
        next="run the pipeline again: it makes a new plan with the newest version.",
    )


def _unreadable(path: str, error: Exception) -> StoreError:
    return StoreError(
        f"unreadable table: {path}: {error}",
        safe="every completed checkpoint is intact; nothing was published.",
        next="check the table's storage and its Delta features, then run the pipeline again.",
    )
