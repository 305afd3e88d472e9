"""The location of the warehouse: a local folder or a folder of a bucket, as the settings say."""

import hashlib
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark.model.core.bucket_url import S3Url
from tidemark.model.core.names import checked_name
from tidemark.settings import Settings
from tidemark.system import random_id

if TYPE_CHECKING:
    from tidemark.storage.s3_folder import S3Folder
    from tidemark.storage.warehouse_path import Root


class WarehouseLocation:
    """The location of all tables and objects. It imports and connects to nothing before its first use.

    Args:
        settings: contains the warehouse.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def bucket(self) -> "S3Folder | None":
        """The warehouse if it is in a bucket, else None; its connections close with this object.

        Raises:
            UsageError: the variables of AWS are invalid.
        """
        if not isinstance(self._settings.warehouse, S3Url):
            return None
        folder = open_bucket_folder(self._settings, self._settings.warehouse)
        weakref.finalize(self, folder.close)
        return folder

    @property
    def root(self) -> "Root":
        """The root of all tables, as the table classes take it."""
        return self.bucket or str(self._settings.warehouse)

    @property
    def local_folder(self) -> Path:
        """The local folder of the warehouse; for a warehouse in a bucket, the folder of its locks and scratch files."""
        if isinstance(self._settings.warehouse, Path):
            return self._settings.warehouse
        named = hashlib.sha256(f"{self._settings.s3_endpoint} {self._settings.warehouse}".encode()).hexdigest()
        return self._settings.home / "buckets" / named[:16]

    def refuse_unconditional(self) -> None:
        """Checks that the store supports conditional writes: of two objects with one name, the first must stay.

        Raises:
            NotFoundError: the bucket does not exist.
            StoreError: the store does not support them, or does not answer.
        """
        if self.bucket is not None:
            from tidemark.storage.s3_store import refuse_unconditional

            refuse_unconditional(self.bucket, random_id)

    def has_begun(self, name: str) -> bool:
        """Whether a pipeline has anything in the warehouse."""
        checked_name("pipeline", name)
        if self.bucket is None:
            return (self.local_folder / name).is_dir()
        return next(self.bucket.listed(f"{name}/"), None) is not None

    def has_planned(self, name: str) -> bool:
        """Whether a pipeline has planned a checkpoint."""
        checked_name("pipeline", name)
        if self.bucket is None:
            return (self.local_folder / name / "ids").is_dir()
        return next(self.bucket.listed(f"{name}/ids/"), None) is not None

    def list_pipelines(self) -> list[str]:
        """Returns the pipelines that have planned a checkpoint, ordered by name."""
        if self.bucket is None:
            return sorted(p.parent.name for p in self.local_folder.glob("*/ids") if p.is_dir())
        return [name for name in self.bucket.folders() if not name.startswith(".") and self.has_planned(name)]

    @contextmanager
    def scratch(self, name: str) -> Iterator[str]:
        """Yields a scratch folder relative to the warehouse, then deletes it, with those that dead processes have left.

        The lock that marks its owner is on this machine, even if the warehouse is in a bucket, so only the host that
        left a scratch folder deletes it.

        Raises:
            StoreError: the folder cannot be created.
        """
        from tidemark.storage.scratch import scratch_folder

        with scratch_folder(self.local_folder, name, random_id, self._empty_in_bucket) as scratch:
            yield scratch

    def _empty_in_bucket(self, folder: str) -> None:
        if self.bucket is not None:
            self.bucket.empty(folder)

    def arrow(self) -> Any:  # noqa: ANN401
        """Returns the warehouse's file system for pyarrow; None = the local file system.

        Raises:
            UsageError: there are no credentials.
        """
        return None if self.bucket is None else self.bucket.access.arrow()

    @property
    def spark_conf(self) -> dict[str, str]:
        """The configuration with which Spark reaches a bucket, without secrets; empty for a local warehouse."""
        return {} if self.bucket is None else self.bucket.access.spark_conf()


def open_bucket_folder(settings: Settings, url: S3Url) -> "S3Folder":
    """Opens a folder of a bucket without contacting the store; the caller closes it.

    Raises:
        UsageError: the variables of AWS are invalid.
    """
    from tidemark.storage.s3_folder import opened
    from tidemark.storage.s3_location import S3Place

    return opened(
        S3Place(
            bucket=url.bucket,
            prefix=url.prefix,
            endpoint=settings.s3_endpoint,
            region=settings.s3_region,
            path_style=settings.s3_path_style,
        )
    )
