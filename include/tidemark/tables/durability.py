"""Makes the files of an attempt survive a power cut, and checks that the commit is the one the manifest will name."""

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
    """Fsyncs every file in an attempt's folder, then that folder and every directory above it up to the root.

    Raises:
        StoreError: the disk refused.
    """
    root = Path(warehouse)
    where = root / folder
    _sync([*(p for p in sorted(where.iterdir()) if p.is_file()), where])
    _sync(_above(root, where))


def sync_commit(warehouse: Root, commit: Commit) -> None:
    """Compares a commit file with the future manifest, then fsyncs it with everything that it builds on.

    These are all commits above the parent's version, up to this one: a killed attempt may have left some, and this
    commit removes the files that they list. Their Delta log checkpoints and the hint are included, because a reader
    starts with them; then the folders. A bucket's acknowledgement already means that an object is durable.

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
    """Returns the files of a log in `(parent, version]`, plus the hint if they include a Delta log checkpoint."""
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
                next="check the disk, then run the pipeline again.",
            ) from error
