"""Rows as a Delta table below the warehouse."""

from collections.abc import Iterable
from dataclasses import dataclass

from tidemark.sinks.sink import COMMITTED, EmittedRow, Services, Sink


@dataclass(frozen=True)
class DeltaSink(Sink):
    """A Delta table that emitted rows are appended to, committed with the checkpoint that emitted them (J1).

    Attributes:
        name: of the table, unique in the pipeline.
    """

    kinds = {"delta": COMMITTED}

    def write(self, rows: Iterable[EmittedRow], commit_id: str, services: Services) -> int:
        """Nothing: the attempt has written and committed them."""
        return 0
