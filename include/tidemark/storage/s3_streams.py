"""Objects of a bucket read to their ends: a reply whose body breaks off is asked for again, from the first byte."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from typing import Any, TypeVar

from botocore.exceptions import ClientError

from tidemark.storage.s3_errors import BodyCutOffError, body_told, code_of

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
