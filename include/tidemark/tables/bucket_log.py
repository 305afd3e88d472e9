"""Commits to the log of a table in a bucket, with few round trips.

deltalake reads a log twice to open a table, lists it before a commit, and reads it again behind it. Delta's protocol
asks for one request: a put of the next version's entry, under the condition that its name is free. What this process
has committed last it need not read again either, if that commit is still the newest one (adr/0068).
"""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from tidemark.errors import ConflictError, StoreError
from tidemark.model.checkpoint.commits import Commit, CommitRequest
from tidemark.ports import LiveFile, PutOutcome, UncertainPut
from tidemark.storage.bucket_path import BucketPath
from tidemark.tables.delta_reader import commit_at, open_table, parse_commit

LOG_CHECKPOINT_INTERVAL = 20
"""Commits between two Delta log checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The newest version of a table, as far as a commit needs it.

    Attributes:
        version: its number.
        live: its files, oldest first.
        schema: its schema, partition columns included.
        table: the open table; None if the process knows this version from its own commit.
    """

    version: int
    live: tuple[LiveFile, ...]
    schema: Schema
    table: DeltaTable | None


@dataclass
class OwnCommits:
    """What this process has committed last to each table of a bucket."""

    _kept: dict[str, tuple[Snapshot, Commit]] = field(default_factory=dict)

    def take(self, path: BucketPath) -> tuple[Snapshot, Commit] | None:
        """Returns this process's newest commit to a table, once; None if it has made none."""
        return self._kept.pop(str(path), None)

    def keep(self, path: BucketPath, live: Sequence[LiveFile], schema: Schema, commit: Commit) -> None:
        """Remembers a commit of this process with the files that are live then."""
        ordered = tuple(sorted(live, key=lambda f: (f.checkpoint, -f.level, f.path)))
        self._kept[str(path)] = Snapshot(version=commit.version, live=ordered, schema=schema, table=None), commit


def is_newest(path: BucketPath, commit: Commit) -> bool:
    """Whether a commit of this process is still the newest one of its table.

    Its entry is compared, because the table may have been removed and begun again under the same path.

    Raises:
        StoreError: the store did not answer.
    """
    with ThreadPoolExecutor(2) as pool:
        own, later = pool.map(lambda version: commit_at(path, version), (commit.version, commit.version + 1))
    return own is not None and own.sha256 == commit.sha256 and later is None


def put_entry(
    path: BucketPath, version: int, request: CommitRequest, actions: Sequence[Mapping[str, Any]]
) -> Commit | Exception:
    """Puts the entry of a version.

    Returns:
        The commit; or why it is not certain, or not made: the caller reads back.

    Raises:
        StoreError: certainly not written.
    """
    body = "".join(f"{json.dumps(action, ensure_ascii=False)}\n" for action in actions).encode()
    file = path / f"_delta_log/{version:020d}.json"
    try:
        outcome = file.folder.put_if_absent(file.path, body)
    except UncertainPut as error:
        return error
    if outcome is PutOutcome.LOST:
        return ConflictError(
            f"version {version} of {path} was committed by another writer",
            safe="every completed checkpoint is intact; this attempt published nothing.",
            next="run the pipeline again.",
        )
    if (version + 1) % LOG_CHECKPOINT_INTERVAL == 0:
        # It only saves readers work, and the version is there: the next one is written twenty versions later.
        with suppress(DeltaError, OSError, StoreError):
            open_table(path, version).create_checkpoint()
    found = parse_commit(body)
    return Commit(path=request.table, version=version, write_id=request.write_id, sha256=found.sha256)


def entry_of(
    request: CommitRequest,
    metadata: Mapping[str, str],
    added: Sequence[LiveFile],
    removed: Sequence[LiveFile],
    now_ms: int,
) -> list[dict[str, Any]]:
    """Returns the actions of a commit: `commitInfo`, an `add` or `remove` per file, and `txn`.

    Args:
        request: the commit.
        metadata: what `commitInfo` holds besides.
        added: files to add.
        removed: files to remove.
        now_ms: the time of the commit.
    """
    info = {
        "timestamp": now_ms,
        "operation": "WRITE",
        "operationParameters": {
            "mode": "Append",
            "partitionBy": json.dumps(["_level", "_checkpoint"], separators=(",", ":")),
        },
        "engineInfo": "tidemark",
        **metadata,
    }
    application, number = request.app
    adds = [{**_named(f), "modificationTime": now_ms, "dataChange": True, "stats": f.file.stats} for f in added]
    removes = [
        {**_named(f), "deletionTimestamp": now_ms, "dataChange": True, "extendedFileMetadata": True} for f in removed
    ]
    return [
        {"commitInfo": info},
        *({"add": add} for add in adds),
        *({"remove": remove} for remove in removes),
        {"txn": {"appId": application, "version": number}},
    ]


def _named(f: LiveFile) -> dict[str, Any]:
    values = {"_level": str(f.level), "_checkpoint": str(f.checkpoint)}
    return {"path": quote(f.path, safe="/=~"), "partitionValues": values, "size": f.file.size}
