"""Exactly once by id, for any sink: rows wait in a table of their checkpoint and are written when it is complete."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice

from tidemark.model.checkpoint.messages import EmittedRow
from tidemark.sinks.sink import Services, Sink


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbox:
    """The rows of one checkpoint that wait for a sink.

    The caller records a delivery after `deliver` has returned. If the process dies in between, the delivery is
    repeated: the rows arrive again with the same ids. Rows of unsealed attempts belong to no checkpoint and are never
    delivered.

    Attributes:
        sink: receives the rows.
        rows: returns them in order, from the beginning at each call.
        commit_id: id of the checkpoint; see `Sink.write`.
    """

    sink: Sink
    rows: Callable[[], Iterable[EmittedRow]]
    commit_id: str

    def deliver(self, services: Services, *, skipped: Collection[str] = (), refused: str = "", digest: str = "") -> int:
        """Writes the rows and returns how many of them the sink now has.

        Args:
            services: see `Sink.write`.
            skipped: ids of rows to leave out.
            refused: id of the row that the sink refused at the last attempt.
            digest: the result of `digest_ahead` at that time. If it is still the same, the sink already has all earlier
                rows.

        Raises:
            RecordRefusedError, TidemarkError: see `Sink.write`.
        """
        rows, arrived = self.rows(), 0
        ahead = self._ahead(refused) if refused else None
        if ahead is not None and _digest(ahead) == digest:
            arrived = sum(row not in skipped for row in ahead)
            rows = islice(rows, len(ahead), None)
        left = (row for row in rows if row.id not in skipped)
        return arrived + self.sink.write(left, self.commit_id, services)

    def digest_ahead(self, refused: str) -> str:
        """Returns a hash of the ids of the rows before `refused`; empty if that row is not among the rows."""
        ahead = self._ahead(refused) if refused else None
        return "" if ahead is None else _digest(ahead)

    def _ahead(self, record: str) -> list[str] | None:
        ids: list[str] = []
        for row in self.rows():
            if row.id == record:
                return ids
            ids.append(row.id)
        return None


def _digest(ids: Iterable[str]) -> str:
    return sha256("\n".join(ids).encode()).hexdigest()
