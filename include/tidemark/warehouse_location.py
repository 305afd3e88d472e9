"""Where the warehouse is: a folder of this machine or of a bucket, as the settings say."""

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
    """The place of all tables and objects. It loads nothing of S3 and connects to nothing before its first use.

    Args:
        settings: name the warehouse.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def bucket(self) -> "S3Folder | None":
        """The warehouse, if it is a folder of a bucket; its connections close with this object.

        Raises:
            UsageError: AWS's variables do not fit.
        """
        if not isinstance(self._settings.warehouse, S3Url):
            return None
        folder = open_bucket_folder(self._settings, self._settings.warehouse)
        weakref.finalize(self, folder.close)
        return folder

    @property
    def root(self) -> "Root":
        """The root of all tables, as adapters take it."""
        return self.bucket or str(self._settings.warehouse)

    @property
    def local_folder(self) -> Path:
        """The warehouse's folder on this machine; of a warehouse in a bucket, the folder of its locks and scratch."""
        if isinstance(self._settings.warehouse, Path):
            return self._settings.warehouse
        named = hashlib.sha256(f"{self._settings.s3_endpoint} {self._settings.warehouse}".encode()).hexdigest()
        return self._settings.home / "buckets" / named[:16]

    def refuse_unconditional(self) -> None:
        """Checks ahead of each plan that the store keeps the first of two objects with one name, as a disk does.

        Raises:
            NotFoundError: no such bucket.
            StoreError: it does not, or it does not answer.
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
        """The pipelines that have planned a checkpoint, in order of names."""
        if self.bucket is None:
            return sorted(p.parent.name for p in self.local_folder.glob("*/ids") if p.is_dir())
        return [name for name in self.bucket.folders() if not name.startswith(".") and self.has_planned(name)]

    @contextmanager
    def scratch(self, name: str) -> Iterator[str]:
        """A scratch folder, relative to the warehouse; deleted afterwards, with those that dead processes left.

        The lock that marks its owner is on this machine, also where the warehouse is in a bucket: only the host that
        left a scratch folder deletes it.

        Raises:
            StoreError: it cannot be made.
        """
        from tidemark.storage.scratch import scratch_folder

        with scratch_folder(self.local_folder, name, random_id, self._empty_in_bucket) as scratch:
            yield scratch

    def _empty_in_bucket(self, folder: str) -> None:
        if self.bucket is not None:
            self.bucket.empty(folder)

    def arrow(self) -> Any:  # noqa: ANN401
        """The warehouse's file system for pyarrow; None = this machine's.

        Raises:
            UsageError: no credentials.
        """
        return None if self.bucket is None else self.bucket.access.arrow()

    @property
    def spark_conf(self) -> dict[str, str]:
        """What a Spark session needs to reach the warehouse; no secrets, and nothing for a disk."""
        return {} if self.bucket is None else self.bucket.access.spark_conf()


def open_bucket_folder(settings: Settings, url: S3Url) -> "S3Folder":
    """A folder of a bucket; asks nothing of the store yet. The caller closes it.

    Raises:
        UsageError: AWS's variables do not fit.
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
