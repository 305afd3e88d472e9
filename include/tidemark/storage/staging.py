"""Folders of data files that this process writes itself: in place on a disk, sent when they are whole to a bucket."""

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
    """A folder of this machine to write to; when the block ends, its files are below the warehouse.

    Args:
        warehouse: root of all tables.
        folder: relative to it; nobody else's. The folder that is yielded has the same name; on a disk it is made by
            whoever writes to it.

    Raises:
        StoreError: a bucket does not take the files, or gives back something else.
        OSError: the disk.
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
            f"{warehouse.at(path)}: the store gives back something else than was sent",
            safe="nothing names what was sent.",
            next="repeat the command; if that does not help, look at the store.",
        )
