"""The documentation that Airflow shows for a DAG, generated from the pipeline's declaration."""

import re

from tidemark.airflow.assets import topic_names
from tidemark.declare.flat_map import FlatMap
from tidemark.declare.interval_join import IntervalJoin
from tidemark.declare.operators import Fold, Operator, Process
from tidemark.declare.pipeline import Pipeline
from tidemark.declare.retention import Retention
from tidemark.declare.sources import Broadcast, DeltaTable
from tidemark.model.schema.operator_schema import KeyColumn, OperatorSchema


def explain(pipeline: Pipeline, when: str, *, is_cut: bool, retention: Retention | None) -> str:
    """Returns Markdown for `doc_md`; it depends on nothing but the declaration.

    Args:
        pipeline: the declaration.
        when: when runs start, in words.
        is_cut: whether a run reads to the end of its data interval.
        retention: the checkpoints to keep.
    """
    cut = "the end of the data interval, by record time" if is_cut else "the topics' end when the run plans"
    topics = ", ".join(f"`{name}`" for source in pipeline.inputs.values() for name in topic_names(source))
    schemas = pipeline.schemas()
    own = (_row(pipeline, operator, schemas[operator.uid]) for operator in pipeline.operators)
    rows = "\n".join([*map(_broadcast_row, pipeline.broadcast), *own])
    return f"""### Checkpoints of `{pipeline.name}`
Each run completes **one checkpoint** (several if `max_records` splits a backlog): it reads a fixed range of {topics},
folds it into the state below, and publishes an immutable manifest. A failed run leaves nothing behind, and a repeated
run applies nothing twice. A run whose interval is already covered reports that and does nothing.

| | |
|---|---|
| runs | {when} |
| reads until | {cut} |
| event time | {_event_times(pipeline)} |
| isolation | {pipeline.isolation} |
| quality gate | {"yes, before anything is published" if pipeline.gate else "none"} |
| dead letters | at most {pipeline.max_dead_letters:.1%} of the records, per operator |
| checkpoints kept | {_kept(retention)} |
| an attempt expires after | {pipeline.checkpoint_timeout} |
| failed checkpoints in a row before the DAG is paused | {pipeline.tolerable_failed_checkpoints + 1} |

| operator | reads | key | state |
|---|---|---|---|
{rows}

`tidemark checkpoint list {pipeline.name}` lists the completed checkpoints.
"""


def _kept(retention: Retention | None) -> str:
    if retention is None:
        return "all"
    members = " or ".join(f"`{member}`" for member in retention.members)
    return f"the newest, and those of {members}; the retention DAG or `tidemark retention apply` releases the others"


def _event_times(pipeline: Pipeline) -> str:
    found = [
        (name, f"`{source.event_time}`" if source.event_time else "the Kafka timestamp")
        for name, source in pipeline.sources.items()
    ]
    return found[0][1] if len(found) == 1 else ", ".join(f"`{name}`: {text}" for name, text in found)


def _row(pipeline: Pipeline, operator: Operator, schema: OperatorSchema) -> str:
    names = pipeline.inputs_of(operator)
    is_only_source = names[0] in pipeline.sources and len(pipeline.sources) == 1
    reads = ", ".join(map(_code, topic_names(pipeline.sources[names[0]]) if is_only_source else names))
    for join in schema.joins:
        reads += f" with `{join.uid}` by {', '.join(map(_code, join.on))}"
    if schema.where is not None:
        reads += f" where {_code(schema.where.text)}"
    if isinstance(operator, FlatMap):
        return f"| `{operator.uid}` | {reads} | none | none: it emits rows of each record |"
    if isinstance(operator, IntervalJoin):
        keys = ", ".join(f"`{key.name}`" for key in schema.own_keys)
        kept = "" if schema.window is None else f"rows that may find partners: {schema.window.shown}"
        return f"| `{operator.uid}` | {reads} | {keys} | {kept} |"
    fields = ", ".join(
        f"`{d.name}` ({d.kind}{f' of {d.source}' if d.source else ''})" for d in operator.state.descriptors
    )
    keys = ", ".join(_key(k) for k in schema.own_keys) if operator.key_by else "all records"
    if isinstance(operator, Fold) and schema.window is not None:
        late = f" with {operator.lateness} for late records" if operator.lateness_ms else ""
        keys += f", in {schema.window.shown} that close by {_code(operator.closes_by)}{late}"
    if isinstance(operator, Process) and operator.on_timer is not None:
        late = f" with {operator.lateness} for late records" if operator.lateness_ms else ""
        fields += f", and timers that fire by {_code(operator.fires_by)}{late}"
    return f"| `{operator.uid}` | {reads} | {keys} | {fields} |"


def _key(key: KeyColumn) -> str:
    return f"`{key.name}`" if key.source == key.name else f"`{key.name}` = {_code(key.source)}"


def _code(text: str) -> str:
    """Returns an expression as code in a cell of a table: on one line, and without a `|` that ends the cell."""
    mark = "``" if "`" in text else "`"
    return mark + re.sub(r"\s*\n\s*", " ", text.strip()).replace("|", "\\|") + mark


def _broadcast_row(broadcast: Broadcast) -> str:
    schema = broadcast.bind()
    fields = ", ".join(f"`{f.name}`" for f in schema.fields)
    keys = ", ".join(f"`{k.name}`" for k in schema.keys)
    source = broadcast.source
    names = [source.path] if isinstance(source, DeltaTable) else topic_names(source)
    reads = ", ".join(map(_code, names))
    return f"| `{broadcast.uid}` (broadcast) | {reads} | {keys} | {fields} |"
