"""Reads checkpoints of a pipeline, and the resolved state of an operator."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from tidemark.context import Context
from tidemark.coordinator.records.objects import Objects
from tidemark.coordinator.records.released_checkpoints import usable
from tidemark.coordinator.records.timelines import Timelines
from tidemark.coordinator.records.tombstones import of_checkpoints, read_release
from tidemark.declare.retention import Retention, restore_points
from tidemark.errors import NotFoundError, StoreError, UsageError
from tidemark.model.checkpoint.codec import to_json
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.object_keys import query_key
from tidemark.model.core.key_texts import key_value
from tidemark.model.retention.savepoint import TombstoneRecord
from tidemark.model.schema.operator_schema import KeyColumn, OperatorSchema, with_state
from tidemark.operations import savepoints

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemark.model.portable_sql.dialects import Dialect


def timelines_of(context: Context, name: str) -> Timelines:
    """Returns a pipeline's timelines, to read them without a coordinator, whose modules take time to import."""
    return Timelines(Objects(context.store(name), name))


def list_checkpoints(context: Context, name: str, limit: int | None = None) -> list[Checkpoint]:
    """Completed checkpoints of the live timeline, newest first."""
    timelines = timelines_of(context, context.require_pipeline(name))
    return list(islice(timelines.chain(timelines.live()), limit))


def get_checkpoint(context: Context, name: str, checkpoint_id: int | None = None) -> Checkpoint:
    """Returns a completed checkpoint; without an id, the newest one.

    Raises:
        NotFoundError: there is no such checkpoint.
        ReleasedError: retention has released it.
    """
    timelines = timelines_of(context, context.require_pipeline(name))
    if checkpoint_id is not None:
        return usable(timelines, timelines.checkpoint(checkpoint_id))
    for newest in timelines.chain(timelines.live()):
        return newest
    raise NotFoundError(f"{name} has no checkpoints yet", next=f"tidemark run {name}")


def get_recorded_checkpoint(
    context: Context, name: str, checkpoint_id: int
) -> tuple[Checkpoint, TombstoneRecord | None]:
    """Returns a completed checkpoint, released or not; and if it was released, when and why.

    Raises:
        NotFoundError: there is no such checkpoint.
    """
    timelines = timelines_of(context, context.require_pipeline(name))
    found = timelines.checkpoint(checkpoint_id)
    return found, read_release(timelines.objects, found.plan.name)


def list_released(context: Context, name: str) -> frozenset[str]:
    """Names of the checkpoints that retention has released."""
    found = of_checkpoints(timelines_of(context, context.require_pipeline(name)).objects)
    return frozenset(checkpoint for checkpoint, record in found.items() if record.confirmed)


def get_checkpoint_as_of(context: Context, name: str, when: datetime) -> Checkpoint:
    """Returns the newest checkpoint of the live timeline whose logical time is not after a time.

    Raises:
        NotFoundError: there is no such checkpoint.
        UsageError: the time has no zone.
    """
    from tidemark.coordinator.plans.initial_offsets import to_ms

    checked_time(when)
    timelines = timelines_of(context, context.require_pipeline(name))
    found = timelines.as_of(timelines.live(), to_ms(when))
    if found is None:
        raise NotFoundError(f"{name} has no checkpoint as of {when}", next=f"tidemark checkpoint list {name}")
    return usable(timelines, found)


def checked_time(when: datetime) -> datetime:
    """Returns a time that names its zone.

    Raises:
        UsageError: it names none.
    """
    if when.tzinfo is None:
        raise UsageError(f"{when} has no time zone", next="give an aware datetime.")
    return when


def find_checkpoint_id(context: Context, name: str, at: int | str | datetime | None) -> int | None:
    """The id of the checkpoint that a number, `chk-17`, a savepoint or a time names; None for None.

    Raises:
        NotFoundError: no such savepoint, or no checkpoint as of the time.
        UsageError: the time has no zone.
    """
    if isinstance(at, datetime):
        return get_checkpoint_as_of(context, name, at).id
    return savepoints.find_checkpoint_id(context, name, at) if isinstance(at, str) else at


def explain_kept(context: Context, checkpoint: Checkpoint, retention: Retention) -> dict[int, tuple[str, ...]]:
    """The checkpoints that a rule keeps among a checkpoint and its ancestors: id → reasons, newest first.

    Reads manifests back to the oldest one that the rule may keep, however many there are.
    """
    history = timelines_of(context, checkpoint.plan.pipeline).ancestry(checkpoint)
    found = ((c.id, c.plan.logical_time_ms, c.plan.run) for c in history)
    return retention.select(restore_points(found))


def describe_manifest(context: Context, checkpoint: Checkpoint) -> dict[str, Any]:
    """The whole manifest, with the resolving SQL of every operator."""
    from tidemark.model.portable_sql.dialects import SPARK

    body: dict[str, Any] = to_json(checkpoint)
    body["resolving_sql"] = {
        uid: get_query(context, checkpoint, uid, SPARK) for uid in with_state(checkpoint.plan.schemas)
    }
    return body


def get_query(context: Context, checkpoint: Checkpoint, uid: str, dialect: "Dialect") -> str:
    """Returns the query over `segments` that resolves a state: the stored text if the manifest names one.

    Raises:
        UsageError: only Spark can read the state.
        CorruptObjectError: the text is gone or damaged.
    """
    from tidemark.sql.resolve import bind_clocks, resolving_sql

    name = checkpoint.plan.queries.get(uid, {}).get(dialect.name)
    if name is None:
        return resolving_sql(checkpoint.plan.schemas[uid], "segments", checkpoint.now, dialect=dialect)
    text = timelines_of(context, checkpoint.plan.pipeline).objects.text(query_key, name)
    return bind_clocks(text, uid, checkpoint.now, dialect)


def read_state(
    context: Context,
    name: str,
    uid: str,
    *,
    checkpoint: int | None = None,
    key: Sequence[str] | None = None,
    limit: int | None = None,
) -> "pa.Table":
    """Returns the resolved state of an operator: one row per live key, read without Spark.

    Args:
        context: of this process.
        name: the pipeline.
        uid: the operator.
        checkpoint: an id; by default the newest one.
        key: the key columns' values as text; at most one row is returned, or of each open window one.
        limit: the most rows to return, sorted by key.

    Raises:
        NotFoundError: no such pipeline, checkpoint or operator.
        UsageError: the key has another number of columns, or a value does not fit.
    """
    import pyarrow as pa

    from tidemark.readers.checkpoint_reader import read_checkpoint, stream_checkpoint
    from tidemark.readers.state_reader import empty_state

    found = get_checkpoint(context, name, checkpoint)
    schema = state_schema_of(found, uid)
    if limit is None or key is not None:
        wanted = None if key is None else parse_key(schema, key)
        return read_checkpoint(context.warehouse.root, found, uid, wanted)
    firsts = stream_checkpoint(context.warehouse.root, found, uid, first=limit)
    rows = pa.concat_tables([empty_state(schema), *firsts])
    return rows.sort_by([(k.name, "ascending") for k in schema.keys]).slice(0, limit)


def write_state_file(context: Context, name: str, uid: str, to: Path, *, checkpoint: int | None = None) -> int:
    """Writes the resolved state to a new Parquet or CSV file; returns the number of keys.

    Raises:
        NotFoundError: no such pipeline, checkpoint or operator.
        UsageError: the file exists, or its folder does not, or it ends in neither `.parquet` nor `.csv`.
        StoreError: it could not be written.
    """
    if to.suffix not in (".parquet", ".csv"):
        raise UsageError(f"cannot export to {to.name}", next="give a file that ends in .parquet or .csv.")
    import pyarrow.csv

    from tidemark.readers.checkpoint_reader import stream_checkpoint
    from tidemark.readers.state_reader import empty_state
    from tidemark.storage.parquet_folder import open_rows_writer

    found = get_checkpoint(context, name, checkpoint)
    none = empty_state(state_schema_of(found, uid))
    is_csv, count = to.suffix == ".csv", 0
    open_writer = pyarrow.csv.CSVWriter if is_csv else open_rows_writer
    with _new_file(to) as file, open_writer(file, (_flat(none) if is_csv else none).schema) as writer:
        for rows in stream_checkpoint(context.warehouse.root, found, uid):
            writer.write_table(_flat(rows) if is_csv else rows)
            count += rows.num_rows
    return count


def schema_of(checkpoint: Checkpoint, uid: str) -> OperatorSchema:
    """Returns the stored schema of an operator at a checkpoint.

    Raises:
        NotFoundError: the checkpoint names no such operator.
    """
    if uid not in checkpoint.plan.schemas:
        known = ", ".join(checkpoint.plan.schemas)
        raise NotFoundError(f"{checkpoint.plan.name} has no operator {uid!r}", next=f"name one of: {known}.")
    return checkpoint.plan.schemas[uid]


def state_schema_of(checkpoint: Checkpoint, uid: str) -> OperatorSchema:
    """Returns the stored schema of an operator that keeps state at a checkpoint.

    Raises:
        NotFoundError: the checkpoint names no such operator.
        UsageError: the operator keeps no state.
    """
    return refuse_stateless(schema_of(checkpoint, uid), checkpoint.plan.schemas)


def refuse_stateless(schema: OperatorSchema, known: Mapping[str, OperatorSchema]) -> OperatorSchema:
    """Returns the schema if its operator keeps state.

    Args:
        schema: of the operator.
        known: the schemas of the pipeline's operators, for the message.

    Raises:
        UsageError: it keeps none.
    """
    if schema.keeps_state:
        return schema
    others = ", ".join(with_state(known))
    raise UsageError(
        f"{schema.uid} keeps no state: it is a FlatMap",
        next=f"name one of: {others}." if others else "no operator of this pipeline keeps state; read its sinks.",
    )


def parse_key(schema: OperatorSchema, texts: Sequence[str]) -> tuple[object, ...]:
    """Converts texts to values, by the types of the key columns. The bounds of a window may be left out: all of a key.

    Raises:
        UsageError: too many or too few texts, or a text that does not fit its type.
    """
    if len(texts) not in (len(schema.keys), len(schema.own_keys)):
        names = ", ".join(k.name for k in schema.keys)
        raise UsageError(
            f"{schema.uid} is keyed by {names}; {len(texts)} values were given",
            next="give one value for each of these columns, in this order.",
        )
    return tuple(_parse(column, text) for column, text in zip(schema.keys, texts, strict=False))


def _parse(column: KeyColumn, text: str) -> object:
    try:
        return key_value(column.type, text)
    except ValueError as error:
        raise UsageError(f"not a {column.type.word}: {text!r}", next=f"give a value for {column.name}.") from error


@contextmanager
def _new_file(to: Path) -> Iterator[BinaryIO]:
    """Opens a file that must not exist; the file is removed if writing it fails."""
    try:
        file = to.open("xb")
    except FileExistsError as error:
        raise UsageError(
            f"{to} exists", safe="it was left alone.", next="name another file, or remove that one."
        ) from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(f"no folder for {to}", next=f"mkdir -p {to.parent}    (or name another file).") from error
    except OSError as error:
        raise _unwritable(to, error) from error
    try:
        with file:
            yield file
    except BaseException as error:
        to.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _unwritable(to, error) from error
        raise


def _unwritable(to: Path, error: OSError) -> StoreError:
    return StoreError(
        f"could not write {to}: {error.strerror or error}",
        safe="the warehouse was only read; no part of the file was left.",
        next="make room or correct the permissions, or name another file.",
    )


def _flat(rows: "pa.Table") -> "pa.Table":
    # CSV has no lists: they are written as JSON text.
    import json

    import pyarrow as pa

    for n, field in enumerate(rows.schema):
        if pa.types.is_nested(field.type):
            texts = [None if v is None else json.dumps(v, default=str) for v in rows[field.name].to_pylist()]
            rows = rows.set_column(n, field.name, pa.array(texts, pa.string()))
    return rows
