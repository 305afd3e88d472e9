"""The history of tables from their Delta logs, commit by commit, on a disk or in a bucket (`ports.TableFiles.history`).

Reading a thousand versions costs a thousand small reads once, and then only reads of new commits, with a cache also in
later processes. A cached history is valid if the newest commit that was read still exists, byte for byte. deltalake
opens the Delta log checkpoint if earlier commits are gone.
"""

import json
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from urllib.parse import unquote

from deltalake import DeltaTable

from tidemark.errors import CorruptObjectError
from tidemark.model.core import canonical
from tidemark.model.retention.shared_state import TableFile, TableHistory, registry_error
from tidemark.ports.caching import Cache
from tidemark.tables.delta_reader import files_in

KIND = "log_replay"
FORMAT = 1
"""Version of the cache format; a file of another version is ignored."""


class Logs(Protocol):
    """Gives access to logs. Errors are those of the storage."""

    def versions(self, table: str, after: int) -> list[int]:
        """Returns the versions above one that have commits, ascending."""

    def commit(self, table: str, version: int) -> bytes | None:
        """Returns the bytes of a commit, or None."""

    def has_checkpoint(self, table: str, version: int) -> bool:
        """Whether a version has a Delta log checkpoint."""

    def open(self, table: str, version: int) -> DeltaTable:
        """Opens a table at a version."""


@dataclass
class _Replayed:
    """A log as far as it was read: every file that was ever added, the live ones by path, the newest version.

    `last` is the hash of the newest commit that was read; empty = none was.
    """

    oldest: int
    newest: int
    last: str = ""
    ended: list[TableFile] = field(default_factory=list)
    live: dict[str, TableFile] = field(default_factory=dict)


@dataclass
class LogReplays:
    """Histories, kept between calls.

    Attributes:
        logs: access to the logs.
        cache: keeps them for the next process; None = no cache.
    """

    logs: Logs
    cache: Cache | None = None
    _replayed: dict[str, _Replayed] = field(default_factory=dict)

    def history(self, table: str) -> TableHistory:
        """See `ports.TableFiles`.

        Raises:
            StoreError: the log begins in the middle, or has an unknown action.
        """
        state = self._replayed.get(table) or self._load_cached(table) or self._begun(table)
        known, ends = state.newest, ""
        while not ends and self.logs.versions(table, state.newest):
            ends = self._read_on(state, table)
        self._replayed[table] = state
        if self.cache is not None and state.newest > known and state.last:
            self.cache.put(_name(table), _to_bytes(table, state))
        files = sorted((*state.ended, *state.live.values()), key=lambda f: (f.added, f.path))
        return TableHistory(table=table, oldest=state.oldest, newest=state.newest, files=tuple(files), ends=ends)

    def _read_on(self, state: _Replayed, table: str) -> str:
        """Reads later commits; returns why it did not reach the last one, or an empty text."""
        raw = self.logs.commit(table, state.newest + 1)
        if raw is None:
            return f"a commit is missing after version {state.newest}"
        while raw is not None:
            actions = _actions(raw)
            if actions is None:
                return f"commit {state.newest + 1} is torn"
            state.newest += 1
            _apply(state, table, actions)
            state.last = canonical.sha256_of(raw)
            raw = self.logs.commit(table, state.newest + 1)
        return ""

    def _load_cached(self, table: str) -> _Replayed | None:
        """Returns the history that another process has read, if it belongs to this log."""
        raw = None if self.cache is None else self.cache.get(_name(table))
        state = None if raw is None else _from_bytes(table, raw)
        if state is None or self.logs.versions(table, -1)[:1] != [state.oldest]:
            return None  # the log was trimmed since: read the rest again, which is shorter
        last = self.logs.commit(table, state.newest)
        return state if last is not None and canonical.sha256_of(last) == state.last else None

    def _begun(self, table: str) -> _Replayed:
        """Returns the state at the oldest version that can be read."""
        versions = self.logs.versions(table, -1)
        # The log was trimmed, perhaps not completely: read it from a Delta log checkpoint with its commit. After a
        # power cut commits may be missing: at the start, where deleted ones reappeared, and at the end, where unused
        # ones were lost.
        first = None
        for line in reversed(_lines(versions)):
            if line[0] == 0:
                return _Replayed(oldest=0, newest=-1)
            first = next((v for v in line if self.logs.has_checkpoint(table, v)), None)
            if first is not None:
                break
        if not versions:
            return _Replayed(oldest=0, newest=-1)
        if first is None:
            raise registry_error(f"the log of {table} begins at {versions[0]}, without a Delta log checkpoint")
        state = _Replayed(oldest=first, newest=first)
        for f in files_in(self.logs.open(table, first)):
            path = f"{table}/{unquote(f.path)}"
            made = TableFile(path=path, bytes=f.file.size, checkpoint=f.checkpoint, added=first)
            state.live[path] = made
        return state


def _lines(versions: list[int]) -> list[list[int]]:
    """Returns versions, ascending, up to the first missing one."""
    lines: list[list[int]] = []
    for version in versions:
        if lines and lines[-1][-1] == version - 1:
            lines[-1].append(version)
        else:
            lines.append([version])
    return lines


def _name(table: str) -> str:
    return f"{table.split('/')[0]}.{canonical.sha256_of(table.encode())[:16]}.log.json"


def _to_bytes(table: str, state: _Replayed) -> bytes:
    files = [[f.path, f.bytes, f.checkpoint, f.added, f.removed] for f in (*state.ended, *state.live.values())]
    body = {"version": FORMAT, "table": table, "oldest": state.oldest, "newest": state.newest, "last": state.last}
    return canonical.encode(KIND, body | {"files": files})


def _from_bytes(table: str, raw: bytes) -> _Replayed | None:
    """Parses a cache file; returns None if it is damaged, in another format, or belongs to another table."""
    try:
        body = canonical.decode(KIND, _name(table), raw)
        if (body["version"], body["table"]) != (FORMAT, table):
            return None
        state = _Replayed(oldest=body["oldest"], newest=body["newest"], last=body["last"])
        for path, size, checkpoint, added, removed in body["files"]:
            f = TableFile(path=path, bytes=size, checkpoint=checkpoint, added=added, removed=removed)
            if removed is None:
                state.live[path] = f
            else:
                state.ended.append(f)
    except (CorruptObjectError, LookupError, TypeError, ValueError):
        return None
    return state


def _actions(raw: bytes) -> list[dict[str, Any]] | None:
    """Returns the actions of a commit; None if it is torn."""
    try:
        found = [json.loads(line) for line in raw.splitlines()]
    except ValueError:
        return None
    return found if found and all(isinstance(action, dict) for action in found) else None


def _apply(state: _Replayed, table: str, actions: list[dict[str, Any]]) -> None:
    for action in actions:
        if (removed := action.get("remove")) is not None:
            gone = state.live.pop(f"{table}/{unquote(removed['path'])}", None)
            if gone is not None:
                state.ended.append(replace(gone, removed=state.newest))
        if (added := action.get("add")) is not None:
            path, partition = f"{table}/{unquote(added['path'])}", added["partitionValues"]
            before = state.live.get(path)
            state.live[path] = TableFile(
                path=path,
                bytes=int(added["size"]),
                checkpoint=int(partition["_checkpoint"]),
                added=state.newest if before is None else before.added,
            )
