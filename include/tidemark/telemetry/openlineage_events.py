"""Attempts and checkpoints as events of OpenLineage: inputs, outputs, and the manifest.

Events contain only positions, versions, counts and names. They contain no key, value or record, and no error message,
which may name one.
"""

import hashlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TypeVar, cast
from uuid import UUID

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    BaseFacet,
    DatasetFacet,
    InputDatasetFacet,
    RunFacet,
    dataset_version_dataset,
    error_message_run,
    job_type_job,
    nominal_time_run,
    output_statistics_output_dataset,
    processing_engine_run,
    storage_dataset,
)

from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Ack, Checkpoint, Sealed
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.ports.observing import LineageEvent
from tidemark.telemetry.openlineage_columns import (
    DEAD_LETTERS,
    PRODUCER,
    STATE_TABLE,
    Naming,
    PlannedColumns,
)

Facet = TypeVar("Facet", bound=BaseFacet)


def run_event(event: LineageEvent, naming: Naming) -> RunEvent:
    """Returns the event: the same for the same arguments, whichever process calls it.

    Args:
        event: what happened to an attempt.
        naming: names of jobs and datasets.
    """
    plan, columns = event.plan, PlannedColumns(event.plan, naming)
    job_type = job_type_job.JobTypeJobFacet(
        processingType="BATCH", integration="TIDEMARK", jobType="CHECKPOINT", producer=PRODUCER
    )
    outputs = [] if event.completed is None else list(_outputs(event.completed, naming, columns))
    return RunEvent(
        eventType=_state_of(event),
        eventTime=_iso(event.at_ms),
        producer=PRODUCER,
        run=Run(runId=run_id(plan, event.attempt), facets=_run_facets(event)),
        job=Job(namespace=naming.jobs, name=plan.pipeline, facets={"jobType": job_type}),
        inputs=_inputs(plan, naming, columns),
        outputs=outputs,
    )


def run_id(plan: CheckpointPlan, attempt: int) -> str:
    """The same for all events of an attempt, whichever process sends them."""
    digest = hashlib.sha256(f"{plan.write_id}/{attempt}".encode()).digest()
    return str(UUID(bytes=digest[:16], version=5))


def _state_of(event: LineageEvent) -> RunState:
    if event.completed is not None:
        return RunState.COMPLETE
    return RunState.START if event.failure is None else RunState.FAIL


def _run_facets(event: LineageEvent) -> dict[str, RunFacet]:
    plan = event.plan
    found: dict[str, RunFacet] = {
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
            name="Tidemark", version="0.1.0", producer=PRODUCER
        ),
        "tidemark_checkpoint": _own(RunFacet(producer=PRODUCER), **_checkpoint(plan, event.attempt)),
    }
    if plan.interval is not None:
        found["nominalTime"] = nominal_time_run.NominalTimeRunFacet(
            nominalStartTime=_iso(plan.interval.start_ms),
            nominalEndTime=_iso(plan.interval.end_ms),
            producer=PRODUCER,
        )
    if event.failure is not None:
        found["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=event.failure.value, programmingLanguage="PYTHON", producer=PRODUCER
        )
    if event.completed is not None:
        found["tidemark_result"] = _own(RunFacet(producer=PRODUCER), **_result(event.completed.sealed))
    return found


def _checkpoint(plan: CheckpointPlan, attempt: int) -> dict[str, object]:
    return {
        "id": plan.name,
        "timeline": plan.slot.timeline,
        "sequence": plan.slot.sequence,
        "attempt": attempt,
        "parent": None if plan.parent is None else f"chk-{plan.parent}",
        "manifest": keys.external_path(plan.pipeline, plan.slot),
        "origin": plan.origin,
        "fingerprint": plan.fingerprint,
        "logicalTime": _iso(plan.logical_time_ms),
        "replays": [f"chk-{number}" for number in plan.replays],
    }


def _result(sealed: Sealed) -> dict[str, object]:
    return {
        "records": sealed.facts.records,
        "bytes": sealed.facts.bytes,
        "deadLetters": {a.uid: a.dead_lettered for a in sealed.acks},
        "filtered": {a.uid: a.filtered for a in sealed.acks},
        "keys": {a.uid: a.keys for a in sealed.acks},
        "emitted": {uid: output.emitted for a in sealed.acks for uid, output in a.by_output.items()},
        "checkpointedSize": sealed.run_bytes,
        "stateSize": sealed.full_bytes,
        "expectations": len(sealed.verdict.expectations),
        "timings": dict(sealed.timings_ms),
    }


def _inputs(plan: CheckpointPlan, naming: Naming, columns: PlannedColumns) -> list[InputDataset]:
    ranges: dict[str, dict[str, dict[str, int]]] = {}
    for place, bounds in plan.ranges.items():
        ranges.setdefault(place.topic, {})[str(place.partition)] = {"start": bounds.start, "end": bounds.end}
    return [
        InputDataset(
            *naming.topic(topic),
            facets=columns.read_facets(topic),
            inputFacets={
                "tidemark_offsets": _own(
                    InputDatasetFacet(producer=PRODUCER), topicId=plan.topic_ids.get(topic), partitions=partitions
                )
            },
        )
        for topic, partitions in ranges.items()
    ]


def _outputs(found: Checkpoint, naming: Naming, columns: PlannedColumns) -> Iterator[OutputDataset]:
    """Yields the tables that the attempt committed to, and the topics that its sinks send to."""
    storage = storage_dataset.StorageDatasetFacet(storageLayer="delta", fileFormat="parquet", producer=PRODUCER)
    for ack in found.sealed.acks:
        sinks = {output: found.sinks[output] for output in found.plan.sinks_of(ack.uid)}
        for commit in ack.commits:
            kind, uid, counts = _written(commit.path, ack, sinks)
            facets: dict[str, DatasetFacet] = {
                "version": dataset_version_dataset.DatasetVersionDatasetFacet(
                    datasetVersion=str(commit.version), producer=PRODUCER
                ),
                "storage": storage,
                "tidemark_table": _own(DatasetFacet(producer=PRODUCER), kind=kind, uid=uid, checkpoint=found.plan.name),
                **columns.written_facets(kind, uid),
            }
            statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                **counts, producer=PRODUCER
            )
            yield OutputDataset(
                *naming.table(commit.path), facets=facets, outputFacets={"outputStatistics": statistics}
            )
        for output, sink in sinks.items():
            if sink.topic is not None:
                yield OutputDataset(*naming.topic(sink.topic), facets=columns.written_facets(sink.kind, output))


def _written(path: str, ack: Ack, sinks: Mapping[str, SinkTable]) -> tuple[str, str, dict[str, int]]:
    """Returns the kind of a table, the uid of its operator or output, and the counts of what the attempt wrote."""
    for uid, sink in sinks.items():
        if path == sink.path:
            return sink.kind, uid, {"rowCount": ack.by_output[uid].emitted}
    if "/dead_letters/" in path:
        return DEAD_LETTERS, ack.uid, {"rowCount": ack.dead_lettered}
    return STATE_TABLE, ack.uid, {"rowCount": ack.keys, "size": ack.run_bytes}


def _own(base: Facet, /, **values: object) -> Facet:
    """Returns a facet of Tidemark's: its schema is that of any facet of its kind, with further properties."""
    return cast(Facet, base.with_additional_properties(**values))


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
