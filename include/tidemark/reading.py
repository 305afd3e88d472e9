"""Read state and sinks in a Spark session of yours: `tidemark.read_state(spark, "flights", "routes")`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, get_args

from tidemark.context import Context, open_context
from tidemark.errors import UsageError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.core.names import parse_id
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.model.state.key_choice import KeyChoice, chosen_groups, key_choice
from tidemark.operations import reads, savepoints
from tidemark.operations.reads import state_schema_of
from tidemark.operations.sinks import sink_of
from tidemark.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Resolver = Literal["auto", "spark", "duckdb"]
"""The engine that merges stored rows: Spark SQL, DuckDB in Spark's Python workers, or whichever the session allows."""


class RestorePointChoice(TypedDict, total=False):
    """Selects the checkpoint to read; give at most one.

    Attributes:
        checkpoint: an id (`17` or `chk-17`).
        savepoint: the name of a savepoint, for the checkpoint that it pins.
        as_of: a time, for the newest checkpoint whose logical time is not later.
    """

    checkpoint: int | str | None
    savepoint: str | None
    as_of: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _At:
    """The same choice, validated; another keyword is a TypeError."""

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
    by: Resolver = "auto",
    keys: Mapping[str, object | Sequence[object]] | None = None,
    settings: Settings | None = None,
    **at: Unpack[RestorePointChoice],
) -> "DataFrame":
    """Reads the state of an operator at a checkpoint as a Spark DataFrame with one row per live key.

        routes = tidemark.read_state(spark, "flights", "routes", checkpoint=17)
        routes.orderBy("flights", ascending=False).show()

    The columns are the key columns, the state fields in the order of their declaration, and `_changed`, the id of the
    last checkpoint that changed the key. Your session needs access to the warehouse but no Delta jars, because it reads
    the files by name.

    Args:
        spark: a classic or a Connect session.
        pipeline: name of the pipeline.
        uid: uid of the operator.
        by: `"spark"` merges in Spark SQL and pushes your filters on key columns down to the files. `"duckdb"` merges in
            Spark's Python workers, one range of key groups each, without a shuffle. It is faster, but of your filters
            only `keys` saves reading. The workers need this release of Tidemark with its libraries, the warehouse at
            the same path as the client, and their own credentials for a bucket. `"auto"` merges in the workers if the
            session's master is `local[N]` and a worker reports that it has this release and sees the folder;
            otherwise, for a bucket, and for a state with a `spark_only` aggregate, it is `"spark"`.
        keys: per key column a value or a list of values; only rows with one of them in each of these columns. It
            reaches the files, whichever engine merges, and with all columns of the key only their key groups are read.
        settings: settings with the warehouse; by default `load_settings()`.
        **at: `checkpoint=`, `savepoint=` or `as_of=`, see `RestorePointChoice`; by default the newest checkpoint.

    Raises:
        NotFoundError: the pipeline, checkpoint, savepoint or operator does not exist.
        UsageError: you gave two of `checkpoint`, `savepoint` and `as_of`, a time without a zone, or an unknown `by`; a
            column of `keys` is no key column, or a value does not fit its type; or with `"duckdb"`, DuckDB cannot
            compute a `spark_only` aggregate of the state.
        StoreError: a version of the state's tables is missing or has other files than were committed; in workers also:
            a file is missing.
    """
    from tidemark.engine.state.resolve_sql import of_keys, resolve_state

    _refuse_unknown(by)
    context = open_context(settings)
    found = _found(context, pipeline, _At(**at))
    schema, handle = state_schema_of(found, uid), found.handles[uid]
    choice = key_choice(schema, keys or {})
    if by == "duckdb" or (by == "auto" and _is_for_workers(context, spark, schema, handle)):
        return _by_ranges(context, spark, found, uid, choice)
    return of_keys(resolve_state(context.warehouse_of(spark), schema, handle, found.now), schema, choice)


def _refuse_unknown(by: str) -> None:
    known = get_args(Resolver)
    if by not in known:
        raise UsageError(f"by={by!r}", next=f"give one of {', '.join(map(repr, known))}.")


def _is_for_workers(context: Context, spark: "SparkSession", schema: OperatorSchema, handle: StateHandle) -> bool:
    """Whether workers can merge, as far as this can be known without a doubt."""
    from tidemark.engine.state.resolve_ranges import workers_see
    from tidemark.readers.state_reader import files_of, range_reader
    from tidemark.storage.local_store import join_path

    root = context.warehouse.root
    if context.warehouse.bucket is not None or not schema.is_portable:
        return False
    for segment, file in files_of(root, handle)[:1]:
        return workers_see(spark, str(root), str(join_path(root, segment.path, file.path)), range_reader)
    return False


def _by_ranges(context: Context, spark: "SparkSession", found: Checkpoint, uid: str, choice: KeyChoice) -> "DataFrame":
    from tidemark.engine.state.resolve_ranges import resolved_by_ranges
    from tidemark.readers.state_reader import range_reader

    schema, handle = state_schema_of(found, uid), found.handles[uid]
    reader = range_reader(context.warehouse.root, schema, handle, found.now, choice)
    return resolved_by_ranges(spark, schema, handle.rows, reader, chosen_groups(schema, choice))


def read_sink(
    spark: "SparkSession",
    pipeline: str,
    sink: str,
    *,
    settings: Settings | None = None,
    **at: Unpack[RestorePointChoice],
) -> "DataFrame":
    """Reads the rows of a sink as of a checkpoint as a Spark DataFrame; it excludes rows that no manifest names.

        alerts = tidemark.read_sink(spark, "flights", "alerts", savepoint="before-fix")

    The columns are the emitted fields, the id of the row (`_uid`, `_topic`, `_partition`, `_offset`, `_path`), and
    `_checkpoint`, the id of the checkpoint that emitted it.

    Args:
        spark: a classic or a Connect session.
        pipeline: name of the pipeline.
        sink: name of the sink.
        settings: as in `read_state`.
        **at: as in `read_state`.

    Raises:
        NotFoundError: the pipeline, checkpoint, savepoint or sink does not exist.
        UsageError: as in `read_state`.
        StoreError: a version of the sink is missing or has other files than were committed.
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
