"""The location of a warehouse for readers: a local path, or an open folder of a bucket.

Readers use `located(warehouse, ...)` and what both have in common. Nothing of S3 is imported here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tidemark.storage.bucket_path import BucketPath

if TYPE_CHECKING:
    from tidemark.storage.s3_folder import S3Folder
    from tidemark.storage.s3_location import S3Place

Root: TypeAlias = "str | S3Folder"
"""Root of all tables."""
Located: TypeAlias = Path | BucketPath
"""A file or a folder below it."""


def located(warehouse: Root, *parts: str) -> Located:
    """Returns a path in a warehouse."""
    return Path(warehouse, *parts) if isinstance(warehouse, str) else warehouse.at(*parts)


def spark_root(warehouse: Root) -> str:
    """Returns the warehouse as Spark names it."""
    return warehouse if isinstance(warehouse, str) else warehouse.place.spark_url


def address_of(warehouse: Root) -> "str | S3Place":
    """Returns the address of the warehouse for another process, without connections and credentials."""
    return warehouse if isinstance(warehouse, str) else warehouse.place


@contextmanager
def reached(address: "str | S3Place") -> Iterator[Root]:
    """Opens a warehouse by its address, a bucket for the duration of the block and with this process's credentials.

    Raises:
        UsageError: AWS's variables or profiles are invalid.
    """
    if isinstance(address, str):
        yield address
        return
    from tidemark.storage.s3_folder import opened

    with opened(address) as folder:
        yield folder


def relative(warehouse: Root, path: Located) -> str:
    """Returns the path relative to the warehouse."""
    return path.path if isinstance(path, BucketPath) else path.relative_to(str(warehouse)).as_posix()


def size_of(path: Located) -> int:
    """Returns the size of a file in bytes.

    Raises:
        FileNotFoundError: it does not exist.
        OSError, StoreError: it cannot be read.
    """
    return path.size if isinstance(path, BucketPath) else path.stat().st_size


def storage_options(path: Located) -> dict[str, str] | None:
    """Returns deltalake's storage options; None on a disk."""
    return path.storage_options if isinstance(path, BucketPath) else None


def arrow_place(path: Located) -> tuple[str, Any]:
    """Returns the path for pyarrow's readers, and their `filesystem`; None = the local one."""
    return path.arrow if isinstance(path, BucketPath) else (str(path), None)
