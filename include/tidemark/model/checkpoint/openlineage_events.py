"""Attempts and checkpoints as OpenLineage events, spec 2-0-2: inputs, outputs, and the manifest.

Events contain only positions, versions, counts and names. They contain no key, value or record, and no error message,
which may name one.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Ack, Checkpoint, Sealed
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.model.core.names import S3Url, is_url

Json = dict[str, object]
SPEC = "https://openlineage.io/spec/2-0-2/OpenLineage.json"
FACETS = "https://openlineage.io/spec/facets"
PRODUCER = "urn:tidemark:0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """The names of jobs and datasets, by OpenLineage's naming rules.

    Attributes:
        jobs: namespace of the jobs; a pipeline is a job.
        broker: `host:port` of the first Kafka server; topics are `kafka://host:port`, name.
        warehouse: absolute path, and tables are `file`, path; or `s3://BUCKET/FOLDER`: then `s3://BUCKET`, path.
    """

    jobs: str
    broker: str
    warehouse: str

    def topic(self, name: str) -> Json:
        """Returns a topic."""
        return {"namespace": f"kafka://{self.broker}", "name": name}

    def table(self, path: str) -> Json:
        """Returns a Delta table by its path relative to the warehouse."""
        if is_url(self.warehouse):
            place = S3Url.parsed(self.warehouse)
            return {"namespace": f"s3://{place.bucket}", "name": f"{place.prefix}/{path}"}
        return {"namespace": "file", "name": f"{self.warehouse}/{path}"}


def run_id(plan: CheckpointPlan, attempt: int) -> str:
    """The same for all events of an attempt, whichever process sends them."""
    digest = hashlib.sha256(f"{plan.write_id}/{attempt}".encode()).digest()
    return str(UUID(bytes=digest[:16], version=5))


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """One attempt: the common part of its events.

    Attributes:
        plan: the plan.
        attempt: number of the attempt.
        naming: names of jobs and datasets.
    """

    plan: CheckpointPlan
    attempt: int
    naming: Naming

    def start_event(self, at_ms: int) -> Json:
        """Returns START: the inputs that the plan has frozen."""
        return self._event("START", at_ms, {}) | {"inputs": self._inputs(), "outputs": []}

    def fail_event(self, at_ms: int, reason: FailureReason) -> Json:
        """Returns FAIL: the reason from the closed set; nothing was published."""
        error = _facet("ErrorMessageRunFacet", "1-0-1", message=reason.value, programmingLanguage="PYTHON")
        return self._event("FAIL", at_ms, {"errorMessage": error}) | {"inputs": self._inputs(), "outputs": []}

    def complete_event(self, at_ms: int, found: Checkpoint) -> Json:
        """Returns COMPLETE: the manifest is published; with the written tables and their versions in the manifest."""
        event = self._event("COMPLETE", at_ms, {"tidemark_result": _custom("RunFacet", **_result(found.sealed))})
        return event | {"inputs": self._inputs(), "outputs": list(self._outputs(found))}

    def _event(self, kind: str, at_ms: int, facets: Json) -> Json:
        plan = self.plan
        shared: Json = {
            "processing_engine": _facet("ProcessingEngineRunFacet", "1-1-1", name="Tidemark", version="0.1.0"),
            "tidemark_checkpoint": _custom("RunFacet", **self._checkpoint()),
        }
        if plan.interval is not None:
            shared["nominalTime"] = _facet(
                "NominalTimeRunFacet",
                "1-0-1",
                nominalStartTime=_iso(plan.interval.start_ms),
                nominalEndTime=_iso(plan.interval.end_ms),
            )
        kinds = {"processingType": "BATCH", "integration": "TIDEMARK", "jobType": "CHECKPOINT"}
        return {
            "eventType": kind,
            "eventTime": _iso(at_ms),
            "producer": PRODUCER,
            "schemaURL": f"{SPEC}#/$defs/RunEvent",
            "run": {"runId": run_id(plan, self.attempt), "facets": shared | facets},
            "job": {
                "namespace": self.naming.jobs,
                "name": plan.pipeline,
                "facets": {"jobType": _facet("JobTypeJobFacet", "2-0-4", **kinds)},
            },
        }

    def _checkpoint(self) -> Json:
        plan = self.plan
        return {
            "id": plan.name,
            "timeline": plan.slot.timeline,
            "sequence": plan.slot.sequence,
            "attempt": self.attempt,
            "parent": None if plan.parent is None else f"chk-{plan.parent}",
            "manifest": keys.external_path(plan.pipeline, plan.slot),
            "origin": plan.origin,
            "fingerprint": plan.fingerprint,
            "logicalTime": _iso(plan.logical_time_ms),
            "replays": [f"chk-{number}" for number in plan.replays],
        }

    def _inputs(self) -> list[Json]:
        ranges: dict[str, Json] = {}
        for place, bounds in self.plan.ranges.items():
            ranges.setdefault(place.topic, {})[str(place.partition)] = {"start": bounds.start, "end": bounds.end}
        return [
            self.naming.topic(topic)
            | {
                "inputFacets": {
                    "tidemark_offsets": _custom(
                        "InputDatasetFacet", topicId=self.plan.topic_ids.get(topic), partitions=partitions
                    )
                }
            }
            for topic, partitions in ranges.items()
        ]

    def _outputs(self, found: Checkpoint) -> Iterator[Json]:
        """Returns the tables that the attempt committed to, then the topics that its sinks send to."""
        for ack in found.sealed.acks:
            sinks = {output: found.sinks[output] for output in found.plan.sinks_of(ack.uid)}
            for commit in ack.commits:
                kind, uid, count = _output_facets(commit.path, ack, sinks)
                written = _facet("OutputStatisticsOutputDatasetFacet", "1-0-2", **count)
                yield self.naming.table(commit.path) | {
                    "facets": {
                        "version": _facet("DatasetVersionDatasetFacet", "1-0-1", datasetVersion=str(commit.version)),
                        "storage": _facet("StorageDatasetFacet", "1-0-1", storageLayer="delta", fileFormat="parquet"),
                        "tidemark_table": _custom("DatasetFacet", kind=kind, uid=uid, checkpoint=found.plan.name),
                    },
                    "outputFacets": {"outputStatistics": written},
                }
            yield from (self.naming.topic(sink.topic) for sink in sinks.values() if sink.topic is not None)


def attempt_of(found: Checkpoint, naming: Naming) -> Attempted:
    """Returns the attempt that produced a completed checkpoint."""
    return Attempted(plan=found.plan, attempt=found.sealed.attempt, naming=naming)


def _output_facets(path: str, ack: Ack, sinks: Mapping[str, SinkTable]) -> tuple[str, str, dict[str, int]]:
    """Returns the kind of a table, the uid of its operator or output, and the counts of what the attempt wrote."""
    for uid, sink in sinks.items():
        if path == sink.path:
            return sink.kind, uid, {"rowCount": ack.by_output[uid].emitted}
    if "/dead_letters/" in path:
        return "dead letters", ack.uid, {"rowCount": ack.dead_lettered}
    return "state", ack.uid, {"rowCount": ack.keys, "size": ack.run_bytes}


def _result(sealed: Sealed) -> Json:
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


def _facet(name: str, version: str, /, **values: object) -> Json:
    """Returns a facet of the specification."""
    return {"_producer": PRODUCER, "_schemaURL": f"{FACETS}/{version}/{name}.json#/$defs/{name}", **values}


def _custom(base: str, /, **values: object) -> Json:
    """Returns a facet of Tidemark's; it uses the schema for any facet of its kind."""
    return {"_producer": PRODUCER, "_schemaURL": f"{SPEC}#/$defs/{base}", **values}


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def without_nulls(event: Mapping[str, object]) -> Json:
    """Returns an event without null members: receivers treat a missing one as unknown, and some refuse null."""
    return {name: _without(value) for name, value in event.items() if value is not None}


def _without(value: object) -> object:
    if isinstance(value, Mapping):
        return without_nulls(value)
    return [_without(item) for item in value] if isinstance(value, list) else value
