"""A folder of a bucket, by boto3: objects put once, files sent and fetched; endpoints that are silent, found out early.

Credentials come from the chain that every AWS client asks (variables, profiles, roles); nothing of them passes here.
Checksum headers are sent only where S3 wants them, because older stores refuse them; who sends compares by reading.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from boto3.s3.transfer import TransferConfig
from botocore.exceptions import BotoCoreError, ClientError

from tidemark.errors import StoreError
from tidemark.ports import PutOutcome, UncertainPut
from tidemark.storage.bucket_path import BucketPath
from tidemark.storage.s3_errors import BodyCutOffError, body_told, code_of, is_lost, is_unsettled, mapped
from tidemark.storage.s3_location import S3Access, S3Place

# Objects of a bucket read to their ends: a reply whose body breaks off is asked for again, from the first byte.
Read = TypeVar("Read")

_READS = 5
_CHUNK = 2**20


def streamed(client: Any, at: Mapping[str, str], read: Callable[[Iterator[bytes]], Read]) -> Read:
    """What `read` makes of an object; called again with new chunks where the stream breaks off.

    Args:
        client: boto3's.
        at: bucket and key.
        read: takes the object's bytes in chunks.

    Raises:
        ClientError: S3 refuses, or there is no such object.
        BodyCutOffError: the body has broken off five times.
    """
    for _ in range(_READS - 1):
        with suppress(BodyCutOffError):
            return read(_chunks(client, at))
    return read(_chunks(client, at))


def streamed_if_there(client: Any, at: Mapping[str, str], read: Callable[[Iterator[bytes]], Read]) -> Read | None:
    """As `streamed`; None where there is no such object."""
    try:
        return streamed(client, at, read)
    except ClientError as error:
        if code_of(error) == "NoSuchKey":
            return None
        raise


def sha256_of(chunks: Iterator[bytes]) -> str:
    """The hash of what comes, as lower-case hex."""
    made = hashlib.sha256()
    for chunk in chunks:
        made.update(chunk)
    return made.hexdigest()


def _chunks(client: Any, at: Mapping[str, str]) -> Iterator[bytes]:
    with closing(client.get_object(**at)["Body"]) as body, body_told():
        yield from body.iter_chunks(_CHUNK)


_PUTS = 3
BATCH = 1000
"""As many keys as one request may name."""
_QUICK: dict[str, Any] = {
    "connect_timeout": 4,
    "read_timeout": 5,
    "retries": {"mode": "standard", "total_max_attempts": 2},
}
_PATIENT: dict[str, Any] = {
    "connect_timeout": 5,
    "read_timeout": 30,
    "retries": {"mode": "adaptive", "total_max_attempts": 8},
}
_TRANSFER = TransferConfig(preferred_transfer_client="classic", max_concurrency=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Folder:
    """An open folder; all paths are relative to it. As a context manager it closes itself.

    Attributes:
        access: where it is, and by which credentials it is reached.
        patient: retries for minutes; for work that is under way.
        quick: gives up after seconds; for what has to be known at once, or does not matter.
    """

    access: S3Access
    patient: Any
    quick: Any

    def __enter__(self) -> "S3Folder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self.patient.close()
        self.quick.close()

    @property
    def place(self) -> S3Place:
        """Where it is."""
        return self.access.place

    def at(self, *parts: str) -> BucketPath:
        """A path in it; empty parts are left out."""
        return BucketPath(self, "/".join(part for part in parts if part))

    def reach(self) -> None:
        """Returns where a store answers, whatever it answers, within about twelve seconds.

        Raises:
            UsageError: no credentials.
            StoreError: nobody answers.
        """
        # Any answer will do: the next request is told of a bad one too, with a body that says more.
        with mapped("reach", self.place.url, self._endpoint), suppress(ClientError):
            self.quick.head_bucket(Bucket=self.place.bucket)

    def get(self, path: str) -> bytes | None:
        """An object's bytes, or None.

        Raises:
            NotFoundError: no such bucket.
            StoreError: it could not be read.
        """
        return self._found(path, b"".join)

    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        """Writes an object unless it exists. A reply that was lost is settled by reading: one's own bytes have won.

        Args:
            path: of the object.
            body: should hold something random, so that nobody else's bytes are equal: after a lost reply they count
                as one's own.

        Raises:
            NotFoundError: no such bucket.
            StoreError: the store refuses.
            UncertainPut: nobody answers whether it was written.
        """
        unsure = False
        for _ in range(_PUTS):
            with mapped("write", self._shown(path), self._endpoint):
                try:
                    self.patient.put_object(**self._at(path), Body=body, IfNoneMatch="*")
                    return PutOutcome.WON
                except (ClientError, BotoCoreError) as error:
                    if is_lost(error) and not unsure:
                        return PutOutcome.LOST
                    # boto3 repeats a request by itself, and then meets what its first try has written.
                    if not is_unsettled(error):
                        raise
                    unsure = True
            try:
                found = self.get(path)
            except StoreError as error:
                raise UncertainPut(path) from error
            if found is not None:
                return PutOutcome.WON if found == body else PutOutcome.LOST
        raise UncertainPut(path)

    def send(self, path: str, file: Path) -> None:
        """Writes a file, in parts where it is large; what the object held before is replaced.

        Raises:
            StoreError: it could not be sent; no object is there, or the one that was there before.
            OSError: the file could not be read.
        """
        with mapped("write", self._shown(path), self._endpoint), file.open("rb") as source:
            self.patient.upload_fileobj(source, **self._at(path), Config=_TRANSFER)

    def fetch(self, path: str, file: Path) -> None:
        """Reads an object to a file.

        Raises:
            StoreError: it could not be read.
            OSError: the file could not be written.
        """

        def write(chunks: Iterator[bytes]) -> None:
            with file.open("wb") as target:
                target.writelines(chunks)

        with mapped("read", self._shown(path), self._endpoint):
            streamed(self.patient, self._at(path), write)

    def hash_of(self, path: str) -> str | None:
        """sha256 of what the store gives back, as lower-case hex; None where there is no such object.

        Raises:
            StoreError: it could not be read.
        """
        return self._found(path, sha256_of)

    def size(self, path: str) -> int | None:
        """Bytes of an object, or None.

        Raises:
            StoreError: the store could not be asked.
        """
        with mapped("read", self._shown(path), self._endpoint):
            try:
                return int(self.patient.head_object(**self._at(path))["ContentLength"])
            except ClientError as error:
                if code_of(error) == "404":  # a reply to HEAD has no body that could say more
                    return None
                raise

    def listed(self, below: str, after: str | None = None) -> Iterator[tuple[str, int]]:
        """Path and bytes of objects: as `objects`."""
        return ((path, int(found["Size"])) for path, found in self.objects(below, after))

    def objects(self, below: str, after: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Path of every object whose path begins so, in order of keys, with what a listing says of it.

        Args:
            below: how it begins; `a/` for all in a folder.
            after: leave out what is not after this path.

        Raises:
            NotFoundError: no such bucket.
            StoreError: it cannot be listed.
        """
        root = f"{self.place.prefix}/"
        asked = {"Bucket": self.place.bucket, "Prefix": root + below}
        if after is not None:
            asked["StartAfter"] = root + after
        with mapped("list", self._shown(below), self._endpoint):
            for page in self.patient.get_paginator("list_objects_v2").paginate(**asked):
                for found in page.get("Contents", ()):
                    yield found["Key"].removeprefix(root), found

    def folders(self) -> list[str]:
        """Names of the folders right below, in order.

        Raises:
            NotFoundError: no such bucket.
            StoreError: it cannot be listed.
        """
        root = f"{self.place.prefix}/"
        asked = {"Bucket": self.place.bucket, "Prefix": root, "Delimiter": "/"}
        with mapped("list", self.place.url, self._endpoint):
            pages = self.patient.get_paginator("list_objects_v2").paginate(**asked)
            found = [f["Prefix"] for page in pages for f in page.get("CommonPrefixes", ())]
        return sorted(name.removeprefix(root).removesuffix("/") for name in found)

    def empty(self, below: str) -> None:
        """Removes every object in a folder.

        Raises:
            StoreError: some may have been removed.
        """
        paths = [path for path, _ in self.listed(f"{below}/")]
        for start in range(0, len(paths), BATCH):
            self.remove_all(paths[start : start + BATCH])

    def remove_all(self, paths: Sequence[str]) -> None:
        """Removes objects, a thousand at most, in one request; those that are not there are no error.

        Raises:
            StoreError: some may have been removed, others not; the first one of these is named.
        """
        keys = [{"Key": f"{self.place.prefix}/{path}"} for path in paths]
        with mapped("remove", self._shown(paths[0]), self._endpoint):
            told = self.patient.delete_objects(Bucket=self.place.bucket, Delete={"Objects": keys, "Quiet": True})
        for error in told.get("Errors", ()):
            raise StoreError(
                f"could not remove s3://{self.place.bucket}/{error['Key']}: S3 says {error.get('Code', 'unknown')}",
                safe="every restore point that is kept is intact.",
                next="allow s3:DeleteObject for these credentials, then repeat the command.",
            )

    def remove(self, path: str) -> None:
        """Removes an object; gives up soon.

        Raises:
            StoreError: it could not be removed.
        """
        with mapped("remove", self._shown(path), self._endpoint):
            self.quick.delete_object(**self._at(path))

    def _found(self, path: str, read: Callable[[Iterator[bytes]], Read]) -> Read | None:
        with mapped("read", self._shown(path), self._endpoint):
            return streamed_if_there(self.patient, self._at(path), read)

    def _shown(self, path: str) -> str:
        return f"{self.place.url}/{path}"

    def _at(self, path: str) -> dict[str, str]:
        return {"Bucket": self.place.bucket, "Key": f"{self.place.prefix}/{path}"}

    @property
    def _endpoint(self) -> str:
        return str(self.patient.meta.endpoint_url)


def opened(place: S3Place) -> S3Folder:
    """The folder; its connections are closed by whoever opens it. Asks nothing of the store.

    Raises:
        UsageError: AWS's variables or profiles do not fit.
    """
    access = S3Access.of(place)
    return S3Folder(access=access, patient=access.client(_PATIENT), quick=access.client(_QUICK))
