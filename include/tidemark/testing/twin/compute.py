"""The engine in Python: reads a plan's ranges from a `MemoryLog` and folds them exactly as Spark does."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from tidemark.declare.arrival import input_name, upstream_of, upstreams_of
from tidemark.declare.co_process import CoProcess
from tidemark.declare.flat_map import FlatMap
from tidemark.declare.interval_join import IntervalJoin
from tidemark.declare.operators import Fold, Operator, Process
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import DataLostError
from tidemark.formats.emitted_records import EMITTED_FORMAT
from tidemark.model.checkpoint.broadcast_copies import TableVersion, copied_rows
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.checkpoint.emitted import EmittedRecords
from tidemark.model.checkpoint.manifest import BatchFacts, Checkpoint, UidCounts, Verdict, WrittenRun
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.redrive import Redrive, letter_place
from tidemark.model.core.names import operator_of
from tidemark.model.core.ttl import Now
from tidemark.model.kinds.base.sql import overflows_of
from tidemark.model.retention.erasure import Blocked, BlockedKey, blocked_in_letters, none_blocked
from tidemark.model.schema.lookup_joins import Join
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.ports import ForeignTables
from tidemark.ports.registries import OpenBook
from tidemark.processing.broadcasts import broadcast_records, too_large
from tidemark.processing.record_shapes import shape_of_records
from tidemark.testing.twin.entries import state_rows
from tidemark.testing.twin.fold import Decoded, Deleted, Key, fold
from tidemark.testing.twin.log import MemoryLog
from tidemark.testing.twin.memory_inputs import (
    MemoryDeadLetter,
    MemoryInput,
    RawRecord,
    deletes,
    list_refused,
    schema_ids,
    skipped,
)
from tidemark.testing.twin.merge import refuse_overflow, resolve_rows
from tidemark.testing.twin.pairs import JoiningTask, join_rows, joined_records
from tidemark.testing.twin.pandas_gate import MemoryCandidate, judge_in_memory
from tidemark.testing.twin.process import MemoryClosing, Position, Processed, Task, run_function, united_records
from tidemark.testing.twin.tables import MemoryTables, stored_letters


# Broadcast states in Python; the twin of `engine.read.broadcast_states`.
@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBroadcastStates:
    """The broadcast states of one attempt as of its barrier; see `engine.broadcasting`."""

    tables: MemoryTables
    pipeline: Pipeline
    plan: CheckpointPlan
    now: Now
    runs: Mapping[str, Sequence[str]]

    def values(self) -> dict[str, dict[Any, Any]]:
        """Returns the records of each uid by key."""
        return {b.uid: broadcast_records(b, self._state(b.uid).values()) for b in self.pipeline.broadcast}

    def join(self, records: Iterable[Decoded], joins: Sequence[Join]) -> list[Decoded]:
        """Adds the row of each joined state to records as a field, which is null if no row has the key."""
        found = list(records)
        for join in joins if found else ():
            rows = self._rows(join.uid)
            found = [replace(r, fields={**r.fields, join.uid: rows.get(tuple(map(r.at, join.on)))}) for r in found]
        return found

    def _rows(self, uid: str) -> dict[Key, dict[str, Any]]:
        (broadcast,) = (b for b in self.pipeline.broadcast if b.uid == uid)
        state, names = self._state(uid), [name for name, _ in broadcast.source.schema.fields]
        if len(state) > broadcast.max_keys:
            raise too_large(broadcast)
        return {key: {name: row[name] for name in names} for key, row in state.items()}

    def _state(self, uid: str) -> dict[Key, dict[str, Any]]:
        rows = state_rows(self.tables, self.plan.schemas[uid], self.plan.handles[uid])
        rows += [row for path in self.runs.get(uid, ()) for row in self.tables.files[path]]
        return resolve_rows(self.plan.schemas[uid], rows, self.now)


def copy_tables(
    tables: MemoryTables, pipeline: Pipeline, plan: CheckpointPlan, foreign: ForeignTables
) -> dict[str, list[dict[str, Any]]]:
    """Returns, for each uid of `plan.copies`, the run that replaces its state by the planned version."""
    found = {}
    for uid in plan.copies:
        at = TableVersion(id=plan.broadcast_ids[uid], version=plan.broadcast_versions[uid])
        schema = plan.schemas[uid]
        before = resolve_rows(schema, state_rows(tables, schema, plan.handles[uid]), Now())
        found[uid] = copied_rows(plan, uid, foreign.rows(pipeline.tables[uid], at), before)
    return found


GateFunction = Callable[[CheckpointPlan, Mapping[str, Sequence[str]]], Verdict]
"""Replaces the gate."""


def _passes(plan: CheckpointPlan, runs: Mapping[str, Sequence[str]]) -> Verdict:
    return Verdict()


@dataclass(frozen=True, kw_only=True)
class MemoryCompute:
    """The twin of the Spark engine.

    Attributes:
        pipeline: the declaration.
        log: the log that it reads records from.
        tables: the tables that it writes runs to.
        judge: a replacement of the gate.
        evaluates_gate: whether to evaluate the pipeline's gate, with Great Expectations on pandas.
        foreign: tables that broadcast states copy; None if there are none.
        parallelism: the number of tasks of an operator with operator state; other operators ignore it.
        blocked: keys whose records are dropped.
        open_book: opens the schemas of an attempt; None = formats keep the schemas that they have.
    """

    pipeline: Pipeline
    log: MemoryLog
    tables: MemoryTables
    judge: GateFunction = _passes
    evaluates_gate: bool = False
    foreign: ForeignTables | None = None
    parallelism: int = 1
    blocked: Blocked = none_blocked
    open_book: OpenBook | None = None

    def read(self, plan: CheckpointPlan, folders: Mapping[str, str] = MappingProxyType({})) -> "MemoryBatch":  # noqa: ARG002
        """See `ports.Compute`."""
        self._refuse_lost(plan)
        copies: dict[str, list[dict[str, Any]]] = {}
        if plan.copies and self.foreign is not None:
            copies = copy_tables(self.tables, self.pipeline, plan, self.foreign)
        inputs = {}
        for name in self.pipeline.inputs:
            ranges = plan.ranges_of(name).items()
            read = [RawRecord.of_log(tp, record) for tp, within in ranges for record in self.log.records(tp, within)]
            inputs[name] = self._input(plan, name, read, recalls=bool(plan.ranges_of(name)))
        self._refuse_lost(plan)
        return MemoryBatch(self, plan, inputs, copies)

    def blocked_again(self, plan: CheckpointPlan, redrive: Redrive) -> list[BlockedKey]:
        """Returns the keys whose dead letters are dropped."""
        return [key for key in blocked_in_letters(self.blocked, plan, redrive) if key.uid == redrive.uid]

    def redriven(self, plan: CheckpointPlan, redrive: Redrive) -> MemoryInput:
        """Decodes the dead letters that an operator gets again.

        Raises:
            StoreError: a table is damaged, or lacks one of them.
        """
        letters = stored_letters(self.tables, plan.dead_letters[redrive.uid], redrive)
        return self._input(plan, input_name(self.pipeline, redrive.uid), list(map(RawRecord.of_letter, letters)))

    def _input(
        self, plan: CheckpointPlan, name: str, read: Sequence[RawRecord], *, recalls: bool = False
    ) -> MemoryInput:
        """Decodes records of one input, or of those that an operator emits, after their schemas are stored.

        `recalls`: take over the parent's schemas, and learn others only if a record names one.
        """
        source = self.pipeline.inputs.get(name)
        its_format = EMITTED_FORMAT if source is None else source.format
        if its_format.needs_schemas_of is not None and self.open_book is not None:
            book, registry, changes = self.open_book(), its_format.needs_schemas_of, its_format.has_changes
            ids = schema_ids(read, keys=changes)
            is_recalled = recalls and not changes and book.recall(registry, plan.parent)
            if not is_recalled or not ids <= {*book.known.get(registry, ())}:
                book.learn(registry, ids)
            its_format = book.bind(its_format)
        found = MemoryInput(self.pipeline, plan, name, its_format)
        found.take(read)
        return found

    def resolve(self, checkpoint: Checkpoint, uid: str) -> dict[Key, dict[str, Any]]:
        """Returns the state of an operator at a checkpoint: finished values per key. It reads every file."""
        schema = checkpoint.plan.schemas[uid]
        return resolve_rows(schema, state_rows(self.tables, schema, checkpoint.handles[uid]), checkpoint.now)

    def refuse_recreated(self, plan: CheckpointPlan) -> None:
        """Compares the ids of all topics from which records were read.

        Raises:
            DataLostError: a topic's id differs from the plan.
        """
        now = self.log.topic_ids(plan.topic_ids)
        for topic in sorted({tp.topic for tp, r in plan.ranges.items() if not r.is_empty}):
            if now.get(topic) != plan.topic_ids[topic]:
                raise _lost(f"topic {topic}: id {plan.topic_ids[topic]} became {now.get(topic, 'none')}")

    def _refuse_lost(self, plan: CheckpointPlan) -> None:
        self.refuse_recreated(plan)
        read = {tp: r for tp, r in plan.ranges.items() if not r.is_empty}
        bounds = self.log.partitions(frozenset(read), plan.isolation)
        for tp, within in read.items():
            if bounds[tp].earliest > within.start:
                raise _lost(
                    f"topic {tp.topic}, partition {tp.partition}, offsets [{within.start}, {bounds[tp].earliest})"
                )
            if bounds[tp].end < within.end:
                raise _lost(f"topic {tp.topic}, partition {tp.partition}, offsets [{bounds[tp].end}, {within.end})")


class MemoryBatch:
    """The decoded records of one attempt."""

    facts: BatchFacts
    counts: dict[str, UidCounts]

    def __init__(
        self,
        compute: MemoryCompute,
        plan: CheckpointPlan,
        inputs: Mapping[str, MemoryInput],
        copies: Mapping[str, Sequence[dict[str, Any]]],
    ) -> None:
        self._compute = compute
        self._copies = copies
        self._plan = plan
        self._runs: dict[str, list[str]] = {}
        self._read = inputs
        self._inputs: dict[str, MemoryInput] = {}
        for uid, found in ((uid, found) for name, found in inputs.items() for uid in compute.pipeline.readers(name)):
            self._inputs[uid] = self._inputs[uid].joined(found) if uid in self._inputs else found
        self._redriven = {r.uid: compute.redriven(plan, r) for r in plan.redrives}
        for uid, found in self._redriven.items():
            self._inputs[uid] = self._inputs[uid].joined(found) if uid in self._inputs else found
        self.facts = BatchFacts.after(
            plan,
            records=sum(i.records for i in inputs.values()),
            size=sum(i.bytes for i in inputs.values()),
            seen={tp: at for i in inputs.values() for tp, at in i.greatest_ms.items()},
        )
        if compute.open_book and any(source.format.needs_schemas_of for source in compute.pipeline.inputs.values()):
            book = compute.open_book()
            self.facts = replace(self.facts, unknown_schemas=book.unknown, schemas=book.known)
        self._broadcast = MemoryBroadcastStates(
            tables=compute.tables, pipeline=compute.pipeline, plan=plan, now=self._now, runs=self._runs
        )
        self._blocked = [*compute.blocked(plan), *(k for r in plan.redrives for k in compute.blocked_again(plan, r))]
        self._deleted = {uid: self._deletes(uid, intake) for uid, intake in self._inputs.items()}
        self._applied: dict[str, list[Decoded]] = {}
        self._unkeyed: dict[str, list[Decoded]] = {}
        self._late: dict[str, list[Decoded]] = {}
        self.counts = {}
        for uid in self._inputs:
            schema = plan.schemas[uid]
            if not (schema.joins or schema.several_inputs) and upstream_of(compute.pipeline, uid) is None:
                self._sort(uid, self._inputs[uid].good)
        for uid in compute.pipeline.tables:
            self.counts[uid] = UidCounts(applied=len(copies.get(uid, ())), dead_lettered=0)
        self.uids = compute.pipeline.uids
        self._processed: dict[str, Processed] = {}

    def prepare(self, uid: str) -> UidCounts:
        """See `ports.Batch`."""
        pipeline, plan = self._compute.pipeline, self._plan
        operator = next((o for o in pipeline.operators if o.uid == uid), None)
        if operator is None:
            return self.counts[uid]
        schema = plan.schemas[uid]
        if uid not in self.counts:
            self._sort(uid, self._broadcast.join(self._records_of(operator), schema.joins))
        if isinstance(operator, Process | FlatMap):
            task = Task(
                operator=operator,
                schema=schema,
                plan=plan,
                record=shape_of_records(pipeline, operator),
                broadcast=self._broadcast.values() if getattr(operator, "takes_broadcast", False) else {},
                parallelism=self._compute.parallelism,
                blocked=self._blocked,
                now=self._now,
            )
            done = run_function(task, self._applied[uid], state_rows(self._compute.tables, schema, plan.handles[uid]))
            self._processed[uid] = done
            again = self._redriven[uid].raw if uid in self._redriven else {}
            self.counts[uid] = self.counts[uid].after(
                failed=len(done.failed),
                emitted={output: len(records) for output, records in done.emitted.items()},
                operator_state=done.operator_state,
                failed_again=sum(position in again for position in done.failed),
                fired=done.fired,
            )
            if (redrive := plan.redrive_of(uid)) and redrive.sinks:
                refused = redrive.coverage_at({letter_place(row) for row in self._letter_rows(uid, schema)})
                self.counts[uid] = replace(self.counts[uid], refused_records=None if refused.is_empty else refused)
        if schema.window is not None:
            self._processed[uid] = self._close(operator)
            closed = {output: len(rows) for output, rows in self._processed[uid].sunk.items()}
            self.counts[uid] = replace(self.counts[uid], emitted=closed)
        return self.counts[uid]

    def _records_of(self, operator: Operator) -> list[Decoded]:
        """Returns the records of an operator that another one feeds, or that has two inputs, or letters again."""
        pipeline, uid = self._compute.pipeline, operator.uid
        emitted = {n: self._emitting(n).emitted[n] for n in pipeline.inputs_of(operator) if n in pipeline.outputs}
        if isinstance(operator, IntervalJoin | CoProcess):
            read = {name: found.good for name, found in self._read.items()} | emitted
            if isinstance(operator, IntervalJoin):
                return joined_records(operator, self._plan, read)
            return united_records(operator, self._plan, read, emitted)
        found = [r for records in emitted.values() for r in records]
        return [*found, *(self._inputs[uid].good if uid in self._inputs else ())]

    def _close(self, operator: Operator) -> Processed:
        """Folds the batch, closes the windows up to the frontier, and keeps the others."""
        uid, plan = operator.uid, self._plan
        schema = plan.schemas[uid]
        with overflows_of(uid):
            run = self._fold(uid)
        stored = state_rows(self._compute.tables, schema, plan.handles[uid])
        if isinstance(operator, IntervalJoin):
            return join_rows(JoiningTask(join=operator, plan=plan, after=self._now.frontiers.get(uid)), run, stored)
        updates = isinstance(operator, Fold) and operator.emit == "update"
        closing = MemoryClosing(plan=plan, uid=uid, now=self._now, updates=updates)
        return closing.close(run, stored, self._applied[uid], self._late[uid])

    def write_run(self, uid: str, folder: str) -> WrittenRun:
        """See `ports.Batch`."""
        run: Sequence[dict[str, Any]] = self._copies.get(uid, ())
        if uid in self._processed:
            run = self._processed[uid].rows
        elif uid not in self._copies:
            with overflows_of(uid):
                run = self._fold(uid)
        done = self._compute.tables.write(folder, run)
        self._runs[uid] = [f"{folder.rpartition('/')[0]}/{f.path}" for f in done.files]
        return done

    def write_dead_letters(self, uid: str, folder: str) -> WrittenRun:
        """See `ports.Batch`."""
        return self._compute.tables.write(folder, self._letter_rows(uid, self._plan.schemas[uid]))

    def write_emitted(self, uid: str, folder: str) -> WrittenRun:
        """See `ports.Batch`."""
        lacks = EmittedRecords.of(self._plan, uid).lacks(self._plan.sinks[uid].coverage(self._plan.topic_ids))
        return self._compute.tables.write(folder, list(filter(lacks, self._emitting(uid).sunk[uid])))

    def read_emitted(self, uid: str) -> Sequence[Mapping[str, Any]]:
        """See `ports.Batch`."""
        return self._emitting(uid).sunk[uid]

    def _emitting(self, output: str) -> Processed:
        """Returns what the operator of an output has emitted."""
        return self._processed[operator_of(output, self._plan.schemas)]

    def count_rejected(self) -> int:
        """See `ports.Batch`."""
        lettered = [uid for uid, counts in self.counts.items() if counts.dead_lettered]
        rows = (row for uid in lettered for row in self._letter_rows(uid, self._plan.schemas[uid]))
        return len({(row["topic"], row["partition"], row["offset"]) for row in rows})

    def refuse_recreated(self) -> None:
        """See `ports.Batch`."""
        self._compute.refuse_recreated(self._plan)

    def judge(self, runs: Mapping[str, Sequence[str]]) -> Verdict:
        """See `ports.Batch`."""
        compute, gate = self._compute, self._compute.pipeline.gate
        if gate is None or not compute.evaluates_gate:
            return compute.judge(self._plan, runs)
        if not self._redriven and not any(intake.records for intake in self._inputs.values()):
            return Verdict()
        return judge_in_memory(
            gate,
            MemoryCandidate(
                tables=compute.tables,
                plan=self._plan,
                inputs={name: self._read[name] for name in compute.pipeline.sources},
                records={name: source.schema for name, source in compute.pipeline.sources.items()},
                runs=runs,
                now=self._now,
            ),
        )

    def close(self) -> None:
        """See `ports.Batch`; there is nothing to release."""

    @property
    def _now(self) -> Now:
        return self.facts.now(self._plan)

    def _deletes(self, uid: str, intake: MemoryInput) -> list[Deleted]:
        return [d for d in deletes(intake, self._plan.schemas[uid]) if not self._drops(uid, d.key, d)]

    def _count_skipped(self, uid: str, intake: MemoryInput) -> int:
        return sum(not self._drops(uid, d.key, d) for d in skipped(intake, self._plan.schemas[uid]))

    def _drops(self, uid: str, key: Key, of: Decoded | Deleted) -> bool:
        """Returns whether a record has an erased key."""
        own, mine = key[: len(self._plan.schemas[uid].own_keys)], (b for b in self._blocked if b.uid == uid)
        return any(not b.columns and b.blocks(own, of.topic, of.partition, of.offset) for b in mine)

    def _sort(self, uid: str, records: Iterable[Decoded]) -> None:
        """Separates the records that an operator applies from those that it filters or that have no key; counts all."""
        schema = self._plan.schemas[uid]
        self._applied[uid], self._unkeyed[uid], self._late[uid] = [], [], []
        taken, filtered = self._split(uid, records)
        for r in taken:
            (self._unkeyed if None in r.key else self._late if self._is_late(r, schema) else self._applied)[uid].append(
                r
            )
        applied = len(self._applied[uid]) + len(self._deleted.get(uid, ()))
        letters = len(list_refused(self._inputs[uid], schema)) if uid in self._inputs else 0
        late = len(self._late[uid])
        letters += len(self._unkeyed[uid]) + (0 if schema.keeps_late else late)
        left_out = (
            len(filtered)
            + (late if schema.keeps_late else 0)
            + (self._count_skipped(uid, self._inputs[uid]) if uid in self._inputs else 0)
        )
        counts = UidCounts(applied=applied, filtered=left_out, dead_lettered=letters, late=late)
        self.counts[uid] = self._with_redriven(uid, counts) if uid in self._redriven else counts

    def _is_late(self, r: Decoded, schema: OperatorSchema) -> bool:
        window = schema.window
        return window is not None and window.is_late(r.event_time, self._plan.frontier_before(schema.uid))

    def _split(self, uid: str, records: Iterable[Decoded]) -> tuple[list[Decoded], list[Decoded]]:
        """Returns the records that an operator takes, and those that it filters, both without those of erased keys."""
        schema, found = self._plan.schemas[uid], list(records)
        parts: tuple[list[Decoded], list[Decoded]] = ([], [])
        if schema.has_row_keys:
            intake = self._inputs[uid]
            judged = [(True, intake.row_key_or_none(intake.raw[r.position], schema)) for r in found]
        else:
            judged = _judged(schema, found)
        for r, (is_taken, key) in zip(found, judged, strict=True):
            if not self._drops(uid, key, r):
                window = () if schema.window is None else schema.window.columns_of(r.event_time, r.fields)
                parts[0 if is_taken else 1].append(replace(r, key=(*key, *window)))
        return parts

    def _with_redriven(self, uid: str, counts: UidCounts) -> UidCounts:
        """Says how many of the records that were counted are redriven."""
        schema, again = self._plan.schemas[uid], self._redriven[uid]
        taken, filtered = self._split(uid, self._broadcast.join(again.good, schema.joins))
        letters = len(list_refused(again, schema))
        late = sum(None not in r.key and self._is_late(r, schema) for r in taken)
        refused = sum(None in r.key for r in taken) + (0 if schema.keeps_late else late) + letters
        redriven = len(taken) + len(filtered) + letters + len(self._deletes(uid, again))
        redriven += self._count_skipped(uid, again)
        return replace(counts, redriven=redriven, refused_again=refused, late=counts.late - late)

    def _fold(self, uid: str) -> list[dict[str, Any]]:
        schema, plan, now = self._plan.schemas[uid], self._plan, self._now
        records: list[Decoded | Deleted] = [*self._applied[uid], *self._deleted.get(uid, ())]
        run = fold(schema, records, plan, now)
        refuse_overflow(schema, run, state_rows(self._compute.tables, schema, plan.handles[uid]), now)
        return run

    def _letter_rows(self, uid: str, schema: OperatorSchema) -> list[dict[str, object]]:
        intake, failed = self._inputs.get(uid), self._processed[uid].failed if uid in self._processed else {}
        letters = [] if intake is None else list_refused(intake, schema)
        no_key = (Reason.BAD_KEY if schema.has_row_keys else Reason.NULL_KEY).value
        why = [*failed.items(), *((r.position, no_key) for r in self._unkeyed[uid])]
        why += [] if schema.keeps_late else [(r.position, Reason.LATE.value) for r in self._late[uid]]
        raw = dict(self._emitted_to(uid)) if why else {}
        raw |= {} if intake is None else intake.raw
        letters += [MemoryDeadLetter(record=raw[position], reason=reason) for position, reason in why]
        return [x.row(uid) for x in sorted(letters, key=lambda x: x.record.position)]

    def _emitted_to(self, uid: str) -> Iterator[tuple[Position, RawRecord]]:
        """The records that another operator emitted for this one, by position."""
        inputs = self._plan.schemas[uid].co_inputs
        for name in upstreams_of(self._compute.pipeline, uid):
            number = (inputs.index(name),) if inputs else ()
            for r in (replace(r, path=(*r.path, *number)) for r in self._emitting(name).emitted[name]):
                yield r.position, RawRecord.of_emitted(r)


def _judged(schema: OperatorSchema, records: Sequence[Decoded]) -> list[tuple[bool, Key]]:
    """Returns whether an operator takes each record, and its key."""
    if schema.where is None and all(k.inputs is None for k in schema.own_keys):
        return [(True, tuple(r.at(k.source) for k in schema.own_keys)) for r in records]
    # Imported here, so that only pipelines with expressions load DuckDB and Arrow.
    from tidemark.readers.expression_values import judge_records

    return judge_records(schema, [r.fields for r in records])


def _lost(what: str) -> DataLostError:
    return DataLostError(
        f"data lost: {what}",
        safe="every completed checkpoint is intact; nothing was published.",
        next="run the pipeline again: it makes a new plan; repeat with --accept-loss to record the gap.",
    )
