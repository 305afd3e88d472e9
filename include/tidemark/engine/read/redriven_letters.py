"""Reads the dead letters that a plan redrives, and decodes them as if they came from the topic."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.declare.pipeline import Pipeline
from tidemark.engine.read.erased_keys import blocked_column
from tidemark.engine.read.frames import applied_sql, decode
from tidemark.engine.state.state_files import SparkWarehouse
from tidemark.model.checkpoint.dead_letters import DEAD_LETTER_COLUMNS
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.redrive import Redrive, expand_rows, missing_letters
from tidemark.model.retention.erasure import BlockedKey
from tidemark.ports import UidCounts

_PLACE = "`_made` BIGINT, `topic` STRING, `partition` INT, `offset` BIGINT"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrivenLetters:
    """The dead letters that one operator gets again in one plan.

    Attributes:
        warehouse: the warehouse, with the session of the attempt.
        pipeline: the declaration.
        plan: the plan.
        redrive: the letters.
        blocked: keys whose letters are dropped.
    """

    warehouse: SparkWarehouse
    pipeline: Pipeline
    plan: CheckpointPlan
    redrive: Redrive
    blocked: Sequence[BlockedKey]

    def decoded(self) -> DataFrame:
        """Returns the letters as the decoded records of the operator's input; nothing is read before an action.

        Raises:
            StoreError: a version of the dead-letter table is missing.
        """
        name = next(name for name in self.pipeline.inputs if self.redrive.uid in self.pipeline.readers(name))
        return decode(self._raw(), self.pipeline, self.plan, name)

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
        applied = kept & F.expr(applied_sql(self.plan.schemas[self.redrive.uid]))
        columns = {"found": F.lit(True), "kept": kept, "applied": applied}
        (row,) = records.agg(*(F.count_if(condition).alias(name) for name, condition in columns.items())).collect()
        if row["found"] != self.redrive.count:
            raise missing_letters(self.redrive, row["found"])
        return counts.with_redriven(applied=row["applied"], refused=row["kept"] - row["applied"])

    def _raw(self) -> DataFrame:
        """The rows with Kafka's columns. A record may have rows of several checkpoints, so the file of a row counts."""
        session, wanted = self.warehouse.session, expand_rows(self.redrive.rows)
        made = {(row.table, row.checkpoint) for row in wanted}
        files = [
            (f"{segment.path}/{found.path}", found.checkpoint)
            for segment in self.plan.dead_letters[self.redrive.uid]
            for found in self.warehouse.files_of(segment)
            if (segment.path, found.checkpoint) in made
        ]
        columns = ", ".join(f"`{name}` {sql}" for name, sql in DEAD_LETTER_COLUMNS)
        if not files:
            return session.createDataFrame([], columns)
        # A file is named by an attempt (`<id>.<n>/part-...`), so its last two parts name it among all tables.
        tails = [("/".join(path.split("/")[-2:]), checkpoint) for path, checkpoint in files]
        checkpoints = F.broadcast(session.createDataFrame(tails, "`_file` STRING, `_made` BIGINT"))
        places = [(row.checkpoint, row.topic, row.partition, row.offset) for row in sorted(wanted)]
        rows = session.read.schema(columns).parquet(*(f"{self.warehouse.root}/{path}" for path, _ in files))
        tail = "array_join(slice(split(_metadata.file_path, '/'), -2, 2), '/') AS _file"
        return (
            rows.selectExpr("*", tail)
            .join(checkpoints, "_file")
            .join(
                F.broadcast(session.createDataFrame(places, _PLACE)),
                ["_made", "topic", "partition", "offset"],
                "left_semi",
            )
            .select(*(name for name, _ in DEAD_LETTER_COLUMNS))
        )
