"""The root of all tables: a folder of this machine or of a bucket, as settings say, and what only that decides."""

import hashlib
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark.model.buckets import S3Url
from tidemark.model.names import checked_name
from tidemark.ports import CheckpointStore
from tidemark.settings import Settings
from tidemark.wiring.s3_urls import opened_folder

if TYPE_CHECKING:
    from tidemark.adapters.located import Root
    from tidemark.adapters.s3_folder import S3Folder


def random_id() -> str:
    """A fresh random id, 32 hex digits."""
    return uuid.uuid4().hex


class Roots:
    """Where the warehouse is. Nothing of S3 is loaded, and no connection made, before somebody asks for it."""

    settings: Settings

    @cached_property
    def bucket(self) -> "S3Folder | None":
        """The warehouse, where it is a folder of a bucket; its connections go with this object.

        Raises:
            UsageError: AWS's variables do not fit.
        """
        if not isinstance(self.settings.warehouse, S3Url):
            return None
        folder = opened_folder(self.settings, self.settings.warehouse)
        weakref.finalize(self, folder.close)
        return folder

    @property
    def root(self) -> "Root":
        """The root of all tables, as adapters take it."""
        return self.bucket or str(self.settings.warehouse)

    @property
    def here(self) -> Path:
        """The warehouse's folder on this machine; of one in a bucket a folder that holds its locks and scratch."""
        if isinstance(self.settings.warehouse, Path):
            return self.settings.warehouse
        named = hashlib.sha256(f"{self.settings.s3_endpoint} {self.settings.warehouse}".encode()).hexdigest()
        return self.settings.home / "buckets" / named[:16]

    def store(self, name: str) -> CheckpointStore:
        """The objects of a pipeline."""
        from tidemark.adapters.local_store import LocalStore

        if self.bucket is None:
            return LocalStore(self.here / checked_name("pipeline", name))
        from tidemark.adapters.s3_store import S3Store

        return S3Store(self.bucket, checked_name("pipeline", name))

    def refuse_unconditional(self) -> None:
        """Returns where the store keeps the first of two objects of one name, as a disk does; asked ahead of each plan.

        Raises:
            NotFoundError: no such bucket.
            StoreError: it does not, or does not answer.
        """
        if self.bucket is not None:
            from tidemark.adapters.s3_store import refuse_unconditional

            refuse_unconditional(self.bucket, random_id)

    def has_begun(self, name: str) -> bool:
        """Whether a pipeline has anything in the warehouse."""
        checked_name("pipeline", name)
        if self.bucket is None:
            return (self.here / name).is_dir()
        return next(self.bucket.listed(f"{name}/"), None) is not None

    def has_planned(self, name: str) -> bool:
        """Whether a pipeline has planned a checkpoint."""
        checked_name("pipeline", name)
        if self.bucket is None:
            return (self.here / name / "ids").is_dir()
        return next(self.bucket.listed(f"{name}/ids/"), None) is not None

    def pipelines(self) -> list[str]:
        """Those that have planned a checkpoint, in order of names."""
        if self.bucket is None:
            return sorted(p.parent.name for p in self.here.glob("*/ids") if p.is_dir())
        return [name for name in self.bucket.folders() if not name.startswith(".") and self.has_planned(name)]

    @contextmanager
    def scratch(self, name: str) -> Iterator[str]:
        """A folder of one's own, relative to the warehouse; gone afterwards, as are those whose owners are gone.

        Of a warehouse in a bucket its owner's lock is on this machine: what another host has left is that host's.

        Raises:
            StoreError: it cannot be made.
        """
        from tidemark.adapters.scratch import scratch_folder

        with scratch_folder(self.here, name, random_id, self._emptied) as scratch:
            yield scratch

    def _emptied(self, folder: str) -> None:
        if self.bucket is not None:
            self.bucket.empty(folder)

    def arrow(self) -> Any:  # noqa: ANN401
        """The warehouse's file system, as pyarrow has it; None = this machine's.

        Raises:
            UsageError: no credentials.
        """
        return None if self.bucket is None else self.bucket.access.arrow()

    @property
    def spark_conf(self) -> dict[str, str]:
        """What a Spark session has to know to reach the warehouse; no secrets, and nothing for a disk."""
        return {} if self.bucket is None else self.bucket.access.spark_conf()
