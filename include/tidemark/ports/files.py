"""The port of retention: what lies below a warehouse, and the only way in which anything of it is deleted."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from tidemark.model.shared_state import StoredFile, TableHistory


class TableFiles(Protocol):
    """Files of tables, with their logs. Called by retention only; paths are relative to the warehouse.

    A listing must be fresh: what was written before it was asked for is in it (local disks and S3 are so).
    """

    def files(self, folder: str) -> Sequence[StoredFile]:
        """Every file below a folder, at any depth, logs included; none where there is no such folder.

        Raises:
            StoreError: it cannot be listed.
        """

    def history(self, table: str) -> TableHistory:
        """Which data files the versions of a table name; reads what was committed since it was asked last.

        Raises:
            StoreError: the log has a hole, or cannot be read: nothing may be deleted then.
        """

    def write_log_checkpoint(self, table: str, version: int) -> None:
        """Writes the Delta log checkpoint of a version, so that the log before it is no longer needed.

        Raises:
            StoreError: it could not be written.
        """

    def delete(self, paths: Iterable[str]) -> int:
        """Deletes files, in order, and folders that are empty then; returns how many files were there.

        A store that does not tell whether a file was there counts each path once.

        Raises:
            StoreError: some may have been deleted; a repetition goes on.
        """
