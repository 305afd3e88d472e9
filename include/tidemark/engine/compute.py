"""The Spark implementation of `ports.Compute`: a batch is read once (`engine.read`), and every operator uses it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import reduce
from types import MappingProxyType
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.declare.flat_map import FlatMap
from tidemark.declare.interval_join import IntervalJoin
from tidemark.declare.operators import Fold, Process
from tidemark.declare.pipeline import Pipeline
from tidemark.engine.candidate_checks import Candidate, LimitCheck, judge_in_spark, refuse_miscounted, refuse_overflow
from tidemark.engine.early_work import EarlyWork, OperatorSteps
from tidemark.engine.fold.closings import ClosedWindows, ClosingTask, close_windows
from tidemark.engine.fold.fold import FoldTask, named_overflows, write_fold
from tidemark.engine.fold.joined_pairs import JoiningBatch, join_batch
from tidemark.engine.fold.passed_run import PassedRun
from tidemark.engine.process.due_timers import DueKeys, find_due
from tidemark.engine.process.process_frame import ProcessFrame
from tidemark.engine.process.process_operator import ProcessTask, rows_to_send, run_flat_map, run_process
from tidemark.engine.process.subtasks import held_keys
from tidemark.engine.read.batch_reader import BatchReader, DecodedBatch, RedrivenLetters
from tidemark.engine.read.broadcast_states import BroadcastStates, copied_frame, copy_tables
from tidemark.engine.read.frames import NO_PATH, applied_sql, late_sql
from tidemark.engine.read.operator_records import OperatorRecords
from tidemark.engine.read.source import KafkaOptions, read_ranges, refuse_recreated
from tidemark.engine.session.python_workers import encode_emitted
from tidemark.engine.session.spark_errors import translate_spark_errors
from tidemark.engine.state.state_files import SparkWarehouse
from tidemark.engine.write.parquet_writer import RunSize, paths_of, write_rows
from tidemark.formats.envelope import has_headers
from tidemark.model.checkpoint.manifest import BatchFacts, Verdict
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.redrive import letter_place
from tidemark.model.checkpoint.sinks import ROW_ID
from tidemark.model.core.ttl import Now
from tidemark.model.kinds.base.sql import overflows_of
from tidemark.model.retention.erasure import Blocked, blocked_in_letters, none_blocked
from tidemark.ports import ForeignTables, Log, UidCounts, WrittenRun
from tidemark.ports.registries import OpenBook
from tidemark.processing.record_shapes import shape_of_records


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkCompute:
    """Executes plans of one pipeline in one Spark session.

    Attributes:
        pipeline: the declaration.
        warehouse: the warehouse, with the session of this attempt from `session.open_session`.
        kafka: how to reach the brokers.
        log: returns the current topic ids, to compare with those of the plan after the read; None = no comparison.
        foreign: tables that broadcast states copy; None if there are none.
        blocked: keys whose records are dropped.
        open_book: opens the schemas of this attempt; None = formats keep the schemas that they have.
    """

    pipeline: Pipeline
    warehouse: SparkWarehouse
    kafka: KafkaOptions
    log: Log | None = None
    foreign: ForeignTables | None = None
    blocked: Blocked = none_blocked
    open_book: OpenBook | None = None

    @property
    def spark(self) -> SparkSession:
        """The session of this attempt."""
        return self.warehouse.session

    def read(self, plan: CheckpointPlan, folders: Mapping[str, str] = MappingProxyType({})) -> "SparkBatch":
        """Reads exactly the ranges of the plan, and the planned versions of foreign tables; see `ports.Compute`."""
        copies: dict[str, list[dict[str, Any]]] = {}
        if plan.copies and self.foreign is not None:
            copies = copy_tables(self.warehouse, self.pipeline, plan, self.foreign)
        reader = BatchReader(
            pipeline=self.pipeline,
            warehouse=self.warehouse,
            plan=plan,
            raw=lambda name: read_ranges(
                self.spark, plan, name, self.kafka, headers=has_headers(self.pipeline.inputs[name].schema)
            ),
            blocked=self.blocked(plan),
            folders=folders,
            open_book=self.open_book,
        )
        intake = reader.read()
        try:
            if intake.inputs:
                self.refuse_recreated(plan)
        except BaseException:
            intake.release()
            raise
        return SparkBatch(self, plan, intake, copies, folders)

    def redriven(self, plan: CheckpointPlan) -> dict[str, RedrivenLetters]:
        """Returns the dead letters that operators get again, by uid."""
        return {
            redrive.uid: RedrivenLetters(
                warehouse=self.warehouse,
                pipeline=self.pipeline,
                plan=plan,
                redrive=redrive,
                blocked=blocked_in_letters(self.blocked, plan, redrive),
                open_book=self.open_book,
            )
            for redrive in plan.redrives
        }

    def refuse_recreated(self, plan: CheckpointPlan) -> None:
        """Compares the ids of the topics that were read with the plan; a paused topic may be deleted.

        Raises:
            DataLostError: a topic has a different id than in the plan.
        """
        if self.log is not None:
            read = sorted({tp.topic for name in self.pipeline.inputs for tp in plan.ranges_of(name)})
            refuse_recreated({topic: plan.topic_ids[topic] for topic in read}, self.log.topic_ids(read))


class SparkBatch:
    """The decoded records of one attempt; see `ports.Batch`."""

    facts: BatchFacts
    counts: dict[str, UidCounts]

    def __init__(
        self,
        compute: SparkCompute,
        plan: CheckpointPlan,
        intake: DecodedBatch,
        copies: Mapping[str, Sequence[Mapping[str, Any]]],
        folders: Mapping[str, str],
    ) -> None:
        self._compute = compute
        self._plan = plan
        self._intake = intake
        self._folders = folders
        self._runs: dict[str, list[str]] = {}
        self.facts = intake.tally.facts(plan)
        self._copies = copies
        self._read, self._bytes = intake.tally.records, intake.tally.bytes
        self._broadcast = BroadcastStates(
            warehouse=compute.warehouse, pipeline=compute.pipeline, plan=plan, now=self._now, runs=self._runs
        )
        # Of a copied table, the rows of the run count, including tombstones.
        copied = {t: UidCounts(applied=len(copies.get(t, ())), dead_lettered=0) for t in compute.pipeline.tables}
        self.counts = intake.tally.counts(compute.pipeline, plan) | copied
        self.uids = compute.pipeline.uids
        self._due: dict[str, DueKeys] = {}
        self._records = OperatorRecords(
            pipeline=compute.pipeline,
            plan=plan,
            intake=intake,
            blocked=compute.blocked(plan),
            letters_again=compute.redriven(plan),
            states=self._broadcast,
        )
        steps = OperatorSteps(
            fold=self._fold, call=self._run_function, letters=self._write_letters, emitted=self._write_emitted
        )
        self._early = EarlyWork(self._records, folders, steps)
        self._note_schemas()

    def prepare(self, uid: str) -> UidCounts:
        """Counts emitted and joined records, which are known only now, and runs the function of an operator."""
        compute = self._compute
        self._early.start_operators(self.counts, self._runs)
        operator = next((o for o in compute.pipeline.operators if o.uid == uid), None)
        if operator is not None and uid not in self.counts:
            self.counts[uid] = self._records.counted(uid, compute.pipeline.inputs_of(operator))
        if uid in self._records.letters_again:
            self._redrive(uid)
        if isinstance(operator, Fold | IntervalJoin) and operator.window is not None:
            self._records.processed[uid] = self._close(operator)
            self.counts[uid] = replace(self.counts[uid], emitted=self._records.processed[uid].emitted)
        if isinstance(operator, Process | FlatMap) and self._is_called(uid):
            done = self._early.result("call", uid, lambda: self._run_function(operator))
            self._records.processed[uid] = self._records.failing[uid] = done
            self.counts[uid] = done.counted(self.counts[uid], self._failed_again(uid))
            self._early.start_outputs(uid, self.counts)
            if done.passed is not None:
                self._intake.written[uid] = done.passed
            self._remember_refused(uid)
        return self.counts[uid]

    def _run_function(self, operator: Process | FlatMap) -> ProcessFrame:
        compute, uid = self._compute, operator.uid
        record = shape_of_records(compute.pipeline, operator)
        if isinstance(operator, FlatMap):
            applied = self._records.numbered(uid).where(applied_sql(self._plan.schemas[uid]))
            again = self._records.letters_again[uid].blocked if uid in self._records.letters_again else ()
            return run_flat_map(operator, record, applied, [*self._records.blocked, *again])
        task = ProcessTask(
            warehouse=compute.warehouse,
            plan=self._plan,
            operator=operator,
            record=record,
            records=self._records.numbered(uid) if self.counts[uid].applied else None,
            applied=self.counts[uid].applied,
            broadcast=self._broadcast.values() if operator.takes_broadcast else {},
            due=self._find_due(uid),
            folder=compute.warehouse.folder(self._folders[uid]) if uid in self._folders else None,
        )
        return run_process(task)

    def _is_called(self, uid: str) -> bool:
        due, ran_in_passing = self._find_due(uid), uid in self._intake.written
        return not ran_in_passing and (self.counts[uid].applied > 0 or (due is not None and due.may_fire))

    def _find_due(self, uid: str) -> DueKeys | None:
        """Looks for the keys whose timers fire, once."""
        if self._plan.schemas[uid].timers is None:
            return None
        if uid not in self._due:
            operator = self._compute.pipeline.operator(uid)
            held = held_keys(operator, self.counts[uid].applied) if isinstance(operator, Process) else 0
            self._due[uid] = find_due(self._compute.warehouse, self._plan, uid, self._now, held)
        return self._due[uid]

    def _close(self, operator: Fold | IntervalJoin) -> ClosedWindows:
        uid, applied = operator.uid, self.counts[operator.uid].applied
        is_updated, warehouse = isinstance(operator, Fold) and operator.emit == "update", self._compute.warehouse
        records = (self._records.numbered if is_updated else self._records.of)(uid) if applied else None
        if isinstance(operator, IntervalJoin):
            batch = JoiningBatch(warehouse=warehouse, plan=self._plan, join=operator, now=self._now, applied=applied)
            return join_batch(batch, records)
        task = ClosingTask(
            warehouse=warehouse,
            plan=self._plan,
            uid=uid,
            row=operator.outputs[0].emitted,
            now=self._now,
            is_fed=self._records.is_fed(uid),
            applied=applied,
            updates=is_updated,
            late=self._late_records(uid),
            passed=self._passed(uid) if applied else None,
        )
        return close_windows(task, records)

    def _passed(self, uid: str) -> PassedRun | None:
        """The run of a fold with windows that was written while the batch was read."""
        written, schema, warehouse = self._intake.written.get(uid), self._plan.schemas[uid], self._compute.warehouse
        if written is None:
            return None
        return PassedRun(warehouse=warehouse, schema=schema, folder=self._folders[uid], written=written)

    def _late_records(self, uid: str) -> tuple[DataFrame, int] | None:
        """The late records of a fold, if they are rows of an output."""
        schema, counts = self._plan.schemas[uid], self.counts[uid]
        if not schema.keeps_late or not (counts.late or counts.redriven):
            return None
        with translate_spark_errors():
            late = self._records.numbered(uid).where(late_sql(schema) or "false")
            return late, late.count() if counts.redriven else counts.late

    def write_run(self, uid: str, folder: str) -> WrittenRun:
        """Folds the batch by the operator's key, or copies a foreign table, and writes the files; see `ports.Batch`."""
        if uid in self._records.processed:
            run, schema = self._records.processed[uid].run, self._plan.schemas[uid]
            if not self._records.processed[uid].written:
                return WrittenRun(rows=0, files=())
            if run is None:
                done = self._intake.written[uid]
            else:
                guard = (
                    nullcontext() if uid in self._records.failing else named_overflows(self._records.of(uid), schema)
                )
                with guard, translate_spark_errors():
                    done = self._sorted(uid, run, folder)
        elif uid in self._copies:
            done = self._copy(uid, folder)
        else:
            written = self._intake.written.get(uid)
            done = self._early.result("fold", uid, lambda: self._fold(uid, folder, written))
        self._runs[uid] = paths_of(done, folder)
        return done

    def write_dead_letters(self, uid: str, folder: str) -> WrittenRun:
        """Writes the operator's dead letters ordered by position; see `ports.Batch`."""
        return self._early.result("letters", uid, lambda: self._write_letters(uid, folder))

    def _write_letters(self, uid: str, folder: str) -> WrittenRun:
        letters = self._records.letters(uid)
        with translate_spark_errors():
            is_encoded = self._records.fed_with(uid) is None or bool(self._plan.schemas[uid].several_inputs)
            letters = letters if is_encoded else encode_emitted(letters)
            order, wanted = ["topic", "partition", "offset", "path"], self.counts[uid].dead_lettered
            batch = self._bytes if is_encoded and uid not in self._records.redriven else None
            size = RunSize.of_batch(wanted, self._plan.dead_letters[uid], batch)
            done = write_rows(letters, order, self._compute.warehouse.folder(folder), size, order)
        if not self._intake.is_kept:
            # They were read a second time.
            self._compute.refuse_recreated(self._plan)
        refuse_miscounted(uid, counted=wanted, written=done.rows)
        return done

    def write_emitted(self, uid: str, folder: str) -> WrittenRun:
        """Writes the records that a process emitted, ordered by position; see `ports.Batch`."""
        return self._early.result("emitted", uid, lambda: self._write_emitted(uid, folder))

    def _write_emitted(self, uid: str, folder: str) -> WrittenRun:
        order = [name for name, _ in ROW_ID[1:]]
        with translate_spark_errors():
            done = self._records.emitting(uid)
            rows = rows_to_send(self._plan, uid, done.sunk(uid))
            # How large they are is unknown, but rarely out of proportion to the batch.
            of = done.emitted[uid], self._plan.sinks[uid].handle
            few = RunSize.of(*of).is_collected and RunSize.of_batch(*of, self._bytes).is_collected
            size = RunSize(RunSize.of(*of).files, few)
            return write_rows(rows, order, self._compute.warehouse.folder(folder), size, order)

    def read_emitted(self, uid: str) -> Iterator[Mapping[str, Any]]:
        """Returns the records that a process emitted as Arrow in this process; see `ports.Batch`."""
        with translate_spark_errors():
            rows = self._records.emitting(uid).sunk(uid).orderBy(*(name for name, _ in ROW_ID[1:])).toArrow()
        for part in rows.to_batches(max_chunksize=1000):
            yield from part.to_pylist(maps_as_pydicts="strict")

    def count_rejected(self) -> int:
        """Counts records that at least one operator rejected, from the statistics or by a query; see `ports.Batch`."""
        lettered = [uid for uid, counts in self.counts.items() if counts.dead_lettered]
        if not any(map(self._rejects_later, lettered)):
            return self._intake.tally.rejected
        if len(lettered) == 1 and not self._records.is_fed(lettered[0]):
            return self.counts[lettered[0]].dead_lettered
        with translate_spark_errors():
            places = [self._records.letters(uid).select("topic", "partition", "offset") for uid in lettered]
            return reduce(DataFrame.unionAll, places).distinct().count()

    def refuse_recreated(self) -> None:
        """Compares topic ids, because Spark reads lost parts of the batch again; see `ports.Batch`."""
        if self._intake.inputs:
            self._compute.refuse_recreated(self._plan)

    def judge(self, runs: Mapping[str, Sequence[str]]) -> Verdict:
        """Runs the pipeline's gate on the candidate; see `ports.Batch`."""
        gate = self._compute.pipeline.gate
        if gate is None or not (self._intake.inputs or self._records.redriven):
            return Verdict()
        candidate = Candidate(
            warehouse=self._compute.warehouse,
            plan=self._plan,
            sources=tuple(self._compute.pipeline.sources),
            records=self._intake.frames,
            runs=runs,
            applied={uid: counts.applied for uid, counts in self.counts.items()},
            now=self._now,
        )
        return judge_in_spark(gate, candidate)

    @property
    def _now(self) -> Now:
        return self.facts.now(self._plan)

    def close(self) -> None:
        """Releases cached frames."""
        self._early.close()
        self._intake.release()
        with translate_spark_errors():
            self._broadcast.release()
            for records in self._records.redriven.values():
                records.unpersist()
        for done in (*self._records.processed.values(), *self._due.values()):
            done.release()

    def _note_schemas(self) -> None:
        """Adds the ids of schemas to the facts, of the records and the dead letters that were read so far."""
        open_book = self._compute.open_book
        if open_book and any(source.format.needs_schemas_of for source in self._compute.pipeline.inputs.values()):
            book = open_book()
            self.facts = replace(self.facts, unknown_schemas=book.unknown, schemas=book.known)

    def _redrive(self, uid: str) -> None:
        """Reads the dead letters that an operator gets again, and adds them to its counts."""
        letters = self._records.letters_again[uid]
        with translate_spark_errors():
            self._records.redriven[uid] = letters.decoded().persist()
            self.counts[uid] = letters.counted(self.counts[uid], self._records.joined(uid, self._records.redriven[uid]))
        self._note_schemas()

    def _failed_again(self, uid: str) -> int:
        if uid not in self._records.redriven or not self._records.failing[uid].failed:
            return 0
        with translate_spark_errors():
            again = self._records.redriven[uid]
            again = again if self._records.is_fed(uid) else again.withColumn("_path", F.expr(NO_PATH))
            return self._records.failing[uid].count_failed(again)

    def _remember_refused(self, uid: str) -> None:
        """Finds the redriven records that a process refused again, if a sink is behind it; see `Ack.refused_again`."""
        redrive = self._plan.redrive_of(uid)
        if redrive is None or not (redrive.sinks and self.counts[uid].refused_again):
            return
        place = ["topic", "partition", "offset"]
        with translate_spark_errors():
            again = self._records.redriven[uid].select(*place).distinct()
            found = self._records.letters(uid).join(again, place, "left_semi").select(*place, "path").collect()
        refused = redrive.coverage_at({letter_place(row.asDict()) for row in found})
        self.counts[uid] = replace(self.counts[uid], refused_records=refused)

    def _fold(self, uid: str, folder: str, written: WrittenRun | None = None) -> WrittenRun:
        done = written or write_fold(self._records.of(uid), self._fold_task(uid, folder))
        with overflows_of(uid):
            refuse_overflow(self._limits(uid, paths_of(done, folder), done.rows))
        return done

    def _fold_task(self, uid: str, folder: str) -> FoldTask:
        return FoldTask(
            plan=self._plan,
            uid=uid,
            now=self._now,
            at_most=self.counts[uid].applied,
            folder=self._compute.warehouse.folder(folder),
            emitted=self._records.is_fed(uid),
            batch=None if self._records.is_fed(uid) or self._plan.schemas[uid].joins else self._bytes,
        )

    def _limits(self, uid: str, files: Sequence[str], rows: int) -> LimitCheck:
        warehouse = self._compute.warehouse
        return LimitCheck(warehouse=warehouse, plan=self._plan, uid=uid, files=files, rows=rows, now=self._now)

    def _copy(self, uid: str, folder: str) -> WrittenRun:
        with translate_spark_errors():
            rows = copied_frame(self._compute.spark, self._plan.schemas[uid], self._copies[uid])
            return self._sorted(uid, rows, folder)

    def _sorted(self, uid: str, run: DataFrame, folder: str) -> WrittenRun:
        schema = self._plan.schemas[uid]
        order = ["_key_group", *(k.name for k in schema.keys)]
        at_most = self._records.processed[uid].written if uid in self._records.processed else self.counts[uid].applied
        size, target = RunSize.of(at_most, self._plan.handles[uid]), self._compute.warehouse.folder(folder)
        if (passed := self._passed(uid)) is not None:
            target = passed.replaced_in(target)
        return write_rows(run, order, target, size, schema.bounded_columns)

    def _rejects_later(self, uid: str) -> bool:
        """Whether an operator has dead letters that the batch statistics miss: of a join, a function, a redrive."""
        failed = uid in self._records.failing and self._records.failing[uid].failed > 0
        joined = self._plan.schemas[uid].is_decided_by_joins
        return failed or joined or self.counts[uid].refused_again > 0 or self._records.is_fed(uid)
