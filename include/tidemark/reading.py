"""Reading state and sinks in a Spark session of the user's own: `tidemark.read_state(spark, "flights", "routes")`."""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, get_args

from tidemark.context import Context, open_context
from tidemark.errors import UsageError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.core.names import parse_id
from tidemark.operations import reads, savepoints
from tidemark.operations.reads import schema_of
from tidemark.operations.sinks import sink_of
from tidemark.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Resolver = Literal["spark", "duckdb"]
"""What merges stored rows: Spark's SQL, or DuckDB in Spark's Python workers."""


class RestorePointChoice(TypedDict, total=False):
    """Which checkpoint is read; one of these.

    Attributes:
        checkpoint: an id (`17` or `chk-17`).
        savepoint: a name; the checkpoint that it pins.
        as_of: the newest checkpoint whose logical time is not after this.
    """

    checkpoint: int | str | None
    savepoint: str | None
    as_of: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _At:
    """The same, checked; another keyword is a TypeError."""

    checkpoint: int | str | None = None
    savepoint: str | None = None
    as_of: datetime | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("checkpoint", "savepoint", "as_of") if getattr(self, name) is not None]
        if len(given) > 1:
            raise UsageError(f"both {given[0]} and {given[1]}", next="give one of them.")


def read_state(
    spark: "SparkSession",
    pipeline: str,
    uid: str,
    *,
    by: Resolver = "spark",
    settings: Settings | None = None,
    **at: Unpack[RestorePointChoice],
) -> "DataFrame":
    """The resolved state of an operator as a Spark DataFrame: one row per live key.

    Columns are the key columns, the finished state fields in their declared order, and `_changed`, the id of the
    last checkpoint that changed the key. The session must see the warehouse;
    it needs nothing of Delta's, because the files are read by name.

    Args:
        spark: a classic or a Connect session.
        pipeline: its name.
        uid: the operator.
        by: `"spark"` merges by Spark's SQL: filters of yours reach the files. `"duckdb"` merges in Spark's Python
            workers, each a range of key groups, without a shuffle: faster where a state is read whole, but filters
            and columns of yours save nothing. The workers need this release of Tidemark with its libraries, the
            warehouse under the client's name for it, and for a bucket credentials of their own.
        settings: where the warehouse is; `load_settings()` without it.
        **at: `checkpoint=`, `savepoint=` or `as_of=`; see `RestorePoint`. The newest checkpoint without it.

    Raises:
        NotFoundError: no such pipeline, checkpoint, savepoint or operator.
        UsageError: two of `checkpoint`, `savepoint` and `as_of`, or a time without a zone; an unknown `by`; a state
            with a `spark_only` aggregate by DuckDB.
        StoreError: a version of the state's tables is gone, or has other files than were committed; by DuckDB also: a
            file is gone.
    """
    from tidemark.engine.state.resolve_sql import resolved

    _refuse_unknown(by)
    context = open_context(settings)
    found = _found(context, pipeline, _At(**at))
    if by == "duckdb":
        return _by_ranges(context, spark, found, uid)
    return resolved(context.warehouse_of(spark), schema_of(found, uid), found.handles[uid], found.now)


def _refuse_unknown(by: str) -> None:
    known = get_args(Resolver)
    if by not in known:
        raise UsageError(f"by={by!r}", next=f"give one of {', '.join(map(repr, known))}.")


def _by_ranges(context: Context, spark: "SparkSession", found: Checkpoint, uid: str) -> "DataFrame":
    from tidemark.engine.state.resolve_ranges import resolved_by_ranges
    from tidemark.readers.state_reader import range_reader

    schema, handle = schema_of(found, uid), found.handles[uid]
    return resolved_by_ranges(
        spark, schema, handle.rows, range_reader(context.warehouse.root, schema, handle, found.now)
    )


def read_sink(
    spark: "SparkSession",
    pipeline: str,
    sink: str,
    *,
    settings: Settings | None = None,
    **at: Unpack[RestorePointChoice],
) -> "DataFrame":
    """The rows of a sink as of a checkpoint, as a Spark DataFrame: rows that no manifest names are never seen.

    Columns are the emitted fields, the row's id (`_uid`, `_topic`, `_partition`, `_offset`, `_n`), and `_checkpoint`,
    the id of the checkpoint that emitted it.

    Args:
        spark: a classic or a Connect session.
        pipeline: its name.
        sink: the sink's name.
        settings: as in `read_state`.
        **at: as in `read_state`.

    Raises:
        NotFoundError: no such pipeline, checkpoint, savepoint or sink.
        UsageError: as in `read_state`.
        StoreError: a version of the sink is gone, or has other files than were committed.
    """
    from tidemark.engine.state.resolve_sql import union_of

    context = open_context(settings)
    table = sink_of(_found(context, pipeline, _At(**at)), sink)
    return union_of(context.warehouse_of(spark), table)


def _found(context: Context, pipeline: str, at: _At) -> Checkpoint:
    if at.as_of is not None:
        return reads.get_checkpoint_as_of(context, pipeline, at.as_of)
    number = None if at.checkpoint is None else parse_id(str(at.checkpoint))
    return reads.get_checkpoint(
        context, pipeline, savepoints.resolve_checkpoint_id(context, pipeline, number, at.savepoint)
    )
