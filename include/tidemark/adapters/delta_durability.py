"""What an attempt wrote survives a power cut, and is what the manifest will say: fsync (local disk), read back."""

from pathlib import Path

from tidemark.adapters.bucket_path import BucketPath
from tidemark.adapters.delta_reading import commit_at, commit_file, refused
from tidemark.adapters.local_disk import fsync
from tidemark.adapters.located import Root, located
from tidemark.errors import StoreError
from tidemark.model.checkpoint import Commit


def sync_folder(warehouse: str, folder: str) -> None:
    """Fsyncs every file of an attempt's folder, then the folder and every directory above it up to the root.

    Raises:
        StoreError: the disk refused.
    """
    root = Path(warehouse)
    where = root / folder
    _sync([*(p for p in sorted(where.iterdir()) if p.is_file()), where])
    _sync(_above(root, where))


def sync_commit(warehouse: Root, commit: Commit) -> None:
    """Compares a commit file with what the manifest will say of it, then fsyncs it and its directories.

    What a bucket has acknowledged is durable.

    Raises:
        StoreError: write id or sha256 differ, or the disk refused.
    """
    table = located(warehouse, commit.path)
    found = commit_at(table, commit.version)
    if found is None or (found.write_id, found.sha256) != (commit.write_id, commit.sha256):
        raise refused(table, f"commit {commit.version} is not the one that this attempt made")
    log = commit_file(table, commit.version)
    if not isinstance(log, BucketPath):
        _sync([log, log.parent])
        _sync(_above(Path(str(warehouse)), log.parent))


def _above(root: Path, path: Path) -> list[Path]:
    return [p for p in path.parents if p == root or root in p.parents]


def _sync(paths: list[Path]) -> None:
    for path in paths:
        try:
            fsync(path)
        except OSError as error:
            raise StoreError(
                f"not durable: {path}: {error}",
                safe="every completed checkpoint is intact; this attempt was not sealed.",
                next="look at the disk, then run the pipeline again.",
            ) from error
