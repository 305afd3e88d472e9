"""Repairs the log of a table on a local disk after a power cut, so that the next writer can continue.

Everything that a manifest or a record names was fsynced before (`sync_commit`). So a torn commit above the parent's
version belongs to an attempt that nothing names: it becomes a commit without actions. A Delta log checkpoint is a copy:
if the commits lead to the same version without it, a torn one is removed, and so is a hint that names no complete one.
A torn file that was not fsynced must be older than this boot; no running writer has made it.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tidemark.errors import StoreError
from tidemark.model.checkpoint.commits import Commit
from tidemark.model.checkpoint.segments import LOG, TORN, log_version
from tidemark.storage.bucket_path import BucketPath
from tidemark.storage.local_store import Root, fsync, join_path
from tidemark.tables.delta_reader import (
    HINT,
    LogFolder,
    by_what_is_whole,
    commit_at,
    files_in,
    open_table,
    unusable_table,
)

_NOTHING = json.dumps(
    {"commitInfo": {"operation": "TIDEMARK MEND", "operationParameters": {}, "timestamp": 0}}
).encode()
"""A commit without actions."""


@contextmanager
def translate_disk_errors(table: Path) -> Iterator[None]:
    """Translates errors of the disk.

    Raises:
        StoreError: the disk refused.
    """
    try:
        yield
    except OSError as error:
        raise unusable_table(table, f"its log could not be repaired ({error.strerror or error})") from error


def mend_commits(table: Path, settled: int) -> None:
    """Repairs commits above a version that killed attempts left torn, and removes copies that disagree.

    The bytes of a torn commit stay next to it, under another name.

    Args:
        table: the table.
        settled: the newest version that the next commit builds on; -1 = the table has none yet.

    Raises:
        OSError: the disk refused.
    """
    found = _broken(table, settled)
    # Twice: files that a sweep replaces with a Delta log checkpoint in the meantime are not torn.
    if found is None or _broken(table, settled) != found:
        return
    log, torn, stale = found
    _remove_checkpoints(log, stale)
    if torn[:1] == [0]:
        _set_aside(log)
    else:
        for version in torn:
            _put_nothing(log, version)
    fsync(log.path)


def mend_copies(table: Path) -> None:
    """Removes torn Delta log checkpoints that the log does not need, and a hint that names no complete one.

    Raises:
        OSError: the disk refused.
    """
    log = LogFolder.of(table)
    if log is None:
        return
    torn = [v for v in log.checkpoints if not log.has_whole_checkpoint(v) and log.base(v, without=v) is not None]
    _remove_checkpoints(log, torn)
    named = log.hinted()
    if named is not None and (named in torn or not log.has_whole_checkpoint(named)):
        _unlink(log.path / HINT)
    fsync(log.path)


def secure(table: Path, version: int) -> None:
    """Gives a version a Delta log checkpoint that is complete, agrees with the commits, and is durable.

    Raises:
        OSError, DeltaError: it could not be written.
        StoreError: the log does not lead to the version.
    """
    mend_copies(table)
    log = LogFolder.of(table)
    if log is None or version not in log.checkpoints or not agrees(log, version):
        log = _write_checkpoint(table, log, version)
    fsync(log.checkpoint(version))
    drop_hint_below(log, version)
    with suppress(FileNotFoundError):
        fsync(log.path / HINT)
    fsync(log.path)


def _write_checkpoint(table: Path, log: LogFolder | None, version: int) -> LogFolder:
    """Writes a Delta log checkpoint of a version in place of one that disagrees."""
    if log is not None and log.base(version, without=version) is not None:
        _remove_checkpoints(log, [version])
    open_table(table, version).create_checkpoint()
    made = LogFolder.of(table)
    if made is None or version not in made.checkpoints or not agrees(made, version):
        raise unusable_table(table, f"the Delta log checkpoint of version {version} disagrees with the commits")
    return made


def agrees(log: LogFolder, version: int) -> bool:
    """Whether a Delta log checkpoint is complete and agrees with the commits, if there are any.

    Raises:
        OSError: the disk refused.
    """
    if not log.has_whole_checkpoint(version):
        return False
    try:
        with by_what_is_whole(log, version, without=version) as by_commits:
            if by_commits is None:
                return True
            with by_what_is_whole(log, version) as by_copy:
                return by_copy is not None and _files(by_copy) == _files(by_commits)
    except DeltaError:
        return False


def _files(table: DeltaTable) -> list[tuple[str, int, int, int]]:
    return [(f.path, f.file.size, f.level, f.checkpoint) for f in files_in(table)]


def drop_hint_below(log: LogFolder, version: int) -> None:
    """Removes a hint that names a Delta log checkpoint below a version, or none: readers then list the short log.

    Raises:
        OSError: the disk refused.
    """
    named = log.hinted()
    if named is not None and (named < version or named not in log.checkpoints):
        _unlink(log.path / HINT)


def _broken(table: Path, settled: int) -> tuple[LogFolder, list[int], list[int]] | None:
    """Returns torn commits above a version, and Delta log checkpoints to remove with them; None if there are none."""
    log = LogFolder.of(table)
    if log is None or log.newest <= settled:
        return None
    start = _start(log, settled)
    if start is None:
        return None  # the input itself cannot be read; opening it names the file
    torn = [v for v in range(start + 1, log.newest + 1) if log.flaw_of_commit(v) is not None]
    stale = sorted(v for v in log.checkpoints if v > start and (torn or not agrees(log, v)))
    return (log, torn, stale) if torn or stale else None


def _start(log: LogFolder, settled: int) -> int | None:
    """Returns the version above which no commit is in use; None if the settled version is unreadable."""
    if settled >= 0:
        return None if log.base(settled) is None else settled
    # Without an input, another line of checkpoints may have begun in the table, and its log may have been trimmed.
    standing = (v for v in log.checkpoints if log.flaw_of_commit(v) is None and log.has_whole_checkpoint(v))
    return max(standing, default=-1)


def _remove_checkpoints(log: LogFolder, versions: list[int]) -> None:
    if not versions:
        return
    if log.hinted() in (*versions, -1):
        _unlink(log.path / HINT)
    for version in versions:
        _unlink(log.checkpoint(version))


def _set_aside(log: LogFolder) -> None:
    """Renames all files of a log without its first commit, so that the table begins again."""
    _unlink(log.path / HINT)
    for version in sorted(log.commits, reverse=True):
        _rename(log.commit(version))


def _put_nothing(log: LogFolder, version: int) -> None:
    target = log.commit(version)
    _rename(target)
    with NamedTemporaryFile(dir=log.path, prefix=".tmp-", delete=False) as aside:
        try:
            aside.write(_NOTHING)
            aside.flush()
            os.fsync(aside.fileno())
            os.fchmod(aside.fileno(), 0o644)
            with suppress(FileExistsError):  # another process has just repaired it, or committed
                os.link(aside.name, target)
        finally:
            _unlink(Path(aside.name))


def _rename(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.rename(path.with_name(path.name + TORN))


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)


# Makes the files of an attempt survive a power cut, and checks that the commit is the one the manifest will name.
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
    table = join_path(warehouse, commit.path)
    found = commit_at(table, commit.version)
    if found is None or (found.write_id, found.sha256) != (commit.write_id, commit.sha256):
        raise unusable_table(table, f"commit {commit.version} is not the one that this attempt made")
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
