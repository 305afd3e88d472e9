"""A path in an open folder of a bucket, with the few methods of `pathlib.Path` that readers of tables need."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tidemark.storage.s3_folder import S3Folder

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class BucketPath:
    """A path; the object need not exist.

    Attributes:
        folder: the folder that it is relative to.
        path: without slashes at its ends; empty for the folder itself.
    """

    folder: "S3Folder"
    path: str

    def __truediv__(self, below: str) -> "BucketPath":
        return self.folder.at(self.path, below)

    def __str__(self) -> str:
        return f"{self.folder.place.url}/{self.path}" if self.path else self.folder.place.url

    @property
    def name(self) -> str:
        """Its last part."""
        return self.path.rpartition("/")[2]

    @property
    def size(self) -> int:
        """Returns the size of the object.

        Raises:
            FileNotFoundError: it does not exist.
            StoreError: the store did not answer.
        """
        return self._require(self.folder.size(self.path))

    def is_file(self) -> bool:
        """Whether the object exists.

        Raises:
            StoreError: the store did not answer.
        """
        return self.folder.size(self.path) is not None

    def read_bytes(self) -> bytes:
        """Returns the bytes of the object.

        Raises:
            FileNotFoundError: it does not exist.
            StoreError: it could not be read.
        """
        return self._require(self.folder.get(self.path))

    def open_seekable(self) -> Any:  # noqa: ANN401
        """Opens the object for reading at any offset; the caller closes it.

        Raises:
            OSError: it does not exist, or the store does not answer.
        """
        path, system = self.arrow
        return system.open_input_file(path)

    def sha256(self) -> str:
        """Returns the sha256 of the object as lower-case hex.

        Raises:
            FileNotFoundError: it does not exist.
            StoreError: it could not be read.
        """
        return self._require(self.folder.hash_of(self.path))

    def sha256_as_sent(self) -> str:
        """Like `sha256`, from memory if this process has just sent the object; see `S3Folder.hash_as_sent`.

        Raises:
            FileNotFoundError: it does not exist.
            StoreError: it could not be read.
        """
        return self._require(self.folder.hash_as_sent(self.path))

    @property
    def storage_options(self) -> dict[str, str]:
        """Returns the storage options of deltalake.

        Raises:
            UsageError: there are no credentials.
        """
        return self.folder.access.storage_options()

    @property
    def arrow(self) -> tuple[str, Any]:
        """Returns the path and the file system for pyarrow.

        Raises:
            UsageError: there are no credentials.
        """
        place = self.folder.place
        return f"{place.bucket}/{place.prefix}/{self.path}", self.folder.access.arrow()

    def _require(self, found: Found | None) -> Found:
        if found is None:
            raise FileNotFoundError(str(self))
        return found
