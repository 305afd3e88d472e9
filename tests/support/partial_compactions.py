"""Compactions that earlier checkpoints could have made, for tests that no answer depends on one."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.testing import Replayed
from tidemark.testing.twin import merge
from tidemark.testing.twin.entries import state_rows


@dataclass(frozen=True, kw_only=True)
class PartialCompaction:
    """The state of an operator at a checkpoint, of which an earlier one has compacted a part.

    Attributes:
        newest: the checkpoint that is read.
        before: the one that compacted.
        deepest: whether it compacted all of its rows.
        rows: the stored rows as they were.
        made: the rows of the compaction.
        kept: those that it left alone.
    """

    newest: Checkpoint
    before: Checkpoint
    deepest: bool
    rows: Sequence[Any]
    made: Sequence[Any]
    kept: Sequence[Any]

    @property
    def left(self) -> list[Any]:
        """The stored rows after the compaction."""
        return [*self.made, *self.kept]


def partial_compactions(done: Replayed, uid: str, chance: random.Random) -> Iterator[PartialCompaction]:
    """Yields for each checkpoint and each one before it a compaction of all rows, and of a random suffix of them."""
    schema = done.checkpoints[0].plan.schemas[uid]
    for n, newest in enumerate(done.checkpoints):
        rows = state_rows(done._tables, schema, newest.handles[uid])
        for before in done.checkpoints[: n + 1]:
            for first in {0, chance.randrange(before.id + 1)}:
                picked = [row for row in rows if first < row["_changed"] <= before.id]
                yield PartialCompaction(
                    newest=newest,
                    before=before,
                    deepest=first == 0,
                    rows=rows,
                    made=merge.compact_rows(schema, picked, before.now, deepest=first == 0),
                    kept=[row for row in rows if not first < row["_changed"] <= before.id],
                )
