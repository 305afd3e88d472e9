"""Queries over state: SQL over all checkpoints, a diff of two, a hash."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tidemark.context import Context
from tidemark.coordinator.records.released_checkpoints import usable
from tidemark.errors import NotFoundError, UsageError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.schema.operator_schema import with_state
from tidemark.operations import reads
from tidemark.operations.reads import state_schema_of

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from tidemark.readers.checkpoint_reader import View
    from tidemark.readers.state_diff import Detail, Diff
    from tidemark.readers.state_hash import StateHash


def run_sql(context: Context, name: str, statement: str, checkpoint: int | None = None) -> "pa.Table":
    """Returns the rows of one read-only statement over a pipeline's state and manifests; see `readers.sql_views`.

    Args:
        context: of this process.
        name: the pipeline.
        statement: DuckDB's dialect, over `<uid>`, `<uid>_at(N)`, `checkpoints`, `checkpoint_states`,
            `checkpoint_offsets`, `source_watermarks`, `operator_states` and `metrics`.
        checkpoint: the id that `<uid>` is as of, and that the other views end with; by default the newest one.

    Raises:
        NotFoundError: no such pipeline, checkpoint or view.
        UsageError: the statement is not read-only, or DuckDB refuses it.
        StateOverflowError, StoreError: as readers of state raise them.
    """
    from tidemark.coordinator.checkpoints.reports import reports
    from tidemark.readers import checkpoint_tables as tables
    from tidemark.readers.sql_views import Catalogue, run_statement

    line = _Line(context, name, checkpoint)
    catalogue = Catalogue(
        uids=list(with_state(line.newest.plan.schemas)),
        state=line.view,
        tables={
            "checkpoints": lambda: tables.checkpoints_table(line.all),
            "checkpoint_states": lambda: tables.states_table(line.all),
            "checkpoint_offsets": lambda: tables.offsets_table(line.all),
            "source_watermarks": lambda: tables.watermarks_table(line.all),
            "operator_states": lambda: tables.operator_states_table(line.all),
            "metrics": lambda: tables.metrics_table(line.all, reports(context.coordinator(name))),
        },
    )
    return run_statement(statement, catalogue)


def connect_duckdb(context: Context, found: Checkpoint, *uids: str) -> "duckdb.DuckDBPyConnection":
    """A connection to DuckDB with a view of each operator's state at a checkpoint; see `sql_views.connect`.

    Raises:
        NotFoundError: no such operator.
        UsageError: only Spark can read a state.
        StoreError: a version or a file of a state is gone.
    """
    from tidemark.readers.checkpoint_reader import view
    from tidemark.readers.sql_views import connect

    return connect({uid: view(context.warehouse.root, found, state_schema_of(found, uid).uid) for uid in uids})


def connect_rows(name: str, rows: "pa.Table") -> "duckdb.DuckDBPyConnection":
    """A connection to DuckDB with Arrow rows as a view of this name; see `sql_views.connect`."""
    from tidemark.readers.checkpoint_reader import View
    from tidemark.readers.sql_views import connect
    from tidemark.readers.state_reader import Relation

    return connect({name: View(rows=Relation(parts=((rows, None),)), sql="FROM {}".format)})


def diff_states(context: Context, name: str, request: "DiffRequest") -> "Diff":
    """Compares an operator's state at two checkpoints, key by key; see `readers.state_diff`.

    Raises:
        NotFoundError: no such pipeline, checkpoint or operator.
        UsageError: the two states have different keys.
        StateOverflowError, StoreError: as readers of state raise them.
    """
    from tidemark.readers.state_diff import Comparison

    before, after = (reads.get_checkpoint(context, name, at) for at in (request.before, request.after))
    if state_schema_of(before, request.uid).keys != state_schema_of(after, request.uid).keys:
        raise UsageError(
            f"{request.uid} is keyed differently at {before.plan.name} and {after.plan.name}",
            next=f"tidemark state sql {name}    (joins {request.uid}_at(N) of both).",
        )
    compared = Comparison(
        warehouse=context.warehouse.root,
        uid=request.uid,
        before=before,
        after=after,
        ancestor=reads.timelines_of(context, name).shared_ancestor(before, after),
    )
    return compared.diff(request.detail, request.limit)


def hash_state(context: Context, name: str, uid: str, checkpoint: int | None = None) -> tuple[Checkpoint, "StateHash"]:
    """Returns the hash of an operator's resolved state, with its checkpoint; see `readers.state_hash`.

    Raises:
        NotFoundError: no such pipeline, checkpoint or operator.
        StateOverflowError, StoreError: as readers of state raise them.
    """
    from tidemark.readers.checkpoint_reader import stream_checkpoint
    from tidemark.readers.state_hash import hash_of

    found = reads.get_checkpoint(context, name, checkpoint)
    schema = state_schema_of(found, uid)
    return found, hash_of(schema, stream_checkpoint(context.warehouse.root, found, uid))


def describe_query(
    context: Context, name: str, uid: str, dialect: str, checkpoint: int | None = None
) -> dict[str, Any]:
    """Returns the query that gives an operator's state in another engine, and the segments that it reads.

    Args:
        context: of this process.
        name: the pipeline.
        uid: the operator.
        dialect: `spark` or `duckdb`.
        checkpoint: an id; by default the newest one.

    Raises:
        NotFoundError: no such pipeline, checkpoint or operator.
        UsageError: only Spark can read the state.
        StoreError: a version or a file of the handle is gone, or the stored text.
    """
    from tidemark.model.portable_sql.dialects import DUCKDB, SPARK
    from tidemark.readers.portable_query import duckdb_query, spark_query

    found = reads.get_checkpoint(context, name, checkpoint)
    state_schema_of(found, uid)
    whole, spelling = (spark_query, SPARK) if dialect == "spark" else (duckdb_query, DUCKDB)
    query = reads.get_query(context, found, uid, spelling)
    segments = [
        {"path": s.path, "version": s.version, "after": s.after, "through": s.through} for s in found.handles[uid]
    ]
    return {
        "checkpoint": found.plan.name,
        "uid": uid,
        "dialect": dialect,
        "segments": segments,
        "sql": whole(context.warehouse.root, found, uid, query),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffRequest:
    """The request to compare two states.

    Attributes:
        uid: the operator.
        before: a checkpoint id.
        after: another one; it may be older, or on another timeline.
        detail: the level of detail.
        limit: the most rows to return; counts include all rows.
    """

    uid: str
    before: int
    after: int
    detail: "Detail"
    limit: int | None = None


class _Line:
    """A lineage of checkpoints for one statement: read only as far as needed, and the same for all of its views.

    It is the live timeline, or a checkpoint and its ancestors.
    """

    def __init__(self, context: Context, name: str, last: int | None) -> None:
        self._context, self._name = context, name
        timelines = reads.timelines_of(context, context.require_pipeline(name))
        self._older: Iterator[Checkpoint] = (
            timelines.chain(timelines.live())
            if last is None
            else timelines.ancestry(usable(timelines, timelines.checkpoint(last)))
        )

    @cached_property
    def newest(self) -> Checkpoint:
        """Returns the head.

        Raises:
            NotFoundError: there is no checkpoint yet.
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
        from tidemark.readers.checkpoint_reader import view

        found = self.newest if checkpoint_id is None else reads.get_checkpoint(self._context, self._name, checkpoint_id)
        return view(self._context.warehouse.root, found, state_schema_of(found, uid).uid)
