"""What an attempt wrote survives a power cut, and is what the manifest will say: fsync (local disk), read back."""

from pathlib import Path

from tidemark.errors import StoreError
from tidemark.model.checkpoint.manifest import Commit
from tidemark.model.retention.delta_logs import LOG, log_version
from tidemark.storage.bucket_path import BucketPath
from tidemark.storage.fsync import fsync
from tidemark.storage.warehouse_path import Root, located
from tidemark.tables.delta_reader import commit_at, refused
from tidemark.tables.torn_logs import HINT


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
    """Compares a commit file with what the manifest will say of it, then fsyncs it with all that it was built on.

    That is every commit above the parent's version, up to ours: a killed attempt may have left some, and ours removes
    what they added by what they say. With them go their Delta log checkpoints and the hint, because a reader begins at
    those; then the folders. What a bucket has acknowledged is durable.

    Raises:
        StoreError: write id or sha256 differ, or the disk refused.
    """
    table = located(warehouse, commit.path)
    found = commit_at(table, commit.version)
    if found is None or (found.write_id, found.sha256) != (commit.write_id, commit.sha256):
        raise refused(table, f"commit {commit.version} is not the one that this attempt made")
    if not isinstance(table, BucketPath):
        folder = table / LOG
        _sync([*_built_on(folder, found.parent, commit.version), folder])
        _sync(_above(Path(str(warehouse)), folder))


def _built_on(folder: Path, parent: int, version: int) -> list[Path]:
    """The files of a log in `(parent, version]`; with a Delta log checkpoint goes the hint."""
    found = [p for p in sorted(folder.iterdir()) if parent < _version(p) <= version]
    hint = folder / HINT
    return [*found, hint] if hint.is_file() and any(p.suffix == ".parquet" for p in found) else found


def _version(path: Path) -> int:
    found = log_version(path.name)
    return -1 if found is None else found


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
