"""Reading state from a Spark session of the user's own: `tidemark.read_state(spark, "flights", "aircraft")`."""

from datetime import datetime
from typing import TYPE_CHECKING

from tidemark.errors import NotFoundError, UsageError
from tidemark.model.checkpoint import Checkpoint
from tidemark.model.compaction import bottom_of, groups_of
from tidemark.settings import Settings
from tidemark.wiring import Runtime, open_runtime
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
    last checkpoint that changed the key. The session must see the warehouse and have Delta's extension.

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
    if checkpoint is not None and as_of is not None:
        raise UsageError("both checkpoint and as_of", next="give one of them.")
    if as_of is not None:
        found = _as_of(runtime, pipeline, as_of)
    else:
        found = runtime.checkpoint(pipeline, None if checkpoint is None else _number(checkpoint))
    schema = schema_of(found, uid)
    handle = found.handles[uid]
    bottom = bottom_of(schema, groups_of(handle, {s: runtime.tables.files_of(s) for s in handle}))
    return resolved(spark, str(runtime.settings.warehouse), schema, handle, found.now, bottom)


def _as_of(runtime: Runtime, pipeline: str, when: datetime) -> Checkpoint:
    if when.tzinfo is None:
        raise UsageError(f"as_of={when} has no time zone", next="give an aware datetime.")
    for found in runtime.checkpoints(pipeline):
        if found.plan.logical_time_ms <= when.timestamp() * 1000:
            return found
    raise NotFoundError(f"{pipeline} has no checkpoint as of {when}", next=f"tidemark checkpoint list {pipeline}")


def _number(checkpoint: int | str) -> int:
    digits = str(checkpoint).removeprefix("chk-")
    if not digits.isdecimal():
        raise UsageError(f"not a checkpoint id: {checkpoint!r}", next="write 17 or 'chk-17'.")
    return int(digits)
