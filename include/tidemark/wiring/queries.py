"""The verbs that ask more of state than rows of one checkpoint: SQL over all of them."""

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from tidemark.errors import NotFoundError
from tidemark.model.checkpoint import Checkpoint
from tidemark.wiring.reads import Reads, schema_of

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemark.adapters.checkpoint_reader import View


class Queries(Reads):
    """Answers questions in SQL; writes nothing, starts no JVM."""

    def sql(self, name: str, statement: str) -> "pa.Table":
        """The rows of one read-only statement over a pipeline's state and manifests; see `adapters.sql_views`.

        Args:
            name: the pipeline.
            statement: DuckDB's dialect, over `<uid>`, `<uid>_at(N)`, `checkpoints`, `checkpoint_states` and
                `checkpoint_offsets`.

        Raises:
            NotFoundError: no such pipeline, checkpoint or view.
            UsageError: no read-only statement, or DuckDB refuses it.
            StateOverflowError, StoreError: as readers of state raise them.
        """
        from tidemark.adapters.checkpoint_tables import checkpoints_table, offsets_table, states_table
        from tidemark.adapters.sql_views import Catalogue, answer

        line = _Line(self, name)
        catalogue = Catalogue(
            uids=list(line.newest.plan.schemas),
            state=line.view,
            tables={
                "checkpoints": lambda: checkpoints_table(line.all),
                "checkpoint_states": lambda: states_table(line.all),
                "checkpoint_offsets": lambda: offsets_table(line.all),
            },
        )
        return answer(statement, catalogue)


class _Line:
    """The live timeline as one statement sees it: read no further than it asks, the same to all of its views."""

    def __init__(self, reads: Reads, name: str) -> None:
        self._reads, self._name = reads, name
        self._older: Iterator[Checkpoint] = reads.coordinator(reads.known(name)).checkpoints()

    @cached_property
    def newest(self) -> Checkpoint:
        """The head.

        Raises:
            NotFoundError: there is none yet.
        """
        for found in self._older:
            return found
        raise NotFoundError(f"{self._name} has no checkpoints yet", next=f"tidemark run {self._name}")

    @cached_property
    def all(self) -> list[Checkpoint]:
        """Every checkpoint, newest first."""
        return [self.newest, *self._older]

    def view(self, uid: str, checkpoint_id: int | None) -> "View":
        """The state of an operator at a checkpoint."""
        from tidemark.adapters.checkpoint_reader import view

        found = self.newest if checkpoint_id is None else self._reads.checkpoint(self._name, checkpoint_id)
        return view(str(self._reads.settings.warehouse), found, schema_of(found, uid).uid)
