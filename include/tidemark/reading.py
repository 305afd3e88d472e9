"""Reading state and sinks in a Spark session of the user's own: `tidemark.read_state(spark, "flights", "routes")`."""

from datetime import datetime
from typing import TYPE_CHECKING

from tidemark.errors import UsageError
from tidemark.model.checkpoint import Checkpoint
from tidemark.settings import Settings
from tidemark.wiring import Runtime, open_runtime
from tidemark.wiring.outputs import sink_of
from tidemark.wiring.reads import schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_state(
    spark: "SparkSession",
    pipeline: str,
    uid: str,
    *,
    checkpoint: int | str | None = None,
    as_of: datetime | None = None,
    settings: Settings | None = None,
) -> "DataFrame":
    """The resolved state of an operator as a Spark DataFrame: one row per live key.

    Columns are the key columns, the finished state fields in their declared order, and `_changed`, the id of the
    last checkpoint that changed the key. The session must see the warehouse;
    it needs nothing of Delta's, because the files are read by name.

    Args:
        spark: a classic or a Connect session.
        pipeline: its name.
        uid: the operator.
        checkpoint: an id (`17` or `chk-17`); the newest one without it.
        as_of: the newest checkpoint whose logical time is not after this; not together with `checkpoint`.
        settings: where the warehouse is; `load_settings()` without it.

    Raises:
        NotFoundError: no such pipeline, checkpoint or operator.
        UsageError: both `checkpoint` and `as_of`, or a time without a zone.
    """
    from tidemark.engine.resolving import resolved

    runtime = open_runtime(settings)
    found = _found(runtime, pipeline, checkpoint, as_of)
    schema = schema_of(found, uid)
    return resolved(runtime.state_of(spark), schema, found.handles[uid], found.now)


def read_sink(
    spark: "SparkSession",
    pipeline: str,
    sink: str,
    *,
    checkpoint: int | str | None = None,
    as_of: datetime | None = None,
    settings: Settings | None = None,
) -> "DataFrame":
    """The rows of a sink as of a checkpoint, as a Spark DataFrame: rows that no manifest names are never seen.

    Columns are the emitted fields, the row's id (`_uid`, `_topic`, `_partition`, `_offset`, `_n`), and `_checkpoint`,
    the id of the checkpoint that emitted it.

    Args:
        spark: a classic or a Connect session.
        pipeline: its name.
        sink: the sink's name.
        checkpoint: as in `read_state`.
        as_of: as in `read_state`.
        settings: as in `read_state`.

    Raises:
        NotFoundError: no such pipeline, checkpoint or sink.
        UsageError: both `checkpoint` and `as_of`, or a time without a zone.
    """
    from tidemark.engine.resolving import union_of

    runtime = open_runtime(settings)
    table = sink_of(_found(runtime, pipeline, checkpoint, as_of), sink)
    return union_of(spark, str(runtime.settings.warehouse), table)


def _found(runtime: Runtime, pipeline: str, checkpoint: int | str | None, as_of: datetime | None) -> Checkpoint:
    if checkpoint is not None and as_of is not None:
        raise UsageError("both checkpoint and as_of", next="give one of them.")
    if as_of is not None:
        return _as_of(runtime, pipeline, as_of)
    return runtime.checkpoint(pipeline, None if checkpoint is None else _number(checkpoint))


def _as_of(runtime: Runtime, pipeline: str, when: datetime) -> Checkpoint:
    if when.tzinfo is None:
        raise UsageError(f"as_of={when} has no time zone", next="give an aware datetime.")
    return runtime.checkpoint_as_of(pipeline, when)


def _number(checkpoint: int | str) -> int:
    digits = str(checkpoint).removeprefix("chk-")
    if not digits.isdecimal():
        raise UsageError(f"not a checkpoint id: {checkpoint!r}", next="write 17 or 'chk-17'.")
    return int(digits)
