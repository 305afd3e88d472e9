"""Writes the rows of a patch or a transform into a folder of the warehouse."""

from typing import TYPE_CHECKING, Protocol

from tidemark.context import Context
from tidemark.errors import StoreError
from tidemark.model.checkpoint.manifest import WrittenRun
from tidemark.model.retention.export_manifest import ExportedFile
from tidemark.model.schema.operator_schema import OperatorSchema

if TYPE_CHECKING:
    from tidemark.storage.parquet_folder import ParquetFolder


class StateRows(Protocol):
    """Stored rows of an operator that are not written yet."""

    def write(self, folder: "ParquetFolder", name: str, number: int) -> list[ExportedFile]:
        """Writes them to a folder of a folder; `number` is the id of the checkpoint that makes them."""


def write_state(context: Context, rows: StateRows, schema: OperatorSchema, folder: str, number: int) -> WrittenRun:
    """Writes rows, durably, to a folder relative to the warehouse.

    Args:
        context: of this process.
        rows: the rows.
        schema: their stored schema.
        folder: the folder; no other process uses it.
        number: id of the checkpoint that makes them.

    Raises:
        StoreError: the disk or the bucket refused.
    """
    from tidemark.engine.write.parquet_writer import written_run
    from tidemark.storage.local_store import stage_folder
    from tidemark.storage.parquet_folder import ParquetFolder

    try:
        with stage_folder(context.warehouse.root, folder) as there:
            made = rows.write(ParquetFolder(there.parent), there.name, number)
            return written_run(str(there), sum(f.rows or 0 for f in made), schema.bounded_columns)
    except OSError as error:
        raise StoreError(
            f"could not write {folder}: {error.strerror or error}",
            safe="no checkpoint names the written rows.",
            next="make room or correct the permissions, then repeat the command.",
        ) from error
