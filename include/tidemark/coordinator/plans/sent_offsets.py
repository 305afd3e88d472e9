"""The offsets whose rows the sinks of a lineage have sent, and the rows that still wait in their outboxes.

A lineage is a timeline and the checkpoints it descends from. Its outboxes are delivered oldest first, so for each sink
the delivered checkpoints are a prefix of the lineage, and the newest delivery record lists, cumulatively, all that the
lineage has sent. A genesis, or the closing of a promote, hands over the offsets that other timelines sent (ADR 0022).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tidemark.coordinator.plans.parents import Parent
from tidemark.coordinator.records.timelines import Head, Timelines
from tidemark.coordinator.records.tombstones import released
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.object_keys import delivery_key
from tidemark.model.checkpoint.offset_coverage import OffsetCoverage
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.model.checkpoint.store_objects import Closing, DeliveryRecord, Genesis
from tidemark.model.core.offsets import OffsetRange, TopicPartition

LAST = 2**63
"""An offset above every other one."""
Sent = Mapping[str, OffsetCoverage]
"""Per sink whose rows leave the warehouse, the source offsets whose rows were sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undelivered:
    """The outbox rows of one checkpoint for one sink.

    Attributes:
        checkpoint: the checkpoint.
        table: the sink's outbox as of the checkpoint.
        records: number of records that its operator emitted, including rows that are not due.
        passed_over: source offsets whose rows are not sent: other timelines sent them, or a promote withheld them.
        sent: what the lineage has sent once these rows are sent; see `DeliveryRecord.sent`.
        timeline: the live timeline for which the rows are due; see `deliveries.is_live`.
        is_gone: whether retention released the rows before a timeline began at a later checkpoint.
    """

    checkpoint: Checkpoint
    table: SinkTable
    records: int
    passed_over: OffsetCoverage = field(default_factory=OffsetCoverage)
    sent: OffsetCoverage = field(default_factory=OffsetCoverage)
    timeline: str = ""
    is_gone: bool = False

    def is_due(self, row: Mapping[str, object]) -> bool:
        """Whether a row is due to be sent."""
        at = TopicPartition(str(row["_topic"]), int(str(row["_partition"])))
        return not self.passed_over.covers(at, int(str(row["_offset"])), self.checkpoint.plan.topic_ids)


@dataclass(frozen=True, slots=True)
class SentRecords:
    """Finds the sent offsets of one pipeline's lineages; reads only."""

    timelines: Timelines

    def of(self, timeline: str) -> dict[str, OffsetCoverage]:
        """The offsets that each Kafka sink of a timeline that is or was live has sent, up to the closing if any."""
        return joined(self._own(timeline), self.handed_over(timeline))

    def handed_over(self, timeline: str) -> dict[str, OffsetCoverage]:
        """Offsets sent before a restore or a promote made a timeline live; empty if neither did.

        The replaced timeline is checked again: a delivery may have ended since the handover was written.
        """
        genesis = self.timelines.entry(timeline, 1)
        if not isinstance(genesis, Genesis):
            return {}
        found = dict(genesis.sent)
        if genesis.keeps_sinks:
            found = joined(found, self._own(genesis.closes))
        for closing in self._promotes():
            if closing.successor == timeline:
                legacy = {n: OffsetCoverage.below(ends, genesis.topic_ids) for n, ends in closing.sent.items()}
                later = {} if legacy else self._own(closing.timeline)
                found = joined(joined(found, later), joined(legacy, closing.delivered))
        return found

    def undelivered(
        self, entry: Checkpoint | Genesis, line: Iterable[Checkpoint], sent: Callable[[], Sent]
    ) -> list[Undelivered]:
        """Lists the undelivered checkpoints of a lineage, oldest first.

        Args:
            entry: the last entry of the lineage.
            line: its checkpoints, newest first; read only as far back as something waits.
            sent: returns what its sinks have sent already, see `of`; called only if something waits.
        """
        tables = leaving_tables(Parent.of(Head(timeline="", sequence=1, entry=entry)))
        waiting = {
            name: after for name, (after, through) in _rows(tables).items() if self._record(name, through) is None
        }
        found: list[Undelivered] = []
        for checkpoint in line if waiting else ():
            for uid, table in checkpoint.sinks.items():
                if table.is_transactional or table.name not in waiting:
                    continue
                ack = checkpoint.ack(uid)
                if ack is None or not ack.emitted or not table.keeps_rows:
                    continue
                if self._record(table.name, checkpoint.id) is not None:
                    del waiting[table.name]
                else:
                    found.append(Undelivered(checkpoint=checkpoint, table=table, records=ack.emitted))
            waiting = {name: after for name, after in waiting.items() if checkpoint.id > after}
            if not waiting:
                break
        return list(self._due(found[::-1], sent())) if found else []

    def _due(self, found: Iterable[Undelivered], sent: Sent) -> Iterator[Undelivered]:
        promotes, so_far = self._promotes(), dict(sent)
        for each in found:
            name, plan = each.table.name, each.checkpoint.plan
            before, withheld = so_far.get(name, OffsetCoverage()), self._withheld(promotes, name, each.checkpoint)
            after = before | (OffsetCoverage.of(plan.ranges, plan.topic_ids) - withheld)
            is_gone = released(self.timelines.objects, plan.name) is not None
            if not is_gone:
                so_far[name] = after
            yield replace(each, passed_over=before | withheld, sent=after, is_gone=is_gone)

    def _withheld(self, promotes: Iterable[Closing], name: str, checkpoint: Checkpoint) -> OffsetCoverage:
        """Offsets of a checkpoint that promotes withheld. They withhold those of forks, not of the closed timeline."""
        found = OffsetCoverage()
        for closing in promotes:
            withheld = _withheld(closing, name, checkpoint)
            if not withheld.is_empty and self._is_beside(closing, checkpoint):
                found |= withheld
        return found

    def _is_beside(self, closing: Closing, checkpoint: Checkpoint) -> bool:
        holds = self.timelines.holds
        return holds(closing.successor, checkpoint) and not holds(closing.timeline, checkpoint)

    def _own(self, timeline: str) -> dict[str, OffsetCoverage]:
        """Nearly everything that the timeline has sent, by its tables and its newest delivery; see `handed_over`."""
        head = self._open_head(timeline)
        if head.entry is None:
            return {}
        parent, found = Parent.of(head), dict[str, OffsetCoverage]()
        for table in leaving_tables(parent):
            found = joined(found, {table.name: table.coverage(parent.topic_ids)})
        for name, (after, through) in _rows(leaving_tables(parent)).items():
            record, checkpoint = self._newest(name, after, through)
            if record is not None and checkpoint is not None:
                found[name] |= record.sent if record.sent is not None else _all_below(checkpoint)
        return found

    def _newest(self, name: str, after: int, through: int) -> tuple[DeliveryRecord | None, Checkpoint | None]:
        """The newest delivery of a sink on the lineage that ends with checkpoint `through`."""
        newest = self.timelines.find(through)
        for checkpoint in () if newest is None else self.timelines.ancestry(newest):
            if checkpoint.id <= after:
                break
            if any(t.name == name and not t.is_transactional for t in checkpoint.sinks.values()):
                record = self._record(name, checkpoint.id)
                if record is not None:
                    return record, checkpoint
        return None, None

    def _record(self, name: str, checkpoint: int) -> DeliveryRecord | None:
        return self.timelines.objects.read(DeliveryRecord, delivery_key(name, checkpoint))

    def _open_head(self, timeline: str) -> Head:
        head = self.timelines.head(timeline)
        if not isinstance(head.entry, Closing):
            return head
        return replace(head, sequence=head.sequence - 1, entry=self.timelines.reached(timeline, head.sequence - 1))

    def _promotes(self) -> list[Closing]:
        return [c for c in self.timelines.closings() if c.why == "promote"]


def joined(one: Sent, other: Sent) -> dict[str, OffsetCoverage]:
    """The union of both, sink by sink."""
    nothing = OffsetCoverage()
    return {name: one.get(name, nothing) | other.get(name, nothing) for name in {*one, *other}}


def gone_back(sent: Sent, genesis: Genesis, topic_ids: Mapping[str, str]) -> dict[str, OffsetCoverage]:
    """The offsets that count as sent when a timeline's sinks go back: all except those that it reads again.

    Args:
        sent: the offsets sent so far.
        genesis: the genesis of the timeline.
        topic_ids: Kafka's current topic ids; offsets of any other id are never read again.
    """
    after = {
        tp: genesis.ranges.ends.get(tp, 0) if genesis.topic_ids.get(topic) == number else 0
        for topic, number in topic_ids.items()
        for tp in (TopicPartition(topic, p.partition) for c in sent.values() for p in c.by_id if p.topic == number)
    }
    again = OffsetCoverage.of({tp: OffsetRange(end, LAST) for tp, end in after.items()}, topic_ids)
    return {name: covered - again for name, covered in sent.items()}


def leaving_tables(parent: Parent) -> list[SinkTable]:
    """The parent's sinks whose rows leave the warehouse, including those that are no longer declared."""
    return [table for table in (*parent.sinks.values(), *parent.outboxes.values()) if not table.is_transactional]


def _rows(tables: Iterable[SinkTable]) -> dict[str, tuple[int, int]]:
    """Per sink whose outbox has rows, the checkpoint ids of the rows: (after, through]."""
    found: dict[str, tuple[int, int]] = {}
    for table in tables:
        if table.handle:
            after, through = found.get(table.name, (table.handle.after, 0))
            found[table.name] = (min(after, table.handle.after), max(through, table.handle.through))
    return found


def _withheld(closing: Closing, name: str, checkpoint: Checkpoint) -> OffsetCoverage:
    legacy = OffsetCoverage.below(closing.sent.get(name, {}), checkpoint.plan.topic_ids)
    return closing.withheld.get(name, OffsetCoverage()) | legacy


def _all_below(checkpoint: Checkpoint) -> OffsetCoverage:
    """The meaning of a delivery record of 0.1: everything up to the checkpoint was sent."""
    return OffsetCoverage.below(checkpoint.plan.ranges.ends, checkpoint.plan.topic_ids)
