"""Exports by URL: `s3://BUCKET/FOLDER`. Nothing of S3 is loaded before such a URL is opened."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidemark.errors import UsageError
from tidemark.settings import Settings

if TYPE_CHECKING:
    from tidemark.adapters.s3_exports import S3Export

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_FOLDER = re.compile(r"[\w.+=@ -]+(/[\w.+=@ -]+)*")


def is_url(place: str) -> bool:
    """Whether an export's place is none on this machine's disk."""
    return "://" in place


@contextmanager
def opened_export(settings: Settings, url: str) -> Iterator["S3Export"]:
    """The place of an export in a bucket, while a block lasts. Asks nothing of the store yet.

    Raises:
        UsageError: no URL of a folder in a bucket, or AWS's variables do not fit. The URL is not repeated, because
            somebody may have put a password into it.
    """
    bucket, prefix = _parsed(url)
    from tidemark.adapters.s3_exports import S3Export
    from tidemark.adapters.s3_folder import opened
    from tidemark.adapters.s3_place import S3Place

    place = S3Place(
        bucket=bucket,
        prefix=prefix,
        endpoint=settings.s3_endpoint,
        region=settings.s3_region,
        path_style=settings.s3_path_style,
    )
    with opened(place) as folder:
        yield S3Export(folder)


def _parsed(url: str) -> tuple[str, str]:
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme != "s3":
        raise UsageError(
            "neither a folder of this machine nor one of S3", next="name a local folder, or s3://BUCKET/FOLDER."
        )
    if not _BUCKET.fullmatch(bucket):
        raise UsageError("the URL names no bucket", next="write s3://BUCKET/FOLDER; credentials have no place in it.")
    prefix = prefix.removesuffix("/")
    if not _FOLDER.fullmatch(prefix) or {".", ".."} & set(prefix.split("/")):
        raise UsageError(
            f"the URL names no folder in the bucket {bucket}",
            next="write s3://BUCKET/FOLDER; a folder has words, joined by slashes.",
        )
    return bucket, prefix
