"""A folder of a bucket by its URL, where a warehouse or an export may be instead of on a disk."""

import re
from dataclasses import dataclass

from tidemark.errors import UsageError

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_FOLDER = re.compile(r"[\w.+=@ -]+(/[\w.+=@ -]+)*")


def is_url(place: str) -> bool:
    """Whether a location is not on this machine's disk."""
    return "://" in place


@dataclass(frozen=True, slots=True)
class S3Url:
    """`s3://BUCKET/FOLDER`.

    Attributes:
        bucket: its bucket.
        prefix: path of the folder in there, without slashes at its ends.
    """

    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    @classmethod
    def parsed(cls, url: str) -> "S3Url":
        """Parses a URL.

        Raises:
            UsageError: the text is not the URL of a folder in a bucket. The message omits it, because it may contain a
                password.
        """
        scheme, _, rest = url.partition("://")
        bucket, _, prefix = rest.partition("/")
        if scheme != "s3":
            raise UsageError(
                "neither a local folder nor a folder in S3", next="name a local folder, or s3://BUCKET/FOLDER."
            )
        if not _BUCKET.fullmatch(bucket):
            raise UsageError("the URL names no bucket", next="write s3://BUCKET/FOLDER; do not put credentials in it.")
        prefix = prefix.removesuffix("/")
        if not _FOLDER.fullmatch(prefix) or {".", ".."} & set(prefix.split("/")):
            raise UsageError(
                f"the URL names no folder in the bucket {bucket}",
                next="write s3://BUCKET/FOLDER; the folder is a path of names joined by slashes.",
            )
        return cls(bucket, prefix)
