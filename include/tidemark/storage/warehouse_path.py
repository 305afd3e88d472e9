"""Where a warehouse lies, for those who read it: a folder of this machine by its path, or an open folder of a bucket.

Readers say `located(warehouse, ...)` and go on with what both have in common. Nothing of S3 is loaded here.
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
    """A path below a warehouse."""
    return Path(warehouse, *parts) if isinstance(warehouse, str) else warehouse.at(*parts)


def spark_root(warehouse: Root) -> str:
    """The warehouse as Spark names it."""
    return warehouse if isinstance(warehouse, str) else warehouse.place.spark_url


def address_of(warehouse: Root) -> "str | S3Place":
    """The warehouse as another process is told of it: without connections and credentials."""
    return warehouse if isinstance(warehouse, str) else warehouse.place


@contextmanager
def reached(address: "str | S3Place") -> Iterator[Root]:
    """A warehouse by its address; of a bucket it is open while the block lasts, by this process's own credentials.

    Raises:
        UsageError: AWS's variables or profiles do not fit.
    """
    if isinstance(address, str):
        yield address
        return
    from tidemark.storage.s3_folder import opened

    with opened(address) as folder:
        yield folder


def relative(warehouse: Root, path: Located) -> str:
    """The path relative to the warehouse."""
    return path.path if isinstance(path, BucketPath) else path.relative_to(str(warehouse)).as_posix()


def size_of(path: Located) -> int:
    """Bytes of a file.

    Raises:
        FileNotFoundError: it is not there.
        OSError, StoreError: it cannot be asked for.
    """
    return path.size if isinstance(path, BucketPath) else path.stat().st_size


def storage_options(path: Located) -> dict[str, str] | None:
    """What deltalake needs beside the path; None on a disk."""
    return path.storage_options if isinstance(path, BucketPath) else None


def arrow_place(path: Located) -> tuple[str, Any]:
    """The path as pyarrow's readers take it, and their `filesystem`; None = this machine's."""
    return path.arrow if isinstance(path, BucketPath) else (str(path), None)
