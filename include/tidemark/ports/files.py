"""The ports of retention: what lies below a warehouse, the only way to delete of it, and how a key leaves a file."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from tidemark.model.checkpoint.table_writes import LiveFile, WrittenFile
from tidemark.model.retention.erasure import ErasedKey
from tidemark.model.retention.shared_state import StoredFile, TableHistory


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

        It ends before a hole or a torn commit: whoever needs a version above is told so by `TableHistory.live`.

        Raises:
            StoreError: the log cannot be read: nothing may be deleted then.
        """

    def ensure_log_checkpoint(self, table: str, version: int) -> None:
        """Sees to it that the log before a version is no longer needed, not even after a power cut.

        Afterwards the version has a Delta log checkpoint that is whole, says what the commits say, and is durable
        (local disk: file, hint and folder are fsynced, whoever made them). No hint names one below the version.

        Raises:
            StoreError: it could not be written, or made durable.
        """

    def delete(self, paths: Iterable[str]) -> int:
        """Deletes files, in order, and folders that are empty then; returns how many files were there.

        Of a log only behind `ensure_log_checkpoint`.

        A store that does not tell whether a file was there counts each path once.

        Raises:
            StoreError: some may have been deleted; a repetition goes on.
        """


class KeyFiles(Protocol):
    """Data files of state tables, and the keys in them. Called by erasures only."""

    def rows_of(self, table: str, file: LiveFile, key: ErasedKey) -> int:
        """How many rows of a file are of a key.

        Raises:
            StoreError: the file is gone, or cannot be read.
        """

    def without(
        self, table: str, files: Sequence[LiveFile], key: ErasedKey, folder: str
    ) -> Mapping[str, WrittenFile | None]:
        """Writes files again without the rows of a key; all other rows as they are, in their order. Durable.

        Args:
            table: relative to the warehouse.
            files: of the table.
            key: which rows to leave out.
            folder: where to, relative to the warehouse; a folder of the table that is nobody else's.

        Returns:
            By path of each file what stands in its place; None = no row is left.

        Raises:
            StoreError: a file cannot be read, or written.
        """

    def mentions(self, table: str, file: LiveFile, columns: Mapping[str, object]) -> int:
        """How many rows of a file of dead letters, or of a sink, hold a key.

        Args:
            table: relative to the warehouse.
            file: of the table.
            columns: key columns with their values. Rows are compared in these columns where the file has all of them;
                else, where it has raw keys and values, their texts are searched for all values.

        Raises:
            StoreError: the file is gone, or cannot be read.
        """
