"""Reads the batch of a plan: reads and decodes it once, counts it, and caches what several queries need.

The cost of a small checkpoint is mostly its number of queries. So if the first operator is a fold that needs only the
records, or a process without outputs, the query that reads them also counts them and writes the run (adr/0021). And
values that name schemas are decoded by the parent's schemas first; only if that leaves some unknown, their ids are read
(adr/0043).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.declare.arrival import input_name
from tidemark.declare.operators import Fold, Process
from tidemark.declare.pipeline import Pipeline
from tidemark.engine.fold.fold import FoldTask, write_fold
from tidemark.engine.process.process_operator import ProcessTask, write_process
from tidemark.engine.read.batch_stats import BatchStats, count_batch
from tidemark.engine.read.erased_keys import blocked_column
from tidemark.engine.read.frames import NO_PATH, applied_sql, decode, decode_emitted, filtered_sql
from tidemark.engine.read.observed_batch_stats import ObservedBatchStats
from tidemark.engine.read.read_spans import SPANS
from tidemark.engine.session.spark_errors import translate_spark_errors
from tidemark.engine.state.state_files import SparkWarehouse
from tidemark.engine.write.parquet_writer import Observed, RunFolder, discard_run
from tidemark.formats.record_format import RecordFormat
from tidemark.model.checkpoint.dead_letters import DEAD_LETTER_COLUMNS
from tidemark.model.checkpoint.manifest import UidCounts, WrittenRun
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.redrive import Redrive, expand_rows, missing_letters
from tidemark.model.checkpoint.row_tables import ROW_CHECKPOINT, may_hold
from tidemark.model.core.ttl import Now
from tidemark.model.kinds.base.sql import limited_schema
from tidemark.model.retention.erasure import BlockedKey
from tidemark.ports.registries import OpenBook, SchemaBook
from tidemark.processing.record_shapes import shape_of_records


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """The records in the ranges of a plan.

    Attributes:
        inputs: decoded records, per input with a range that is not empty.
        tally: statistics of all inputs.
        written: runs that were written during the read, by uid.
        is_kept: whether another query finds the same records without reading them again.
        has_spans: whether the inputs have the column `SPANS`.
    """

    inputs: Mapping[str, DataFrame] = field(default_factory=dict)
    tally: BatchStats = field(default_factory=BatchStats)
    written: dict[str, WrittenRun] = field(default_factory=dict)
    is_kept: bool = True
    has_spans: bool = False

    @property
    def frames(self) -> dict[str, DataFrame]:
        """The inputs in the columns of `frames.decode` without `SPANS`, as letters that are redriven have them."""
        return {name: records.drop(SPANS) if self.has_spans else records for name, records in self.inputs.items()}

    def release(self) -> None:
        """Releases cached frames."""
        if self.is_kept:
            with translate_spark_errors():
                for records in self.inputs.values():
                    records.unpersist()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReader:
    """Reads the batch of one plan.

    Attributes:
        pipeline: the declaration.
        warehouse: the target of runs, and the session.
        plan: the plan.
        raw: the records of an input's ranges, as Spark's Kafka source returns them; an action reads them.
        blocked: keys whose records are dropped.
        folders: the folder of each run by uid, relative to the warehouse; without it no run is written during the read.
        open_book: opens the schemas of the attempt; None = formats keep the schemas that they have.
    """

    pipeline: Pipeline
    warehouse: SparkWarehouse
    plan: CheckpointPlan
    raw: Callable[[str], DataFrame]
    blocked: Sequence[BlockedKey]
    folders: Mapping[str, str]
    open_book: OpenBook | None = None

    def read(self) -> DecodedBatch:
        """Reads the batch.

        Raises:
            DataLostError, BrokerError, EngineError: see `ports.Compute`.
            RegistryUnavailableError, SchemaChangedError, StoreError: see `ports.registries.SchemaBook.learn`.
            StateOverflowError: raised by the fold that runs during the read.
        """
        names = [name for name in self.pipeline.inputs if self.plan.ranges_of(name)]
        with translate_spark_errors():
            recalled = {name: book for name in names if (book := self._recalled(name)) is not None}
        found = self._read(names, recalled)
        if not found.tally.unknown_schemas:
            return found
        try:
            with translate_spark_errors():
                if not any([self._learn(name, book) for name, book in recalled.items()]):
                    return found
        except BaseException:
            found.release()
            raise
        found.release()
        for uid in found.written:
            discard_run(self._folder(uid))
        return self._read(names)

    def _read(self, names: Sequence[str], recalled: Collection[str] = (), *, in_passing: bool = True) -> DecodedBatch:
        first = self._first() if in_passing else None
        reports = (
            bool(names) and first is not None and ObservedBatchStats(self.pipeline, self.plan, names[0]).is_reported
        )
        kept = first is None or len(self.pipeline.uids) > 1 or self.pipeline.gate is not None
        with translate_spark_errors():
            inputs = {name: self._decoded(name, reports=reports) for name in names}
            if kept:
                inputs = {name: records.persist() for name, records in inputs.items()}
        try:
            if first is not None and inputs:
                found = self._in_passing(first, inputs, recalled, kept=kept)
                if found is not None:
                    return found
                DecodedBatch(inputs, is_kept=kept).release()
                return self._read(names, recalled, in_passing=False)
            with translate_spark_errors():
                tally = count_batch(inputs, self.pipeline, self.plan, self.blocked, recalled)
                return DecodedBatch(inputs, tally)
        except BaseException:
            DecodedBatch(inputs, is_kept=kept).release()
            raise

    def _recalled(self, name: str) -> SchemaBook | None:
        """Finds the schemas of an input; returns its book if they are the parent's, and no record has been read."""
        its_format, book = self.pipeline.inputs[name].format, self._book(name)
        if its_format.needs_schemas_of is None or book is None:
            return None
        # A change whose message key has an unknown schema is no letter `unknown_schema`, so it would go unnoticed.
        known = not its_format.has_changes and book.recall(its_format.needs_schemas_of, self.plan.parent)
        # Arrow puts markers of folders into a bucket when it deletes files, so nothing is written there in advance.
        if known and not (self.warehouse.root.startswith("s3") and self._first()):
            return book
        self._learn(name, book)
        return None

    def _learn(self, name: str, book: SchemaBook) -> bool:
        """Finds the schemas that an input's records name; returns whether decoding by them gives something else."""
        before, its_format = book.known, self.pipeline.inputs[name].format
        if its_format.needs_schemas_of is not None:
            book.learn(its_format.needs_schemas_of, schema_ids(self.raw(name), keys=its_format.has_changes))
        return book.known != before

    def _book(self, name: str) -> SchemaBook | None:
        needed = self.pipeline.inputs[name].format.needs_schemas_of is not None
        return self.open_book() if needed and self.open_book is not None else None

    def _decoded(self, name: str, *, reports: bool) -> DataFrame:
        book = self._book(name)
        its_format = None if book is None else book.bind(self.pipeline.inputs[name].format)
        return decode(self.raw(name), self.pipeline, self.plan, name, its_format, reports=reports)

    def _folder(self, uid: str) -> RunFolder:
        return self.warehouse.folder(self.folders[uid])

    def _first(self) -> Fold | Process | None:
        """Returns the first operator if the query that reads the batch can count it and write the run: see adr/0021."""
        uid, (name, *others) = self.pipeline.uids[0], self.pipeline.inputs
        if others or self.blocked or uid not in self.folders or self.plan.redrive_of(uid) is not None:
            return None
        schema, stats = self.plan.schemas[uid], ObservedBatchStats(self.pipeline, self.plan, name)
        if schema.joins or limited_schema(schema) is not None or schema.keeps_late:
            return None
        if not (stats.is_small or stats.is_reported):
            return None
        found = next((o for o in self.pipeline.operators if o.uid == uid), None)
        if isinstance(found, Fold):
            return found if found.emit == "final" else None
        return found if isinstance(found, Process) and self._is_alone(found, stats.at_most) else None

    def _is_alone(self, operator: Process, at_most: int) -> bool:
        """Whether a process has only its state: what depends on the whole batch, or goes elsewhere, needs a query."""
        # A bucket keeps markers of folders that are written in vain.
        if operator.takes_broadcast or operator.on_timer or self.warehouse.worker_reader is None:
            return False
        return self._task(operator, None, at_most).needs_one_query

    def _in_passing(
        self, operator: Fold | Process, inputs: Mapping[str, DataFrame], recalled: Collection[str], *, kept: bool
    ) -> DecodedBatch | None:
        """Reads the batch and writes the run of an operator; None if another query has to show what happened."""
        ((name, records),), observed, uid = inputs.items(), Observed(), operator.uid
        passing = ObservedBatchStats(self.pipeline, self.plan, name, name in recalled)
        with translate_spark_errors():
            shown = passing.on(records, observed)
        if isinstance(operator, Process):
            run = self._processed(operator, shown, passing.at_most, observed)
        else:
            run = self._folded(uid, shown, passing.at_most, observed)
        if run is None:
            return None
        with translate_spark_errors():
            tally = passing.result(observed)
            # Each row of the run comes from a record that was applied, unless keys have rows for the entries of maps.
            least = 0 if self.plan.schemas[uid].maps else run.rows
            if tally is None or tally.applied[uid] < least:
                tally = count_batch(inputs, self.pipeline, self.plan, recalled=recalled)
        return DecodedBatch(inputs, tally, {uid: run}, is_kept=kept, has_spans=passing.is_reported)

    def _processed(self, operator: Process, records: DataFrame, at_most: int, observed: Observed) -> WrittenRun | None:
        with translate_spark_errors():
            placed = records.withColumn("_path", F.expr(NO_PATH))
        done = write_process(self._task(operator, placed, at_most), self._folder(operator.uid), observed)
        return None if done is None else done.passed

    def _task(self, operator: Process, records: DataFrame | None, at_most: int) -> ProcessTask:
        return ProcessTask(
            warehouse=self.warehouse,
            plan=self.plan,
            operator=operator,
            record=shape_of_records(self.pipeline, operator),
            records=records,
            applied=at_most,
            folder=self._folder(operator.uid),
        )

    def _folded(self, uid: str, records: DataFrame, at_most: int, observed: Observed) -> WrittenRun:
        task = FoldTask(
            plan=self.plan,
            uid=uid,
            now=Now(event_time_ms=None, logical_time_ms=self.plan.logical_time_ms),
            at_most=at_most,
            folder=self._folder(uid),
        )
        return write_fold(records, task, observed)


def schema_ids(raw: DataFrame, *, keys: bool = False) -> list[int]:
    """Returns the ids of the schemas that values name by Confluent's frame; this action reads the records.

    Args:
        raw: the records.
        keys: whether the schemas of message keys count too.
    """
    found = raw.selectExpr(f"explode(array({'key, value' if keys else 'value'})) AS framed")
    named = found.where("octet_length(framed) >= 5 AND substr(framed, 1, 1) = X'00'")
    ids = named.selectExpr("CAST(conv(hex(substr(framed, 2, 4)), 16, 10) AS BIGINT) AS id").distinct()
    return sorted(row["id"] for row in ids.collect())


def bound_format(raw: DataFrame, pipeline: Pipeline, name: str, open_book: OpenBook | None) -> RecordFormat | None:
    """Returns an input's format with the schemas of its records, which are stored by then.

    This costs a query that reads the ids before the query that decodes; None and no query if values name no schemas.

    Raises:
        RegistryUnavailableError, SchemaChangedError, StoreError: see `ports.registries.SchemaBook.learn`.
    """
    its_format = pipeline.inputs[name].format
    if its_format.needs_schemas_of is None or open_book is None:
        return None
    book = open_book()
    book.learn(its_format.needs_schemas_of, schema_ids(raw, keys=its_format.has_changes))
    return book.bind(its_format)


# The dead letters that a plan redrives: read from their tables, and decoded as if they came from the topic.
_PLACE = "`_made` BIGINT, `topic` STRING, `partition` INT, `offset` BIGINT, `_at` ARRAY<BIGINT>"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrivenLetters:
    """The dead letters that one operator gets again in one plan.

    Attributes:
        warehouse: the warehouse, with the session of the attempt.
        pipeline: the declaration.
        plan: the plan.
        redrive: the letters.
        blocked: keys whose letters are dropped.
        open_book: opens the schemas of the attempt; None = formats keep the schemas that they have.
    """

    warehouse: SparkWarehouse
    pipeline: Pipeline
    plan: CheckpointPlan
    redrive: Redrive
    blocked: Sequence[BlockedKey]
    open_book: OpenBook | None = None

    def decoded(self) -> DataFrame:
        """Returns the letters as the decoded records of the operator's input; only their schemas are read at once.

        Raises:
            StoreError: a version of the dead-letter table is missing.
            RegistryUnavailableError, SchemaChangedError: see `bound_format`.
        """
        name, raw = input_name(self.pipeline, self.redrive.uid), self._raw()
        if name not in self.pipeline.inputs:
            return decode_emitted(raw, self.pipeline.input_record(name))
        return decode(raw, self.pipeline, self.plan, name, bound_format(raw, self.pipeline, name, self.open_book))

    def kept(self, records: DataFrame) -> DataFrame:
        """Returns the letters, after joins, without those of erased keys."""
        dropped = blocked_column(self.plan.schemas[self.redrive.uid], self.blocked)
        return records if dropped is None else records.where(~dropped)

    def counted(self, counts: UidCounts, records: DataFrame) -> UidCounts:
        """Adds the letters, after joins, to the counts of the operator; those of erased keys count as nothing.

        Raises:
            StoreError: the table has not exactly these letters.
        """
        dropped = blocked_column(self.plan.schemas[self.redrive.uid], self.blocked)
        kept = F.lit(True) if dropped is None else ~dropped
        schema = self.plan.schemas[self.redrive.uid]
        conditions = {"applied": applied_sql(schema), "filtered": filtered_sql(schema) or "false"}
        columns = {"found": F.lit(True), "kept": kept}
        columns |= {name: kept & F.expr(condition) for name, condition in conditions.items()}
        (row,) = records.agg(*(F.count_if(condition).alias(name) for name, condition in columns.items())).collect()
        if row["found"] != self.redrive.count:
            raise missing_letters(self.redrive, row["found"])
        refused = row["kept"] - row["applied"] - row["filtered"]
        return counts.with_redriven(applied=row["applied"], filtered=row["filtered"], refused=refused)

    def _raw(self) -> DataFrame:
        """The rows with Kafka's columns. A record may have rows of several checkpoints, so the file of a row counts."""
        session, wanted = self.warehouse.session, expand_rows(self.redrive.rows)
        made = {row.checkpoint for row in wanted}
        files = [
            (f"{segment.path}/{found.path}", found.checkpoint)
            for segment in self.plan.dead_letters[self.redrive.uid]
            for found in self.warehouse.files_of(segment)
            if any(may_hold(segment, found, at) for at in made)
        ]
        columns = ", ".join(f"`{name}` {sql}" for name, sql in DEAD_LETTER_COLUMNS)
        if not files:
            return session.createDataFrame([], columns)
        # A file is named by an attempt (`<id>.<n>/part-...`), so its last two parts name it among all tables.
        tails = [("/".join(path.split("/")[-2:]), checkpoint) for path, checkpoint in files]
        checkpoints = F.broadcast(session.createDataFrame(tails, "`_file` STRING, `_made` BIGINT"))
        places = [(r.checkpoint, r.topic, r.partition, r.offset, list(r.path)) for r in sorted(wanted)]
        stored = f"{columns}, `{ROW_CHECKPOINT}` BIGINT"
        rows = session.read.schema(stored).parquet(*(f"{self.warehouse.root}/{path}" for path, _ in files))
        tail = "array_join(slice(split(_metadata.file_path, '/'), -2, 2), '/') AS _file"
        return (
            rows.selectExpr("*", tail)
            .join(checkpoints, "_file")
            .withColumn("_made", F.coalesce(ROW_CHECKPOINT, "_made"))  # a compacted file has rows of many checkpoints
            .withColumn("_at", F.expr(f"coalesce(path, {NO_PATH})"))
            .join(
                F.broadcast(session.createDataFrame(places, _PLACE)),
                ["_made", "topic", "partition", "offset", "_at"],
                "left_semi",
            )
            .select(*(name for name, _ in DEAD_LETTER_COLUMNS))
        )
