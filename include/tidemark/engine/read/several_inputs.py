"""Records of several inputs in Spark: those of an interval join or a co-process become records of one struct."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame

from tidemark.declare.co_process import CoProcess
from tidemark.declare.interval_join import IntervalJoin
from tidemark.declare.pipeline import Pipeline
from tidemark.engine.read.frames import NO_PATH, dead_letters, with_computed
from tidemark.engine.session.python_workers import encode_emitted
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.sql import record_path, spark
from tidemark.model.schema.interval_joins import SIDES, position_sql
from tidemark.model.schema.united_records import KEY, field_of_input

SeveralInputs = IntervalJoin | CoProcess
Failed = Callable[[DataFrame, FieldType | None, str], DataFrame]


def records_of_inputs(pipeline: Pipeline, plan: CheckpointPlan, uid: str, frames: Mapping[str, DataFrame]) -> DataFrame:
    """Returns the records of all inputs of an operator, with its computed columns and `_path`.

    Args:
        pipeline: the declaration.
        plan: the plan.
        uid: an operator with several inputs.
        frames: the records of the sources and outputs that have some, by name.
    """
    parts = [records.drop("headers") for _, records in _parts(pipeline, plan, uid, frames)]
    return reduce(DataFrame.unionByName, parts)


def refused_of_inputs(
    pipeline: Pipeline,
    plan: CheckpointPlan,
    uid: str,
    frames: Mapping[str, DataFrame],
    dropped: Column | None = None,
    failed: Failed | None = None,
) -> DataFrame:
    """Returns the dead letters of an operator; records that another one emitted are encoded. See `records_of_inputs`.

    `dropped` says of a record whether its key is erased. `failed` returns the letters of a function that failed, from
    its records, the struct of them if another operator emits them, and where it is.
    """
    operator, schema, found = _operator(pipeline, uid), plan.schemas[uid], list[DataFrame]()
    for n, whole in _parts(pipeline, plan, uid, frames):
        records = whole if dropped is None else whole.where(~dropped)
        name, at = operator.inputs[n], f"record.`{_field(operator, n)}`"
        emitted = pipeline.input_record(name) if name in pipeline.outputs else None
        letters = [dead_letters(records, schema, emitted, at)]
        letters += [] if failed is None else [failed(records, emitted, at)]
        found += [of if emitted is None else encode_emitted(of) for of in letters]
    return reduce(DataFrame.unionByName, found)


def input_number_sql(operator: CoProcess) -> str:
    """Returns the expression of the number of the input that a united record is from."""
    cases = (f"WHEN record.`{field_of_input(n)}` IS NOT NULL THEN {n}" for n in range(len(operator.inputs)))
    return f"CASE {' '.join(cases)} END"


def _operator(pipeline: Pipeline, uid: str) -> SeveralInputs:
    (operator,) = (o for o in pipeline.operators if isinstance(o, SeveralInputs) and o.uid == uid)
    return operator


def _parts(
    pipeline: Pipeline, plan: CheckpointPlan, uid: str, frames: Mapping[str, DataFrame]
) -> Iterator[tuple[int, DataFrame]]:
    """Yields the united records of each input that has some, with its number."""
    operator, schema = _operator(pipeline, uid), plan.schemas[uid]
    types = [pipeline.input_record(name).stored.sql for name in operator.inputs]
    for n, name in enumerate(operator.inputs):
        if name not in frames:
            continue
        columns = frames[name].columns
        path = "_path" if "_path" in columns else f"{NO_PATH} AS _path"
        if name in pipeline.outputs and isinstance(operator, CoProcess):
            # Two outputs of one operator may have the same positions.
            path = f"concat(_path, array({n}L)) AS _path"
        here = ("topic", "CAST(`partition` AS INT) AS `partition`", "`offset`", path, "`timestamp`", "event_time")
        made = f"CASE WHEN record IS NOT NULL THEN {_struct(operator, plan, n, types)} END AS record"
        kept = ["_reason", "key", "value", *(["headers"] if "headers" in columns else [])]
        yield n, with_computed(frames[name].selectExpr(*here, made, *kept), [schema], plan)


def _field(operator: SeveralInputs, n: int) -> str:
    """Returns the field of a united record that has the record of an input."""
    return SIDES[n] if isinstance(operator, IntervalJoin) else field_of_input(n)


def _struct(operator: SeveralInputs, plan: CheckpointPlan, n: int, types: Sequence[str]) -> str:
    """Returns the expression of a united record over a record of an input; `types` are those of all inputs in SQL."""
    paths, own = operator.key_by[operator.inputs[n]], plan.schemas[operator.uid].own_keys
    keys = ", ".join(f"'{key.name}', {spark(record_path(path))}" for key, path in zip(own, paths, strict=True))
    fields = {KEY: f"named_struct({keys})"}
    for other, of in enumerate(types):
        fields[_field(operator, other)] = f"CAST({'record' if other == n else 'NULL'} AS {of})"
    if isinstance(operator, IntervalJoin):
        place = position_sql(plan.topic_ids)
        fields = {"side": f"'{SIDES[n]}'", "position": place, **fields, "matched": "CAST(NULL AS BOOLEAN)"}
    return "named_struct({})".format(", ".join(f"'{name}', {sql}" for name, sql in fields.items()))
