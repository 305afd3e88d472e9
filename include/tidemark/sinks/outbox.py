"""Exactly once by id, for any sink: rows wait in a table of the checkpoint, and are written once it is complete."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice

from tidemark.model.checkpoint.messages import EmittedRow
from tidemark.sinks.sink import Services, Sink


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbox:
    """The rows of one checkpoint that wait for a sink.

    A delivery is recorded by its caller, after `deliver` has returned. One that dies in between is repeated: rows come
    again, with the ids they had. Rows of attempts that were never sealed are in no checkpoint, so they never come.

    Attributes:
        sink: gets them.
        rows: reads them in order, from the beginning at each call.
        commit_id: of the checkpoint.
    """

    sink: Sink
    rows: Callable[[], Iterable[EmittedRow]]
    commit_id: str

    def deliver(self, services: Services, *, skipped: Collection[str] = (), refused: str = "", digest: str = "") -> int:
        """Writes the rows, and returns how many of them the sink has now.

        Args:
            services: see `Sink.write`.
            skipped: ids of rows that are left out.
            refused: id of a row that the sink refused at the last try.
            digest: what `digest_ahead` said of it then. If it still says so, all rows ahead are there already.

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
        """A hash of the ids of the rows ahead of one; empty where that one is not among the rows."""
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
