"""Bugs that the crash states must find: each leaves one thing out that a power cut asks for."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.support.memory import Unfenced
from tidemark.coordinator.checkpoints.row_compactor import RowCompactor
from tidemark.coordinator.checkpoints.state_compactor import StateCompactor
from tidemark.model.checkpoint.commits import CommitRequest, Committed
from tidemark.model.checkpoint.segments import LOG, Segment
from tidemark.storage import local_store
from tidemark.storage.local_store import fsync
from tidemark.tables import delta_tables as delta_log
from tidemark.tables import log_repair as delta_durability
from tidemark.tables import log_repair as delta_mending
from tidemark.tables import row_files
from tidemark.tables.delta_reader import HINT, open_table
from tidemark.tables.local_table_files import LocalTableFiles
from tidemark.transfer import level_files

Planted = Callable[[], AbstractContextManager[None]]


def _without_fsync(module: Any, of: Callable[[Path], bool]) -> Planted:
    """A module that fsyncs some paths no more."""

    @contextmanager
    def planted() -> Iterator[None]:
        with patch.object(module, "fsync", lambda path: None if of(path) else fsync(path)):
            yield

    return planted


def _with(target: Any, name: str, instead: Any) -> Planted:
    """Something else in place of a function."""

    @contextmanager
    def planted() -> Iterator[None]:
        with patch.object(target, name, instead):
            yield

    return planted


def _both(*planted: Planted) -> Planted:
    @contextmanager
    def together() -> Iterator[None]:
        with ExitStack() as stack:
            for one in planted:
                stack.enter_context(one())
            yield

    return together


def _is_copy(path: Path) -> bool:
    return path.name.endswith(".checkpoint.parquet")


def _is_log(path: Path) -> bool:
    return path.name == LOG


def _is_data(path: Path) -> bool:
    return path.suffix == ".parquet" and not _is_copy(path)


def _holds_data(path: Path) -> bool:
    return path.parent.name in ("runs", "base") and path.name != LOG


def _only_ours(folder: Path, parent: int, version: int) -> list[Path]:
    copies = folder.glob("*.checkpoint.parquet")
    return [p for p in (folder / f"{version:020d}.json", *copies, folder / HINT) if p.is_file()]


def _written_and_trusted(files: LocalTableFiles, table: str, version: int) -> None:
    if not (Path(files.warehouse, table, LOG) / f"{version:020d}.checkpoint.parquet").is_file():
        open_table(Path(files.warehouse, table), version).create_checkpoint()


def _committed_only(compactor: RowCompactor | StateCompactor, request: CommitRequest, folder: str) -> Committed:
    return compactor.tables.commit(request, Unfenced())


_NOBODY_COMPARES = _with(Segment, "difference", lambda self, files: None)
_ONLY_OURS = _with(delta_durability, "_built_on", _only_ours)

PLANTED: Mapping[str, Planted] = {
    # Before commits of a log are deleted.
    "trim: nothing is fsynced": _with(LocalTableFiles, "ensure_log_checkpoint", _written_and_trusted),
    "trim: the Delta log checkpoint is not fsynced": _without_fsync(delta_mending, _is_copy),
    "trim: the folder is not fsynced": _without_fsync(delta_mending, _is_log),
    # Before an attempt is sealed.
    "seal: only our own commit is fsynced": _ONLY_OURS,
    "seal: only our own commit is fsynced, and nobody compares": _both(_ONLY_OURS, _NOBODY_COMPARES),
    "seal: no commit is fsynced": _without_fsync(delta_durability, lambda p: p.suffix == ".json"),
    "seal: the Delta log checkpoint is not fsynced": _without_fsync(delta_durability, _is_copy),
    "seal: the log's folder is not fsynced": _without_fsync(delta_durability, _is_log),
    "seal: no data file is fsynced": _without_fsync(delta_durability, _is_data),
    "seal: no folder of data files is fsynced": _without_fsync(delta_durability, _holds_data),
    "seal: the folders above are not fsynced": _without_fsync(delta_durability, lambda p: p.name in ("runs", "base")),
    # Before the record of a compaction.
    "rows: nothing of a compaction is fsynced": _both(
        _with(RowCompactor, "_commit", _committed_only), _without_fsync(row_files, lambda p: True)
    ),
    "state: nothing of a compaction is fsynced": _both(
        _with(StateCompactor, "_commit", _committed_only), _without_fsync(level_files, lambda p: True)
    ),
    # Before an object counts as put.
    "store: an object is not fsynced": _with(os, "fsync", lambda handle: None),
    "store: the folder is not fsynced": _without_fsync(local_store, os.path.isdir),
    # After the power cut.
    "mend: torn commits stay": _with(delta_log, "mend_commits", lambda table, settled: None),
    "mend: torn copies stay": _both(
        _with(delta_log, "mend_copies", lambda table: None), _with(delta_mending, "mend_copies", lambda table: None)
    ),
}
SHOWN_IN: Mapping[str, tuple[str, ...]] = {"trim": ("sweep", "swept"), "mend": ("paid",)}
"""By what a bug's name begins with: what was reported last in the states that can show it; all others are skipped."""
