"""The history of tables, from their Delta logs: commit by commit, wherever the logs lie (`ports.TableFiles.history`).

A thousand versions cost a thousand small reads once, and then only what was committed since. deltalake opens the Delta
log checkpoint where the commits before it are gone.
"""

import json
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from urllib.parse import unquote

from deltalake import DeltaTable

from tidemark.adapters.delta_reading import files_in
from tidemark.model.shared_state import TableFile, TableHistory, unknown


class Logs(Protocol):
    """Where logs lie. Errors are those of the place."""

    def versions(self, table: str, after: int) -> list[int]:
        """Versions above one whose commits are there, ascending."""

    def commit(self, table: str, version: int) -> bytes | None:
        """The bytes of a commit, or None."""

    def has_checkpoint(self, table: str, version: int) -> bool:
        """Whether there is a Delta log checkpoint of a version."""

    def open(self, table: str, version: int) -> DeltaTable:
        """A table at a version."""


@dataclass
class _Replayed:
    """A log as far as it was read: every file that was ever added, the live ones by path, the newest version."""

    oldest: int
    newest: int
    ended: list[TableFile] = field(default_factory=list)
    live: dict[str, TableFile] = field(default_factory=dict)


@dataclass
class LogReplays:
    """Histories, kept between calls.

    Attributes:
        logs: where the logs lie.
    """

    logs: Logs
    _replayed: dict[str, _Replayed] = field(default_factory=dict)

    def history(self, table: str) -> TableHistory:
        """See `ports.TableFiles`.

        Raises:
            StoreError: the log has a hole, or an action that is not ours.
        """
        state = self._replayed.get(table) or self._begun(table)
        while self.logs.versions(table, state.newest):
            raw = self.logs.commit(table, state.newest + 1)
            if raw is None:
                raise unknown(f"the log of {table} has a hole behind version {state.newest}")
            while raw is not None:
                state.newest += 1
                _apply(state, table, raw)
                raw = self.logs.commit(table, state.newest + 1)
        self._replayed[table] = state
        files = sorted((*state.ended, *state.live.values()), key=lambda f: (f.added, f.path))
        return TableHistory(table=table, oldest=state.oldest, newest=state.newest, files=tuple(files))

    def _begun(self, table: str) -> _Replayed:
        """The state at the oldest version that can be read."""
        versions = self.logs.versions(table, -1)
        if not versions or versions[0] == 0:
            return _Replayed(oldest=0, newest=-1)
        # Trimmed, perhaps not to the end: it can be read from a Delta log checkpoint that has its commit.
        first = next((v for v in versions if self.logs.has_checkpoint(table, v)), None)
        if first is None:
            raise unknown(f"the log of {table} begins at {versions[0]}, without a Delta log checkpoint")
        state = _Replayed(oldest=first, newest=first)
        for f in files_in(self.logs.open(table, first)):
            path = f"{table}/{unquote(f.path)}"
            made = TableFile(path=path, bytes=f.file.size, checkpoint=f.checkpoint, added=first)
            state.live[path] = made
        return state


def _apply(state: _Replayed, table: str, raw: bytes) -> None:
    for line in raw.splitlines():
        try:
            action: dict[str, Any] = json.loads(line)
        except ValueError as error:
            raise unknown(f"commit {state.newest} of {table} is no JSON") from error
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
