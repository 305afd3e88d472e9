"""The verbs of sinks: read one as of a checkpoint, show what waits to be sent, leave a record out."""

from typing import TYPE_CHECKING, Any

from tidemark.coordinator.checkpoints.backlog import SinkBacklog, backlogs, refusal_to_skip, skip
from tidemark.coordinator.records.refusals import Refusals
from tidemark.errors import NotFoundError
from tidemark.model.checkpoint import Checkpoint
from tidemark.model.messages import RecordPlace
from tidemark.model.refusals import DeliveryFailure, SkippedRecord
from tidemark.model.sinks import SinkTable
from tidemark.wiring.facts import iso
from tidemark.wiring.reads import Reads

if TYPE_CHECKING:
    import pyarrow as pa


_GUARANTEES = {"kafka": "exactly_once_by_id", "topic": "at_least_once"}


class Outputs(Reads):
    """Reads what operators have emitted, and answers what became of it."""

    def sinks(self, name: str) -> list[dict[str, Any]]:
        """The sinks of a pipeline with what waits to be sent, JSON values only.

        Raises:
            NotFoundError: no such pipeline.
        """
        return [_backlog_facts(found) for found in backlogs(self.coordinator(self.known(name)))]

    def skip_record(self, name: str, sink: str, record: str, owner: str = "", note: str = "") -> dict[str, Any]:
        """Leaves a record that Kafka refuses out of a sink from now on; without an owner it only says what it would do.

        Returns:
            The record, JSON values only; `skipped` says whether it is left out now.

        Raises:
            UsageError: that is no id of an emitted record.
            NotFoundError: Kafka has refused no such record of the sink.
            ConflictError: the record does not wait any more.
        """
        RecordPlace.parse(record)
        coordinator = self.coordinator(self.known(name))
        before = [held for held in Refusals(coordinator.objects).skipped(sink) if held.record == record]
        if before:
            return {**_record_facts(before[0]), "skipped": True}
        refused = refusal_to_skip(coordinator, sink, record)
        if owner:
            skip(coordinator, refused, owner, note)
        return {**_record_facts(refused), "skipped": bool(owner)}

    def skipped_records(self, name: str, sink: str | None = None) -> list[dict[str, Any]]:
        """The records that sinks leave out, oldest first per sink, JSON values only.

        Raises:
            NotFoundError: no such pipeline.
        """
        refusals = Refusals(self.coordinator(self.known(name)).objects)
        held = (found for each in refusals.sinks() if sink in (None, each) for found in refusals.skipped(each))
        return [{**_record_facts(r), "owner": r.owner, "note": r.note, "skipped_at": iso(r.at_ms)} for r in held]

    def sink_table(
        self, name: str, sink: str, *, checkpoint: int | None = None, limit: int | None = None
    ) -> "pa.Table":
        """The rows of a sink as of a checkpoint, read without Spark: emitted fields, row id, `_checkpoint`.

        Args:
            name: the pipeline.
            sink: its name; of a sink to Kafka this is the outbox.
            checkpoint: an id; the newest one without it.
            limit: only the last so many rows.

        Raises:
            NotFoundError: no such pipeline, checkpoint or sink.
            StoreError: a file of it is gone.
        """
        from tidemark.adapters.sink_reader import read_sink

        rows = read_sink(self.root, sink_of(self.checkpoint(name, checkpoint), sink))
        return rows if limit is None else rows.slice(max(0, rows.num_rows - limit))


def sink_of(checkpoint: Checkpoint, sink: str) -> SinkTable:
    """The table of a sink as of a checkpoint.

    Raises:
        NotFoundError: the checkpoint names no such sink, or one that keeps no rows.
    """
    known = {table.name: table for table in checkpoint.sinks.values()}
    if sink not in known:
        raise NotFoundError(
            f"{checkpoint.plan.name} has no sink {sink!r}", next=f"name one of: {', '.join(known) or 'none'}."
        )
    found = known[sink]
    if not found.keeps_rows and not found.handle:
        raise NotFoundError(
            f"sink {sink!r} keeps no rows: attempts send them to a topic (guarantee='at_least_once')",
            next=f"read the topic{'' if found.topic is None else ' ' + found.topic} itself.",
        )
    return found


def _backlog_facts(found: SinkBacklog) -> dict[str, Any]:
    failure = found.failure
    return {
        "sink": found.sink,
        "guarantee": _GUARANTEES.get(found.kind),
        "topic": found.topic,
        "waiting": {
            "checkpoints": list(found.checkpoints),
            "records": found.records,
            "since": None if found.since_ms is None else iso(found.since_ms),
        },
        "failure": None
        if failure is None
        else {
            "what": failure.what,
            "next": failure.next,
            "record": failure.record or None,
            "size": failure.size or None,
            "since": iso(failure.at_ms),
        },
        "skipped": found.skipped,
    }


def _record_facts(held: DeliveryFailure | SkippedRecord) -> dict[str, Any]:
    place = RecordPlace.parse(held.record)
    return {
        "sink": held.sink,
        "record": held.record,
        "checkpoint": f"chk-{place.checkpoint}",
        "timeline": place.timeline,
        "uid": place.uid,
        "partition": f"{place.topic}-{place.partition}",
        "offset": place.offset,
        "number": place.number,
        "size": held.size,
        "why": held.why,
    }
