"""The folder of a published table, on a disk or in a bucket: the few operations that its writer needs."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from deltalake import DeltaTable

from tidemark.errors import StoreError
from tidemark.ports import PutOutcome, UncertainPut
from tidemark.storage.local_store import LocalStore, Root, join_path
from tidemark.tables.delta_reader import open_table


@dataclass(frozen=True, slots=True)
class TargetFolder:
    """A folder whose files are written once and never replaced.

    Attributes:
        root: its path, or an open folder of a bucket.
    """

    root: Root

    def __str__(self) -> str:
        return str(self.root) if isinstance(self.root, str) else self.root.place.url

    def put(self, path: str, body: bytes) -> PutOutcome:
        """Writes a file unless it exists; see `ports.CheckpointStore.put_if_absent`.

        Raises:
            StoreError: the folder refuses, or the outcome is unknown.
        """
        if isinstance(self.root, str):
            return LocalStore(Path(self.root)).put_if_absent(path, body)
        try:
            return self.root.put_if_absent(path, body)
        except UncertainPut as error:
            raise StoreError(
                f"the store did not confirm {self}/{path}",
                safe="every checkpoint is intact; the table has the file whole or not at all.",
                next="check the store's health; the next publication continues.",
            ) from error

    def get(self, path: str) -> bytes | None:
        """Returns the bytes of a file, or None.

        Raises:
            StoreError: it cannot be read.
        """
        return LocalStore(Path(self.root)).get(path) if isinstance(self.root, str) else self.root.get(path)

    def read(self, path: str) -> bytes:
        """Returns the bytes of a file.

        Raises:
            StoreError: it does not exist, or cannot be read.
        """
        found = self.get(path)
        if found is None:
            raise StoreError(
                f"{self}/{path} is gone",
                safe="every checkpoint is intact.",
                next="remove the table, so that it is published as a whole.",
            )
        return found

    def list(self, below: str) -> Sequence[str]:
        """Returns the paths of all files with a prefix that ends with `/`, or with an empty one, in order.

        Raises:
            StoreError: it cannot be listed.
        """
        if isinstance(self.root, str):
            root = Path(self.root)
            if not below:
                return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
            return LocalStore(root).list(below)
        return [path for path, _ in self.root.list_sizes(below)]

    def delete(self, path: str) -> None:
        """Deletes a file; does nothing if it is gone.

        Raises:
            StoreError: it cannot be deleted.
        """
        if not isinstance(self.root, str):
            self.root.remove(path)
            return
        try:
            Path(self.root, path).unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(
                f"{self}/{path} cannot be deleted: {error.strerror or error}",
                safe="every checkpoint is intact, and no version of the table names the file.",
                next="correct the permissions of the folder.",
            ) from error

    def open(self, path: str) -> Any:  # noqa: ANN401
        """Opens a file, by its path in the log, for reading at any offset."""
        at = join_path(self.root, unquote(path))
        return at.open("rb") if isinstance(at, Path) else io.BufferedReader(at.open_seekable())

    def table(self) -> DeltaTable:
        """Opens the newest version with deltalake.

        Raises:
            StoreError: it cannot be read.
        """
        return open_table(Path(self.root) if isinstance(self.root, str) else self.root.at(), None)
