"""A folder of a bucket, through boto3: puts objects once, sends and fetches files, and detects silent endpoints early.

Credentials come from AWS's standard chain (variables, profiles, roles); none pass through this module. Checksum headers
are sent only if S3 requires them, because older stores refuse them; senders compare by reading back.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

from boto3.s3.transfer import TransferConfig
from botocore.exceptions import BotoCoreError, ClientError, ReadTimeoutError

from tidemark.errors import StoreError
from tidemark.ports import PutOutcome, UncertainPut
from tidemark.storage.bucket_path import BucketPath
from tidemark.storage.s3_errors import (
    BodyCutOffError,
    code_of,
    is_lost,
    is_unsettled,
    translate_body_errors,
    translate_s3_errors,
)
from tidemark.storage.s3_location import S3Access, S3Place

# Objects of a bucket, read to the end: if the body of a reply breaks off, it is requested again from the first byte.
Read = TypeVar("Read")

_READS = 5
_CHUNK = 2**20


def stream_object(client: Any, at: Mapping[str, str], read: Callable[[Iterator[bytes]], Read]) -> Read:
    """Returns the result of `read` for an object; calls it again with new chunks if the stream breaks off.

    Args:
        client: boto3's client.
        at: bucket and key.
        read: takes the object's bytes in chunks.

    Raises:
        ClientError: S3 refuses, or the object does not exist.
        BodyCutOffError: the body has broken off five times.
    """
    for _ in range(_READS - 1):
        with suppress(BodyCutOffError):
            return read(_chunks(client, at))
    return read(_chunks(client, at))


def streamed_if_there(client: Any, at: Mapping[str, str], read: Callable[[Iterator[bytes]], Read]) -> Read | None:
    """Returns the result of `stream_object`; None if the object does not exist."""
    try:
        return stream_object(client, at, read)
    except ClientError as error:
        if code_of(error) == "NoSuchKey":
            return None
        raise


def sha256_of(chunks: Iterator[bytes]) -> str:
    """Returns the hash of the chunks as lower-case hex."""
    made = hashlib.sha256()
    for chunk in chunks:
        made.update(chunk)
    return made.hexdigest()


def _chunks(client: Any, at: Mapping[str, str]) -> Iterator[bytes]:
    with closing(client.get_object(**at)["Body"]) as body, translate_body_errors():
        yield from body.iter_chunks(_CHUNK)


_PUTS = 3
BATCH = 1000
"""Maximum number of keys in one request."""
# botocore's `standard` and `adaptive` modes are for a store that is overloaded: since 1.44 they retry a lost connection
# within three seconds in all, and all requests of a client share about 35 retries. A store that is started again takes
# longer, with any number of requests waiting for it. `legacy` has no such limits, but its delays double without end.
_TIMEOUTS, _TRIES, _LONGEST_DELAY = 8, 30, 2.0
_AWAY = frozenset({500, 502, 503, 504})
_CONNECTIONS = 64
"""More than one answer of a page asks for at a time."""
_QUICK: dict[str, Any] = {
    "max_pool_connections": _CONNECTIONS,
    "connect_timeout": 4,
    "read_timeout": 5,
    "retries": {"mode": "legacy", "total_max_attempts": 2},
}
_PATIENT: dict[str, Any] = {
    "max_pool_connections": _CONNECTIONS,
    "connect_timeout": 5,
    "read_timeout": 30,
    "retries": {"mode": "legacy", "total_max_attempts": _TRIES},
}


def _delay(attempts: int, response: Any, caught_exception: Exception | None, **_: object) -> float | None:
    """Returns the seconds before the next try of a patient client, about a minute in all; None = botocore decides.

    Raises:
        ReadTimeoutError: the store has taken eight calls without an answer.
    """
    if isinstance(caught_exception, ReadTimeoutError) and attempts >= _TIMEOUTS:
        raise caught_exception
    is_failing = caught_exception is not None or response[0].status_code in _AWAY
    if not is_failing or attempts >= _TRIES:
        return None
    return float(min(2.0 ** (attempts - 2), _LONGEST_DELAY))


_TRANSFER = TransferConfig(preferred_transfer_client="classic", max_concurrency=4)
_SENT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Folder:
    """An open folder; all paths are relative to it. As a context manager it closes itself.

    Attributes:
        access: its location, and the credentials.
        patient: retries for about a minute; for work in progress.
        quick: gives up after seconds; for answers that are needed at once, or that do not matter.
        sent: sha256 of the newest objects that `send_compared` has written, until they are needed.
        heads: by location and pipeline, see `ReadAheadStore`.
        answered: set once the store has answered. Until then all requests are quick, so that a command whose store is
            away says so soon.
    """

    access: S3Access
    patient: Any
    quick: Any
    answered: Event = field(default_factory=Event)
    sent: dict[tuple[S3Place, str], str] = field(default_factory=dict, compare=False)
    heads: dict[tuple[S3Place, str], dict[str, int]] = field(default_factory=dict, compare=False)

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
        """Its location."""
        return self.access.place

    def at(self, *parts: str) -> BucketPath:
        """Returns a path in it; empty parts are left out."""
        return BucketPath(self, "/".join(part for part in parts if part))

    def reach(self) -> None:
        """Returns if a store answers, with any answer, within about twelve seconds.

        Raises:
            UsageError: there are no credentials.
            StoreError: the store does not answer.
        """
        # Any answer is enough: the next request gets a bad one too, with a body that says more.
        with translate_s3_errors("reach", self.place.url, self._endpoint), suppress(ClientError):
            self.quick.head_bucket(Bucket=self.place.bucket)

    def get(self, path: str) -> bytes | None:
        """Returns an object's bytes, or None.

        Raises:
            NotFoundError: the bucket does not exist.
            StoreError: it could not be read.
        """
        return self._read_object(path, b"".join)

    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        """Writes an object unless it exists. After a lost reply it reads the object: its own bytes mean success.

        Args:
            path: path of the object.
            body: should contain something random, so that no other writer has equal bytes: after a lost reply, equal
                bytes count as this writer's.

        Raises:
            NotFoundError: the bucket does not exist.
            StoreError: the store refuses.
            UncertainPut: the outcome of the write is unknown.
        """
        unsure = False
        for _ in range(_PUTS):
            with translate_s3_errors("write", self._shown(path), self._endpoint):
                try:
                    self._client.put_object(**self._at(path), Body=body, IfNoneMatch="*")
                    return PutOutcome.WON
                except (ClientError, BotoCoreError) as error:
                    if is_lost(error) and not unsure:
                        return PutOutcome.LOST
                    # boto3 repeats a request by itself, and then finds the object that its first try has written.
                    if not is_unsettled(error):
                        if unsure:
                            raise UncertainPut(path) from error
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
        """Writes a file, in parts if it is large, and replaces the previous object.

        Raises:
            StoreError: it could not be sent; there is no object, or the previous one.
            OSError: the file could not be read.
        """
        with translate_s3_errors("write", self._shown(path), self._endpoint), file.open("rb") as source:
            self.patient.upload_fileobj(source, **self._at(path), Config=_TRANSFER)

    def send_compared(self, path: str, file: Path) -> bool:
        """Writes a file like `send`, and returns whether the store has the bytes that were sent; see `hash_as_sent`.

        An ETag that is the MD5 of the bytes confirms them. Others, such as those of parts and of encryption by KMS, say
        nothing about the bytes, so the object is read back.

        Raises:
            StoreError: it could not be sent, or not be read back.
            OSError: the file could not be read.
        """
        if file.stat().st_size <= _TRANSFER.multipart_threshold:
            body = file.read_bytes()
            with translate_s3_errors("write", self._shown(path), self._endpoint):
                tag = str(self.patient.put_object(**self._at(path), Body=body).get("ETag", "")).strip('"')
            made, told = hashlib.sha256(body).hexdigest(), hashlib.md5(body, usedforsecurity=False).hexdigest()
        else:
            self.send(path, file)
            with file.open("rb") as source:
                made, tag, told = hashlib.file_digest(source, "sha256").hexdigest(), "", "of parts"
        if tag != told and self.hash_of(path) != made:
            return False
        if len(self.sent) >= _SENT:
            self.sent.pop(next(iter(self.sent)), None)
        self.sent[self.place, path] = made
        return True

    def hash_as_sent(self, path: str) -> str | None:
        """Like `hash_of`; an object that this process has sent and compared is not read again the first time.

        Raises:
            StoreError: it could not be read.
        """
        return self.sent.pop((self.place, path), None) or self.hash_of(path)

    def fetch(self, path: str, file: Path) -> None:
        """Reads an object to a file.

        Raises:
            StoreError: it could not be read.
            OSError: the file could not be written.
        """

        def write(chunks: Iterator[bytes]) -> None:
            with file.open("wb") as target:
                target.writelines(chunks)

        with translate_s3_errors("read", self._shown(path), self._endpoint):
            stream_object(self._client, self._at(path), write)

    def hash_of(self, path: str) -> str | None:
        """Returns the sha256 of the stored object as lower-case hex; None if it does not exist.

        Raises:
            StoreError: it could not be read.
        """
        return self._read_object(path, sha256_of)

    def size(self, path: str) -> int | None:
        """Returns the size of an object in bytes, or None.

        Raises:
            StoreError: the store did not answer.
        """
        with translate_s3_errors("read", self._shown(path), self._endpoint):
            try:
                return int(self._client.head_object(**self._at(path))["ContentLength"])
            except ClientError as error:
                if code_of(error) == "404":  # a reply to HEAD has no body that could say more
                    return None
                raise

    def list_sizes(self, below: str, after: str | None = None) -> Iterator[tuple[str, int]]:
        """Yields path and size of objects; see `objects`."""
        return ((path, int(found["Size"])) for path, found in self.objects(below, after))

    def objects(self, below: str, after: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields the path of every object with a prefix, in order of keys, with its entry in the listing.

        Args:
            below: the prefix; `a/` for all objects in a folder.
            after: leave out paths up to this one.

        Raises:
            NotFoundError: the bucket does not exist.
            StoreError: it cannot be listed.
        """
        root = f"{self.place.prefix}/"
        asked = {"Bucket": self.place.bucket, "Prefix": root + below}
        if after is not None:
            asked["StartAfter"] = root + after
        with translate_s3_errors("list", self._shown(below), self._endpoint):
            for page in self._client.get_paginator("list_objects_v2").paginate(**asked):
                for found in page.get("Contents", ()):
                    yield found["Key"].removeprefix(root), found

    def page(self, below: str, after: str, most: int) -> tuple[list[tuple[str, dict[str, Any]]], bool]:
        """Returns one page of `objects`, in one request, and whether there are more.

        Args:
            below: the prefix.
            after: leave out paths up to this one.
            most: the most entries to return, up to 1,000.

        Raises:
            NotFoundError: the bucket does not exist.
            StoreError: it cannot be listed.
        """
        root = f"{self.place.prefix}/"
        asked = {"Bucket": self.place.bucket, "Prefix": root + below, "StartAfter": root + after, "MaxKeys": most}
        with translate_s3_errors("list", self._shown(below), self._endpoint):
            found = self._client.list_objects_v2(**asked)
        entries = [(entry["Key"].removeprefix(root), entry) for entry in found.get("Contents", ())]
        return entries, bool(found["IsTruncated"])

    def has_any(self, below: str) -> bool:
        """Whether any object has a prefix.

        Raises:
            NotFoundError: the bucket does not exist.
            StoreError: it cannot be listed.
        """
        return bool(self.page(below, below, 1)[0])

    def folders(self, below: str = "") -> list[str]:
        """Returns the names of the direct subfolders of a folder, in order.

        Args:
            below: the folder, with its final slash; empty = this one.

        Raises:
            NotFoundError: the bucket does not exist.
            StoreError: it cannot be listed.
        """
        root = f"{self.place.prefix}/{below}"
        asked = {"Bucket": self.place.bucket, "Prefix": root, "Delimiter": "/"}
        with translate_s3_errors("list", self._shown(below), self._endpoint):
            pages = self._client.get_paginator("list_objects_v2").paginate(**asked)
            found = [f["Prefix"] for page in pages for f in page.get("CommonPrefixes", ())]
        return sorted(name.removeprefix(root).removesuffix("/") for name in found)

    def empty(self, below: str) -> None:
        """Removes every object in a folder.

        Raises:
            StoreError: it failed; some objects may have been removed.
        """
        paths = [path for path, _ in self.list_sizes(f"{below}/")]
        for start in range(0, len(paths), BATCH):
            self.remove_all(paths[start : start + BATCH])

    def remove_all(self, paths: Sequence[str]) -> None:
        """Removes up to a thousand objects in one request; missing objects are not an error.

        Raises:
            StoreError: some may have been removed, others not; the message names the first of these.
        """
        keys = [{"Key": f"{self.place.prefix}/{path}"} for path in paths]
        with translate_s3_errors("remove", self._shown(paths[0]), self._endpoint):
            answer = self._client.delete_objects(Bucket=self.place.bucket, Delete={"Objects": keys, "Quiet": True})
        for error in answer.get("Errors", ()):
            raise StoreError(
                f"could not remove s3://{self.place.bucket}/{error['Key']}: S3 answers {error.get('Code', 'unknown')}",
                safe="every remaining restore point is intact.",
                next="allow s3:DeleteObject for these credentials, then repeat the command.",
            )

    def remove(self, path: str) -> None:
        """Removes an object; it gives up soon.

        Raises:
            StoreError: it could not be removed.
        """
        with translate_s3_errors("remove", self._shown(path), self._endpoint):
            self.quick.delete_object(**self._at(path))

    def _read_object(self, path: str, read: Callable[[Iterator[bytes]], Read]) -> Read | None:
        with translate_s3_errors("read", self._shown(path), self._endpoint):
            return streamed_if_there(self._client, self._at(path), read)

    @property
    def _client(self) -> Any:  # noqa: ANN401
        return self.patient if self.answered.is_set() else self.quick

    def _shown(self, path: str) -> str:
        return f"{self.place.url}/{path}"

    def _at(self, path: str) -> dict[str, str]:
        return {"Bucket": self.place.bucket, "Key": f"{self.place.prefix}/{path}"}

    @property
    def _endpoint(self) -> str:
        return str(self.patient.meta.endpoint_url)


def open_folder(place: S3Place) -> S3Folder:
    """Opens a folder without contacting the store; the caller closes its connections.

    Raises:
        UsageError: AWS's variables or profiles are invalid.
    """
    access = S3Access.of(place)
    made = S3Folder(access=access, patient=access.client(_PATIENT), quick=access.client(_QUICK))
    made.patient.meta.events.register_first("needs-retry.s3", _delay)
    for client in (made.patient, made.quick):
        client.meta.events.register("after-call.s3", lambda **_: made.answered.set())
    return made
