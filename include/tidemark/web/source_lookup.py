"""The records that a checkpoint read, and those that it could not apply: bounded, as inert text.

It reads only offsets that the checkpoint's plan names, redriven ones included, so it cannot be used to read any other
topic.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import BoundedSemaphore
from typing import Any

from tidemark.answers.checkpoint_facts import iso
from tidemark.answers.dead_letter_facts import LiveLetter, LiveLetterPage
from tidemark.answers.row_sources import DeadLetterPage, KeptRange, RecordPage, ShownDeadLetter, ShownRecord
from tidemark.answers.shown_bytes import text_of
from tidemark.context import Context
from tidemark.coordinator.records.schema_book import StoredSchemas
from tidemark.errors import BusyError, NotFoundError, UsageError
from tidemark.formats.emitted_records import EMITTED_FORMAT
from tidemark.formats.envelope import decode_record, pinned_envelope
from tidemark.formats.json import decode_key, decode_row_key
from tidemark.formats.known_formats import format_of
from tidemark.formats.record_format import BadRecord, RecordFormat
from tidemark.glance import glance_at
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.core.log_records import BoundedRead, LogRecord, ReadBounds, Wanted
from tidemark.model.core.offsets import OffsetRange, PartitionLog, TopicPartition
from tidemark.model.core.types import FieldType
from tidemark.model.schema.event_windows import END, START, from_ms
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.operations import reads
from tidemark.operations.dead_letters import redriving
from tidemark.operations.reads import parse_key, schema_of
from tidemark.readers.expression_values import judge_records
from tidemark.web import history_cache
from tidemark.web.row_origin import redriven_of, topics_of

LONGEST = 1024 * 1024
"""Bytes of the longest value that is decoded; a longer value counts as a match, so that it is not missed."""


TopicFormats = Mapping[str, RecordFormat | None]
"""The format of each topic, as the plan of a checkpoint pins it; None if it is not registered."""


def topic_formats(context: Context, name: str, plan: CheckpointPlan) -> dict[str, RecordFormat | None]:
    """Returns the formats of a plan's topics, with the schemas by which its checkpoint decodes or has decoded.

    Schemas come from the warehouse, never from their registry.
    """
    found = _pinned(plan)
    if not any(its and its.needs_schemas_of for its in found.values()):
        return found
    coordinator = context.coordinator(name)
    made, stored = coordinator.timelines.find(plan.id), StoredSchemas(coordinator.objects)
    facts = None if made is None else made.sealed.facts
    return {topic: its and stored.bind(its, facts) for topic, its in found.items()}


def _pinned(plan: CheckpointPlan) -> dict[str, RecordFormat | None]:
    return {topic: format_of(plan.format_of(topic)) for topic in plan.topic_ids}


def by_key(plan: CheckpointPlan, uid: str, key: Sequence[str], formats: TopicFormats | None = None) -> Wanted | None:
    """A test for records of a key, filtered ones too, by the manifest alone; None if the key is the result of a join.

    With the bounds of a window, only records whose event time is within it match.

    Formats whose values name schemas need `formats`, from `topic_formats`.

    Every record of an unregistered format matches. A change matches a fold by its message key alone. Any other record
    that does not decode belongs to no key. An operator that reads another operator has no records of its own, so none
    matches.

    Raises:
        UsageError: the key has another number of columns, or a value does not fit.
    """
    schema = plan.schemas[uid]
    wanted = parse_key(schema, key)
    if schema.several_inputs or schema.joined_by(p for column in schema.keys for p in column.paths):
        return None
    record, keys_only = _record_of(_key_fields(schema)), replace(schema, where=None)
    columns = [(column.name, column.type) for column in schema.own_keys]
    known = _pinned(plan) if formats is None else formats
    is_within = _of_window(plan, schema, wanted[len(columns) :], known)
    wanted = wanted[: len(columns)]
    records = {topic: _with_origins(record, plan.format_of(topic)) for topic in plan.topic_ids}

    def fits(tp: TopicPartition, found: LogRecord) -> bool:
        its_format = known[tp.topic]
        if found.size > LONGEST or its_format is None:
            return True
        try:
            if schema.has_row_keys:
                return decode_row_key(its_format.row_key(found.key), columns) == wanted
            if found.value is None:
                return schema.deletes and decode_key(found.key, columns) == wanted
            decoded = decode_record(its_format, records[tp.topic], tp, found)
        except BadRecord:
            return False
        ((_, key),) = judge_records(keys_only, [decoded])
        return key == wanted and is_within(tp, found)

    return fits


def _of_window(plan: CheckpointPlan, schema: OperatorSchema, bounds: Sequence[object], formats: TopicFormats) -> Wanted:
    """A test for records that decode, whether their event time is within a window.

    All are without bounds, and if the plan does not say where records of their topic have it.
    """
    topics = {topic: name for name, topics in plan.sources.items() for topic in topics}
    times = {
        topic: _with_origins(plan.event_times[name], plan.format_of(topic))
        for topic, name in topics.items()
        if name in plan.event_times
    }
    names = [k.name for k in schema.keys if k.of_window]
    span = dict(zip(names, bounds, strict=False))
    start, end = span.get(START), span.get(END)

    def is_within(tp: TopicPartition, found: LogRecord) -> bool:
        record, its_format = times.get(tp.topic), formats[tp.topic]
        if record is None or its_format is None or not (isinstance(start, datetime) and isinstance(end, datetime)):
            return True
        try:
            return start <= _event_time(its_format, record, tp, found) < end
        except BadRecord:
            return False

    return is_within


def _event_time(its_format: RecordFormat, record: FieldType, tp: TopicPartition, found: LogRecord) -> datetime:
    """The event time of a record: the only leaf of a struct, or Kafka's timestamp if it has none."""
    if not record.fields:
        return from_ms(found.timestamp_ms)
    value: Any = decode_record(its_format, record, tp, found)
    while isinstance(value, Mapping):
        (value,) = value.values()
    assert isinstance(value, datetime)  # noqa: S101  (for the type checker)
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _key_fields(schema: OperatorSchema) -> list[tuple[Sequence[str], FieldType]]:
    """The fields of a record that make its key in an operator."""
    fields: dict[str, FieldType] = {}
    for column in schema.own_keys:
        fields |= {column.source: column.type} if column.inputs is None else dict(column.inputs)
    return [(path.split("."), of) for path, of in fields.items()]


def _record_of(fields: Sequence[tuple[Sequence[str], FieldType]]) -> FieldType:
    """The struct with these types at these paths, and no other fields."""
    made: dict[str, FieldType] = {}
    for head in dict.fromkeys(path[0] for path, _ in fields):
        below = [(path[1:], of) for path, of in fields if path[0] == head]
        made[head] = _record_of(below) if below[0][0] else below[0][1]
    return FieldType("struct", fields=tuple(made.items()))


def _with_origins(record: FieldType, pinned: Mapping[str, str]) -> FieldType:
    """The struct with the origins that a plan pins for the envelope's fields."""
    own = pinned_envelope(pinned)
    return replace(record, fields=tuple((name, of.with_origin(own.get(name, ""))) for name, of in record.fields))


AT_ONCE = 2
"""Reads of Kafka that one process does concurrently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuery:
    """Selects records of a checkpoint.

    Attributes:
        uid: only topics that this operator reads.
        key: only records of this key, one text per key column; requires `uid`.
        partition: only this partition, as in `flights-0`.
        start: of that partition, offsets from this one on.
        end: of that partition, offsets below this one.
        after: `next` of the previous page, as in `flights-0:48210`.
        limit: the most records to return.
    """

    uid: str | None = None
    key: Sequence[str] = ()
    partition: str | None = None
    start: int | None = None
    end: int | None = None
    after: str | None = None
    limit: int = 20

    def __post_init__(self) -> None:
        if self.key and self.uid is None:
            raise UsageError("a key without an operator", next="give uid, the operator that has the key.")
        if self.partition is None and (self.start is not None or self.end is not None):
            raise UsageError("offsets without a partition", next="give partition, as in flights-0.")


_TURNS = BoundedSemaphore(AT_ONCE)


def read_records(context: Context, name: str, checkpoint: int, query: RecordQuery) -> RecordPage:
    """Records that a checkpoint has read, or would have read, as far as Kafka still has them.

    Raises:
        NotFoundError: no such pipeline, checkpoint, operator or partition.
        UsageError: the key or the offsets do not fit.
        BusyError: too many reads are running.
        BrokerError: Kafka does not answer.
    """
    plan = _plan(context, name, checkpoint)
    ranges = _asked(plan, query)
    formats = topic_formats(context, name, plan)
    wanted = by_key(plan, query.uid, query.key, formats) if query.key and query.uid is not None else None
    shown, held = _held(context, name, plan, ranges)
    going = _from(held, query.after)
    if not _TURNS.acquire(timeout=1.0):
        raise BusyError("records are being read for others", safe="nothing was changed.", next="try again.")
    try:
        bounds = ReadBounds(matches=query.limit)
        found = context.log.read(going, plan.isolation, bounds, wanted or _any)
    finally:
        _TURNS.release()
    filtered = set() if query.uid is None else _filtered(found, formats, plan, query.uid)
    return RecordPage(
        checkpoint=plan.name,
        by_key=wanted is not None,
        ranges=shown,
        records=_records(found, formats, _reasons(context, name, plan, query.uid, found), filtered),
        looked_at=found.looked_at,
        stopped_by=found.stopped_by,
        next=None if found.next is None else f"{found.next[0]}:{found.next[1]}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterQuery:
    """Selects dead letters of an operator: those for one reason, or all; `limit` of them after the first `offset`."""

    uid: str
    reason: str | None = None
    limit: int = 25
    offset: int = 0


def read_dead_letters(context: Context, name: str, checkpoint: int, query: LetterQuery) -> DeadLetterPage:
    """Records that an operator could not apply in a completed checkpoint, in order of position.

    Raises:
        NotFoundError: no such pipeline, checkpoint or operator.
        StoreError: a file of the table is gone.
    """
    from tidemark.readers.dead_letter_reader import dead_letters

    made = reads.get_checkpoint(context, history_cache.require_planned(context, name), checkpoint)
    schema_of(made, query.uid)
    ack = made.ack(query.uid)
    handle = StateHandle() if ack is None else ack.dead_letters
    found = dead_letters(context.warehouse.root, handle, checkpoint, query.limit, query.offset, reason=query.reason)
    formats = topic_formats(context, name, made.plan)
    rows = [ShownDeadLetter(**_letter(row, formats)) for row in found["rows"]]
    return DeadLetterPage(checkpoint=made.plan.name, uid=query.uid, matching=found["count"], rows=rows)


def read_live_letters(context: Context, name: str, query: LetterQuery) -> LiveLetterPage:
    """Records of the live timeline that an operator could not apply and did not get again, newest first.

    Raises:
        NotFoundError: no such pipeline or operator.
        StoreError: a file of the table is gone.
    """
    context = glance_at(context)
    matching, found = redriving.list_newest_letters(
        context, history_cache.require_planned(context, name), query.uid, query.reason, query.limit, query.offset
    )
    formats = {plan.id: topic_formats(context, name, plan) for plan in {plan.id: plan for plan, _ in found}.values()}
    rows = [LiveLetter(**_letter(row, formats[plan.id]), checkpoint=plan.name) for plan, row in found]
    return LiveLetterPage(uid=query.uid, matching=matching, rows=rows)


def _letter(row: Mapping[str, Any], formats: TopicFormats) -> dict[str, Any]:
    """The fields of a shown letter."""
    render = EMITTED_FORMAT.render if row["path"] else _renderer(formats, row["topic"])
    return {
        "partition": f"{row['topic']}-{row['partition']}",
        "offset": row["offset"],
        "timestamp": row["timestamp"].isoformat(),
        "reason": row["reason"],
        "key": text_of(row["key"]),
        "path": row["path"] or [],
        "value": text_of(row["value"], render),
    }


def _renderer(formats: TopicFormats, topic: str) -> Callable[[bytes], bytes] | None:
    """The function that renders values of a topic; None if they are shown as they are."""
    found = formats.get(topic)
    return None if found is None else found.render


def _plan(context: Context, name: str, checkpoint: int) -> CheckpointPlan:
    if history_cache.get_entry(context, name, checkpoint) is None:
        raise NotFoundError(f"no checkpoint chk-{checkpoint} in {name}", next=f"tidemark checkpoint list {name}")
    timelines = context.coordinator(name).timelines
    found = timelines.find(checkpoint)
    return timelines.plan(checkpoint) if found is None else found.plan


def _held(
    context: Context, name: str, plan: CheckpointPlan, ranges: Mapping[TopicPartition, OffsetRange]
) -> tuple[list[KeptRange], dict[TopicPartition, OffsetRange]]:
    """Each range as an answer, and the part of it that Kafka still has."""
    log = context.coordinator(name).log
    ids = log.topic_ids({tp.topic for tp in ranges})
    gone = {tp: why for tp in ranges if (why := _recreated(plan, ids, tp)) is not None}
    there = frozenset(ranges.keys() - gone.keys())
    found = log.partitions(there, plan.isolation) if there else {}
    shown: list[KeptRange] = []
    held: dict[TopicPartition, OffsetRange] = {}
    for tp, within in ranges.items():
        kept = _kept(within, found.get(tp))
        why = gone.get(tp) or _deleted(within, kept)
        if not kept.is_empty:
            held[tp] = kept
        shown.append(
            KeptRange(
                partition=str(tp),
                start=within.start,
                end=within.end,
                kept_start=kept.start,
                kept_end=kept.end,
                why=why,
            )
        )
    return shown, held


def _records(
    found: BoundedRead,
    formats: TopicFormats,
    reasons: Mapping[tuple[TopicPartition, int], dict[str, str]],
    filtered: Container[tuple[TopicPartition, int]],
) -> list[ShownRecord]:
    return [
        ShownRecord(
            partition=str(tp),
            offset=record.offset,
            timestamp=iso(record.timestamp_ms) if record.timestamp_ms >= 0 else None,
            key=text_of(record.key),
            value=text_of(record.value, _renderer(formats, tp.topic)),
            dead_letters=reasons.get((tp, record.offset), {}),
            filtered=(tp, record.offset) in filtered,
        )
        for tp, record in found.records
    ]


def _reasons(
    context: Context, name: str, plan: CheckpointPlan, uid: str | None, found: BoundedRead
) -> dict[tuple[TopicPartition, int], dict[str, str]]:
    """Per position, by uid, the reason why an operator could not apply a record."""
    from tidemark.readers.dead_letter_reader import reasons_at

    made = context.coordinator(name).timelines.find(plan.id)
    places = [(tp, record.offset) for tp, record in found.records]
    reasons: dict[tuple[TopicPartition, int], dict[str, str]] = {}
    for ack in () if made is None or not places else made.sealed.acks:
        if ack.dead_lettered and uid in (None, ack.uid):
            warehouse = context.warehouse.root
            for place, why in reasons_at(warehouse, ack.dead_letters, plan.id, places).items():
                reasons.setdefault(place, {})[ack.uid] = why
    return reasons


def _filtered(
    found: BoundedRead, formats: TopicFormats, plan: CheckpointPlan, uid: str
) -> set[tuple[TopicPartition, int]]:
    """The positions of records that an operator leaves out, as far as the record alone shows it."""
    schema = plan.schemas[uid]
    gone = _deletes(found, formats) if schema.changes and not schema.deletes else set()
    if schema.where is None or schema.joined_by(schema.where.paths):
        return gone
    record = _record_of([(path.split("."), of) for path, of in schema.where.inputs])
    conditions_only, decoded = replace(schema, keys=()), {}
    for tp, read in found.records:
        its_format = formats[tp.topic]
        if its_format is not None and read.value is not None and read.size <= LONGEST:
            whole = _with_origins(record, plan.format_of(tp.topic))
            with suppress(BadRecord):
                decoded[tp, read.offset] = decode_record(its_format, whole, tp, read)
    judged = judge_records(conditions_only, list(decoded.values()))
    return gone | {place for place, (is_taken, _) in zip(decoded, judged, strict=True) if not is_taken}


def _deletes(found: BoundedRead, formats: TopicFormats) -> set[tuple[TopicPartition, int]]:
    """The positions of deletes of rows."""
    made = set()
    for tp, read in found.records:
        its_format = formats[tp.topic]
        try:
            if its_format is not None and read.size <= LONGEST:
                its_format.decode_one(read.value, FieldType("struct"))
        except BadRecord as error:
            if str(error) == Reason.NULL_VALUE.value:
                made.add((tp, read.offset))
    return made


def _any(_: TopicPartition, __: LogRecord) -> bool:
    return True


def _asked(plan: CheckpointPlan, query: RecordQuery) -> dict[TopicPartition, OffsetRange]:
    """The ranges that a query selects, each within a range of the plan."""
    if query.uid is not None and query.uid not in plan.schemas:
        known = ", ".join(plan.schemas)
        raise NotFoundError(f"{plan.name} has no operator {query.uid!r}", next=f"name one of: {known}.")
    topics = None if query.uid is None else topics_of(plan, query.uid)
    ranges = {tp: r for tp, r in plan.ranges.items() if not r.is_empty and (topics is None or tp.topic in topics)}
    if query.partition is None:
        return ranges
    tp = TopicPartition.parse(query.partition)
    for r in redriven_of(plan, query.uid).get(tp, ()):
        if query.start is not None and query.end is not None and r.start <= query.start <= query.end <= r.end:
            return {tp: OffsetRange(query.start, query.end)}
    if tp not in ranges:
        raise NotFoundError(
            f"{plan.name} has read nothing of {tp}", next=f"name one of: {', '.join(map(str, ranges)) or 'none'}."
        )
    whole = ranges[tp]
    start = whole.start if query.start is None else query.start
    end = whole.end if query.end is None else query.end
    if not whole.start <= start <= end <= whole.end:
        raise UsageError(f"[{start}, {end}) is not within {tp} {whole}", next=f"give offsets of {plan.name}.")
    return {tp: OffsetRange(start, end)}


def _from(held: Mapping[TopicPartition, OffsetRange], after: str | None) -> dict[TopicPartition, OffsetRange]:
    """The rest of the ranges after the previous page."""
    if after is None:
        return dict(held)
    text, _, digits = after.rpartition(":")
    if not digits.isdecimal():
        raise UsageError(
            f"not a position: {after!r}", next="pass the next of the previous page, as in flights-0:48210."
        )
    place, offset = TopicPartition.parse(text), int(digits)
    later = {tp: r for tp, r in held.items() if tp > place}
    here = held.get(place)
    if here is not None and offset < here.end:
        later[place] = OffsetRange(max(here.start, offset), here.end)
    return later


def _kept(within: OffsetRange, log: PartitionLog | None) -> OffsetRange:
    """The part of a range that a partition still has."""
    if log is None:
        return OffsetRange(within.start, within.start)
    start = max(within.start, min(log.earliest, within.end))
    return OffsetRange(start, max(start, min(within.end, log.end)))


def _deleted(within: OffsetRange, kept: OffsetRange) -> str | None:
    if kept == within:
        return None
    return "Kafka has deleted these records" if kept.is_empty else "Kafka has deleted the rest"


def _recreated(plan: CheckpointPlan, ids: Mapping[str, str], tp: TopicPartition) -> str | None:
    if tp.topic not in ids:
        return "the topic is gone"
    known = plan.topic_ids.get(tp.topic)
    return None if known in (None, ids[tp.topic]) else "the topic was created again: these offsets hold other records"
