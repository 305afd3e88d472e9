"""Folders of buckets by URL: exports, and the warehouse. Nothing of S3 is loaded before such a URL is opened."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from tidemark.model.buckets import S3Url
from tidemark.settings import Settings

if TYPE_CHECKING:
    from tidemark.adapters.s3_exports import S3Export
    from tidemark.adapters.s3_folder import S3Folder


@contextmanager
def opened_export(settings: Settings, url: str) -> Iterator["S3Export"]:
    """The place of an export in a bucket, while a block lasts. Asks nothing of the store yet.

    Raises:
        UsageError: no URL of a folder in a bucket, or AWS's variables do not fit. The URL is not repeated, because
            somebody may have put a password into it.
    """
    wanted = S3Url.parsed(url)
    from tidemark.adapters.s3_exports import S3Export

    with closing(opened_folder(settings, wanted)) as folder:
        yield S3Export(folder)


def opened_folder(settings: Settings, url: S3Url) -> "S3Folder":
    """A folder of a bucket; asks nothing of the store yet. Whoever opens it closes it.

    Raises:
        UsageError: AWS's variables do not fit.
    """
    from tidemark.adapters.s3_folder import opened
    from tidemark.adapters.s3_place import S3Place

    return opened(
        S3Place(
            bucket=url.bucket,
            prefix=url.prefix,
            endpoint=settings.s3_endpoint,
            region=settings.s3_region,
            path_style=settings.s3_path_style,
        )
    )
