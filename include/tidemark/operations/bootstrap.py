"""Starts a pipeline with state from tables, and with the offsets where reading begins."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tidemark.context import Context
from tidemark.coordinator.plans.bootstrap_offsets import GivenStarts, Starts, given_starts
from tidemark.coordinator.plans.initial_offsets import to_ms
from tidemark.coordinator.recovery.import_state import Importer, Importing
from tidemark.declare.pipeline import Pipeline
from tidemark.environment import random_id
from tidemark.errors import UsageError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.retention.export_manifest import Export, ExportedFile, ExportedState
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.operations import import_
from tidemark.operations.import_ import Imported, describe_import
from tidemark.operations.reads import refuse_stateless
from tidemark.sql.initial_state import refuse_given_rows

if TYPE_CHECKING:
    from tidemark.transfer.bootstrap_tables import GivenTable

_NUMBER = 1
"""The value of `_changed` in bootstrapped rows: no checkpoint has changed them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapRequest:
    """The initial state and offsets of a pipeline.

    Attributes:
        pipeline: the pipeline, which has no checkpoint yet.
        tables: path of a table per uid; omitted operators start empty.
        starts: where reading begins.
        at: when the keys were last accessed, also the first watermark; None = now, and no watermark.
    """

    pipeline: str
    tables: Mapping[str, str]
    starts: Starts
    at: datetime | None = None


def plan_bootstrap(context: Context, request: BootstrapRequest) -> Imported:
    """Returns what a bootstrap would do: reads every table and asks Kafka; writes nothing.

    Raises:
        NotFoundError: no such pipeline, table or topic.
        UsageError: no such operator, a table or starts that do not fit, or a missing time for a state with a TTL.
        ConflictError: the pipeline has begun.
        BrokerError, StoreError: Kafka or a table could not be read.
    """
    pipeline, given, starts = _given(context, request)
    rows = {uid: table.check() for uid, table in given.items()}
    stored = {uid: (ExportedFile(path="", bytes=1, sha256="", rows=n),) for uid, n in rows.items()}
    wanted = _wanted_of(context, request, pipeline, starts, stored)
    importer = Importer(coordinator=context.coordinator(pipeline.name))
    return describe_import(wanted, importer.inputs(wanted, importer.refuse_taken(wanted), wanted.least), None)


def bootstrap(context: Context, request: BootstrapRequest) -> Imported:
    """Converts the tables to stored rows, then completes the pipeline's first checkpoint, as an import does.

    Raises:
        TidemarkError: as in `plan_bootstrap`, and as the steps raise.
    """
    from tidemark.storage.parquet_folder import ParquetFolder
    from tidemark.storage.scratch import scratch_folder
    from tidemark.transfer.import_folder import ExportFolder

    pipeline, given, starts = _given(context, request)
    empty = _wanted_of(context, request, pipeline, starts, {})
    Importer(coordinator=context.coordinator(pipeline.name)).refuse_taken(empty)
    with scratch_folder(context.warehouse.local_folder, pipeline.name, random_id) as scratch:
        folder = Path(context.warehouse.local_folder, scratch)
        inside, at_ms = ParquetFolder(folder), empty.export.logical_time_ms
        stored = {uid: tuple(table.write(inside, at_ms, _NUMBER)) for uid, table in given.items()}
        wanted = _wanted_of(context, request, pipeline, starts, stored)
        return import_.import_rows(context, ExportFolder(folder), wanted)


def _given(context: Context, request: BootstrapRequest) -> tuple[Pipeline, Mapping[str, "GivenTable"], GivenStarts]:
    from tidemark.transfer.bootstrap_tables import GivenTable

    pipeline = context.pipeline(request.pipeline)
    schemas = pipeline.schemas()
    for uid in request.tables:
        if uid not in schemas:
            raise UsageError(f"{pipeline.name} has no operator {uid!r}", next=f"name one of: {', '.join(schemas)}.")
        refuse_stateless(schemas[uid], schemas)
        refuse_given_rows(schemas[uid], "a bootstrap", "omit it: it begins with the first records.")
        if uid in pipeline.tables:
            raise UsageError(f"{uid} is copied from a table of its own", next="omit it.")
    timed = [uid for uid in request.tables if request.at is None and _expires(schemas[uid])]
    if timed:
        raise UsageError(
            f"state of {', '.join(timed)} expires, but the time when its keys were last accessed is not given",
            next="give the time with --at.",
        )
    given = {uid: GivenTable(path, schemas[uid]) for uid, path in request.tables.items()}
    return pipeline, given, given_starts(pipeline, request.starts, context.log)


def _wanted_of(
    context: Context,
    request: BootstrapRequest,
    pipeline: Pipeline,
    starts: GivenStarts,
    stored: Mapping[str, tuple[ExportedFile, ...]],
) -> Importing:
    schemas, at = pipeline.schemas(), None if request.at is None else to_ms(request.at)
    export = Export(
        pipeline=pipeline.name,
        checkpoint=_NUMBER,
        timeline="",
        savepoint="",
        states={
            uid: ExportedState(schema=schemas[uid], stored=files, resolved=None, queries={})
            for uid, files in stored.items()
        },
        operator_states={},
        ranges=starts.ranges,
        topic_ids=starts.topic_ids,
        sources=starts.sources,
        isolation=pipeline.isolation,
        logical_time_ms=context.clock.now_ms() if at is None else at,
        watermark_ms=at,
        watermarks={},
        covered_until_ms=None,
        broadcast_versions={},
        broadcast_ids={},
        fingerprint=pipeline.fingerprint,
        exported_at_ms=0,
    )
    return Importing(export=export, pipeline=pipeline, timeline=keys.FIRST_TIMELINE)


def _expires(schema: OperatorSchema) -> bool:
    return any(f.ttl is not None for f in schema.fields)
