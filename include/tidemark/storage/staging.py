"""Folders of data files that this process writes itself: in place on a disk, uploaded when complete to a bucket."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tidemark.errors import StoreError
from tidemark.storage.file_hashes import hash_of
from tidemark.storage.warehouse_path import Root

if TYPE_CHECKING:
    from tidemark.storage.s3_folder import S3Folder


@contextmanager
def filled(warehouse: Root, folder: str) -> Iterator[Path]:
    """Yields a local folder to write to; after the block, its files are in the warehouse.

    Args:
        warehouse: root of all tables.
        folder: path relative to it; no other process uses it. The yielded folder has the same name; on a disk, the
            caller creates it.

    Raises:
        StoreError: a bucket refuses the files, or returns different bytes.
        OSError: the disk refused.
    """
    if isinstance(warehouse, str):
        yield Path(warehouse, folder)
        return
    with TemporaryDirectory(prefix="tidemark-") as aside:
        local = Path(aside, folder.rpartition("/")[2])
        yield local
        for path in sorted(p for p in local.rglob("*") if p.is_file()):
            _send(warehouse, f"{folder}/{path.relative_to(local).as_posix()}", path)


def _send(warehouse: "S3Folder", path: str, file: Path) -> None:
    warehouse.send(path, file)
    if warehouse.hash_of(path) != hash_of(file):
        raise StoreError(
            f"{warehouse.at(path)}: the store returns different bytes than were sent",
            safe="no record names the uploaded file.",
            next="repeat the command; if that does not help, check the store.",
        )
