"""Rows as a Delta table in the warehouse."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from tidemark.model.core.ttl import checked_keep_for
from tidemark.sinks.sink import COMMITTED, Services, Sink

if TYPE_CHECKING:
    from tidemark.model.checkpoint.messages import EmittedRow
    from tidemark.model.checkpoint.sinks import SinkTable


@dataclass(frozen=True)
class DeltaSink(Sink):
    """Appends emitted rows to a Delta table in the warehouse and commits them with their checkpoint.

    >>> from tidemark import DeltaSink
    >>> sink = DeltaSink("delays")
    >>> sink.traits.is_transactional, sink.traits.needs_delivery
    (True, False)

    Read it with `tidemark.read_sink`: as of a checkpoint, every row is there exactly once.

    >>> from datetime import timedelta
    >>> DeltaSink("delays", keep_for=timedelta(days=90)).expires_after
    datetime.timedelta(days=90)

    Attributes:
        name: name of the table, unique in the pipeline.
        keep_for: rows of a checkpoint are hidden as of later checkpoints whose logical time exceeds that of the first
            one by this much or more; compaction and retention then delete them. None = rows stay.
    """

    kinds = {"delta": COMMITTED}

    keep_for: timedelta | None = None

    def __post_init__(self) -> None:
        checked_keep_for(f"sink {self.name}: keep_for", self.keep_for)
        super().__post_init__()

    @property
    def expires_after(self) -> timedelta | None:
        """See `Sink`."""
        return self.keep_for

    def stored(self, table: "SinkTable") -> "SinkTable":
        """See `Sink`: `keep_for` is not stored, because handles say which rows have expired."""
        return table

    def write(self, rows: "Iterable[EmittedRow]", commit_id: str, services: Services) -> int:
        """Does nothing: the attempt has written and committed the rows."""
        return 0
