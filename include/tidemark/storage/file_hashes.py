"""sha256 of data files: recorded by the commit that adds them, whose own hash is in the manifest."""

import hashlib
import json
from collections.abc import Iterable, Mapping

from tidemark.storage.bucket_path import BucketPath
from tidemark.storage.warehouse_path import Located

KEY = "tidemark_sha256"
"""Key of commitInfo; its value is JSON: path relative to the table -> sha256."""
_CHUNK = 2**20


def hash_of(path: Located) -> str:
    """Returns the sha256 of a file as lower-case hex.

    Raises:
        OSError, StoreError: it cannot be read.
    """
    if isinstance(path, BucketPath):
        return path.sha256()
    made = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            made.update(chunk)
    return made.hexdigest()


def to_metadata(table: Located, paths: Iterable[str]) -> dict[str, str]:
    """Returns the record of a commit about the files that it adds.

    Raises:
        OSError, StoreError: one cannot be read.
    """
    return {KEY: json.dumps({path: hash_of(table / path) for path in paths}, sort_keys=True)}


def from_commit(raw: bytes) -> Mapping[str, str]:
    """Returns the hashes in a commit file by path; empty if it is older than hashes, or damaged."""
    for line in raw.splitlines():
        try:
            info = json.loads(line).get("commitInfo")
            if info is not None:
                return dict(json.loads(info.get(KEY) or "{}"))
        except (ValueError, AttributeError, TypeError):
            return {}
    return {}
