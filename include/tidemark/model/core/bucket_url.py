"""A folder of a bucket by its URL: where a warehouse or an export may be, beside the disk."""

import re
from dataclasses import dataclass

from tidemark.errors import UsageError

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_FOLDER = re.compile(r"[\w.+=@ -]+(/[\w.+=@ -]+)*")


def is_url(place: str) -> bool:
    """Whether a place is none on this machine's disk."""
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
        """The URL in a text.

        Raises:
            UsageError: it is no URL of a folder in a bucket. It is not repeated, because somebody may have put a
                password into it.
        """
        scheme, _, rest = url.partition("://")
        bucket, _, prefix = rest.partition("/")
        if scheme != "s3":
            raise UsageError(
                "neither a folder of this machine nor one of S3", next="name a local folder, or s3://BUCKET/FOLDER."
            )
        if not _BUCKET.fullmatch(bucket):
            raise UsageError(
                "the URL names no bucket", next="write s3://BUCKET/FOLDER; credentials have no place in it."
            )
        prefix = prefix.removesuffix("/")
        if not _FOLDER.fullmatch(prefix) or {".", ".."} & set(prefix.split("/")):
            raise UsageError(
                f"the URL names no folder in the bucket {bucket}",
                next="write s3://BUCKET/FOLDER; a folder has words, joined by slashes.",
            )
        return cls(bucket, prefix)
