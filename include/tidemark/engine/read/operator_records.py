"""The records that each operator of an attempt gets: of inputs, of other operators, joined, and redriven.

Several threads may ask for them; only the thread that takes the steps adds to the mappings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.declare.arrival import upstream_of
from tidemark.declare.pipeline import Pipeline
from tidemark.engine.fold.closings import ClosedWindows
from tidemark.engine.process.process_frame import ProcessFrame
from tidemark.engine.read.batch_reader import DecodedBatch, RedrivenLetters
from tidemark.engine.read.batch_stats import counts_of
from tidemark.engine.read.broadcast_states import BroadcastStates, join_states
from tidemark.engine.read.erased_keys import blocked_column
from tidemark.engine.read.frames import NO_PATH, dead_letters, with_computed
from tidemark.engine.read.several_inputs import records_of_inputs, refused_of_inputs
from tidemark.engine.session.spark_errors import translate_spark_errors
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.names import operator_of
from tidemark.model.core.types import FieldType
from tidemark.model.retention.erasure import BlockedKey
from tidemark.ports import UidCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRecords:
    """The records of one attempt, by the operators that get them.

    Attributes:
        pipeline: the declaration.
        plan: the plan.
        intake: the decoded records.
        blocked: keys whose records are dropped.
        letters_again: the dead letters that operators get again, by uid.
        states: the broadcast states, for joins.
        processed: what operators have emitted so far, by uid.
        failing: the same, of operators whose function may have failed on records.
        redriven: the decoded records of `letters_again`, once they are read.
    """

    pipeline: Pipeline
    plan: CheckpointPlan
    intake: DecodedBatch
    blocked: Sequence[BlockedKey]
    letters_again: Mapping[str, RedrivenLetters]
    states: BroadcastStates
    processed: dict[str, ProcessFrame | ClosedWindows] = field(default_factory=dict)
    failing: dict[str, ProcessFrame] = field(default_factory=dict)
    redriven: dict[str, DataFrame] = field(default_factory=dict)

    def of(self, uid: str) -> DataFrame:
        """Returns the records that an operator gets, including joins; called only if it has any."""
        schema = self.plan.schemas[uid]
        pipeline, frames = self.pipeline, self._frames()
        if schema.several_inputs:
            found = [records_of_inputs(pipeline, self.plan, uid, frames)]
        else:
            found = [self.joined(uid, frame) for name, frame in frames.items() if uid in pipeline.readers(name)]
        dropped = blocked_column(schema, self.blocked)
        kept = found if dropped is None else [frame.where(~dropped) for frame in found]
        if uid in self.redriven:
            kept.append(self.letters_again[uid].kept(self.joined(uid, self.redriven[uid])))
        return reduce(DataFrame.unionByName, kept)

    def numbered(self, uid: str) -> DataFrame:
        """Returns the same records with the column `_path`, which is empty for records of a source."""
        records = self.of(uid)
        return records if self.is_fed(uid) else records.withColumn("_path", F.expr(NO_PATH))

    def joined(self, uid: str, records: DataFrame) -> DataFrame:
        """Adds joined rows, and what the operator computes of a record, unless decoding has computed it."""
        schema = self.plan.schemas[uid]
        found = join_states(records, schema.joins, self.states)
        return with_computed(found, [schema], self.plan) if self.is_fed(uid) or schema.is_decided_by_joins else found

    def letters(self, uid: str) -> DataFrame:
        """Returns the operator's dead letters: undecoded records, those without a key, and failures of its function."""
        schema = self.plan.schemas[uid]
        if schema.several_inputs:
            failed = self.failing[uid].letters if uid in self.failing else None
            dropped = blocked_column(schema, self.blocked)
            return refused_of_inputs(self.pipeline, self.plan, uid, self._frames(), dropped, failed)
        letters = dead_letters(self.of(uid), schema, emitted := self.fed_with(uid))
        if uid in self.failing and self.failing[uid].failed:
            letters = letters.unionByName(self.failing[uid].letters(self.numbered(uid), emitted))
        return letters

    def is_fed(self, uid: str) -> bool:
        """Whether an operator gets records that another one emitted, with `_path`."""
        return upstream_of(self.pipeline, uid) is not None

    def fed_with(self, uid: str) -> FieldType | None:
        """Returns the struct of the records that another operator emits for an operator; None if it reads an input."""
        upstream = upstream_of(self.pipeline, uid)
        return None if upstream is None else self.pipeline.input_record(upstream)

    def counted(self, uid: str, inputs: Sequence[str]) -> UidCounts:
        """Counts the records of an operator that are known only now: emitted and joined ones."""
        if not any(map(self._got_from, inputs)):
            return UidCounts(applied=0, dead_lettered=0)
        with translate_spark_errors():
            return counts_of(self.of(uid), self.plan.schemas[uid])

    def _got_from(self, name: str) -> int:
        """Returns how many records a source or an output brings."""
        if name in self.pipeline.sources:
            return self.intake.tally.records.get(name, 0)
        return sum(done.emitted.get(name, 0) for done in self.processed.values())

    def emitting(self, output: str) -> ProcessFrame | ClosedWindows:
        """Returns what the operator of an output has emitted."""
        return self.processed[operator_of(output, self.plan.schemas)]

    def _frames(self) -> dict[str, DataFrame]:
        """Returns the records of every output and input that has some, by its name."""
        done = tuple(self.processed.values())  # another thread may add to it
        return {n: of.records(n) for of in done for n, some in of.emitted.items() if some} | self.intake.frames
