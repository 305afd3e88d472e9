"""The frames of a batch: decoded records, and their fold by an operator, as DataFrame expressions only."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.declare.pipeline import Pipeline
from tidemark.declare.sources import KafkaSource
from tidemark.engine.read.read_spans import SPANS, EventTimes
from tidemark.engine.session.python_workers import decode_values
from tidemark.formats.emitted_records import EMITTED_FORMAT
from tidemark.formats.envelope import has_headers, split_payload, with_envelope
from tidemark.formats.json_sql import is_sealed_sql, is_text_sql, matches_sql, parsed_sql, scalar_sql
from tidemark.formats.record_format import FAULT, GOOD, ROW_KEY, RecordFormat
from tidemark.model.checkpoint.dead_letters import DEAD_LETTER_COLUMNS, Reason
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.ttl import Now
from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.sql import partials, quote, record_path, spark
from tidemark.model.portable_sql.dialects import SPARK
from tidemark.model.portable_sql.record_expression import RecordExpression
from tidemark.model.schema.event_windows import StoredWindow, merged_sql
from tidemark.model.schema.key_groups import key_group_sql
from tidemark.model.schema.operator_schema import OperatorSchema, StoredField, run_columns

# Records without a value delete the key in their message key; no Python code runs per record.
#
# For one key column the message key is its text: as it is for a string, in its JSON or ISO-8601 form for other types.
# For several columns it is a JSON array of them in order, or an object by their names.
_TEXT = "CAST(key AS STRING)"
_WHOLE = {"int": "-?(0|[1-9][0-9]*)", "bool": "true|false"}
_VALUELESS = f"_reason <=> '{Reason.NULL_VALUE.value}'"
_PLACE = "struct(topic, `partition`, `offset`)"
NO_PATH = "CAST(array() AS ARRAY<BIGINT>)"
"""The path of a record that no operator has emitted."""


def applied_sql(schema: OperatorSchema) -> str:
    """Returns the condition that an operator applies a record; never null."""
    if schema.has_row_keys:
        known = _computed(schema, "known")
        return known if schema.deletes else f"(_reason IS NULL AND {known})"
    taken = [] if schema.where is None else [_computed(schema, "where")]
    good = " AND ".join(["_reason IS NULL", *taken, *(f"{sql} IS NOT NULL" for sql in _key_columns(schema))])
    return f"(({good}) OR ({deleted_sql(schema)}))" if schema.deletes else good


def filtered_sql(schema: OperatorSchema) -> str | None:
    """Returns the condition that an operator leaves a good record out; never null. None if it takes all records."""
    found = [] if schema.where is None else [f"(_reason IS NULL AND NOT {_computed(schema, 'where')})"]
    found += [f"({_VALUELESS})"] if schema.changes and not schema.deletes else []
    found += [late_sql(schema) or "false"] if schema.keeps_late else []
    return f"({' OR '.join(found)})" if found else None


def late_sql(schema: OperatorSchema) -> str | None:
    """Returns the condition that the window of a record had closed; never null. None if there are no windows."""
    if schema.window is None:
        return None
    taken = [] if schema.where is None else [_computed(schema, "where")]
    own = [sql for sql, k in zip(_key_columns(schema), schema.keys, strict=True) if not k.of_window]
    keyed = [f"{sql} IS NOT NULL" for sql in own]
    return f"({' AND '.join(['_reason IS NULL', *taken, *keyed, _computed(schema, 'late')])})"


def refused_sql(schema: OperatorSchema) -> str:
    """Returns the condition that a record is a dead letter of an operator; never null."""
    filtered = filtered_sql(schema)
    return f"NOT ({applied_sql(schema)})" + ("" if filtered is None else f" AND NOT {filtered}")


def with_computed(records: DataFrame, schemas: Iterable[OperatorSchema], plan: CheckpointPlan) -> DataFrame:
    """Adds the columns that operators compute of a record: their conditions, keys that are expressions, and windows.

    They are columns, so that each expression is evaluated once for all its uses.
    """
    found = [column for schema in schemas for column in _computations(schema, plan)]
    return records.selectExpr("*", *found) if found else records


def _computations(schema: OperatorSchema, plan: CheckpointPlan) -> Iterator[str]:
    if schema.where is not None:
        yield f"coalesce({_record_sql(schema.where)}, false) AS {_computed(schema, 'where')}"
    if schema.has_row_keys:
        yield from _row_keys(schema)
        return
    for n, key in enumerate(schema.keys):
        if key.expression is not None:
            yield f"{_record_sql(key.expression)} AS {_computed(schema, n)}"
    if schema.window is not None:
        yield from _windows(schema, schema.window, plan.frontier_before(schema.uid))


def _windows(schema: OperatorSchema, window: StoredWindow, frontier: int | None) -> Iterator[str]:
    """Yields the bounds of the row that a record counts in, null if its windows are closed, and whether they are."""
    at = "unix_millis(event_time)"
    if (time := window.time_sql(at)) != at:
        # A later expression of the same SELECT refers to it, so Spark evaluates it once per record.
        at = _computed(schema, "time")
        yield f"{time} AS {at}"
    span, late = window.span_sql(at), "false"
    if frontier is not None:
        late = f"coalesce({window.late_sql(span, as_argument(frontier, 'offset'))}, false)"
    yield f"{late} AS {_computed(schema, 'late')}"
    for n, sql in enumerate(window.bounds_sql(span, "event_time"), start=len(schema.keys) - len(span)):
        yield f"CASE WHEN NOT {late} THEN {sql} END AS {_computed(schema, n)}"


def _row_keys(schema: OperatorSchema) -> Iterator[str]:
    """Yields the key in the message key of a change, and whether it is there; the twin of `json.decode_row_key`."""
    found = [scalar_sql(_at(ROW_KEY, f"$.{key.name}"), key.name, key.type) for key in schema.keys]
    names = ", ".join(f"'{name}'" for name in sorted(key.name for key in schema.keys))
    exactly = f"{_members(ROW_KEY)} = array({names})"
    named = " AND ".join([exactly, *(f"({reason}) IS NULL" for reason, _ in found)])
    known = f"coalesce((_reason IS NULL OR {_VALUELESS}) AND {named}, false)"
    yield f"{known} AS {_computed(schema, 'known')}"
    for n, (_, value) in enumerate(found):
        yield f"CASE WHEN {known} THEN {value} END AS {_computed(schema, n)}"


def _with_parsed_key(decoded: DataFrame) -> DataFrame:
    """Replaces the text of message keys by the variant of the object in it, null if it is no JSON text."""
    text = f"CAST({ROW_KEY} AS STRING)"
    parsed = decoded.selectExpr("*", f"{parsed_sql(text)} AS _parsed_key")
    whole = f"{is_text_sql(text)} AND {is_sealed_sql('_parsed_key', text)}"
    inside = f"{_members(_at('_parsed_key', '$[0]'))} = array('payload', 'schema')"
    key = f"CASE WHEN {inside} THEN {_at('_parsed_key', '$[0].payload')} ELSE {_at('_parsed_key', '$[0]')} END"
    return parsed.withColumn(ROW_KEY, F.expr(f"CASE WHEN {whole} THEN {key} END"))


def _members(variant: str) -> str:
    return f"array_sort(map_keys(try_variant_get({variant}, '$', 'map<string, variant>')))"


def _at(variant: str, path: str) -> str:
    return f"try_variant_get({variant}, '{path}', 'variant')"


def _record_sql(made: RecordExpression) -> str:
    return spark(made.sql(record_path, SPARK))


def _computed(schema: OperatorSchema, part: str | int) -> str:
    """Returns the name of a computed column: of the condition, or of the n-th key column."""
    return f"`_computed.{schema.uid}.{part}`"


def _key_columns(schema: OperatorSchema) -> list[str]:
    """Returns the expressions of the key columns of a record that is no delete."""
    return [
        spark(record_path(k.source)) if k.inputs is None and not schema.has_row_keys else _computed(schema, n)
        for n, k in enumerate(schema.keys)
    ]


def deleted_sql(schema: OperatorSchema) -> str:
    """Returns the condition that a record is a delete and its message key is a key of the operator."""
    named = [f"({_column(schema, n)[0]}) IS NULL" for n in range(len(schema.keys))]
    return " AND ".join([_VALUELESS, "key IS NOT NULL", _is_whole(schema), *named])


def reason_sql(schema: OperatorSchema) -> str:
    """Returns why a record that an operator does not apply is a dead letter."""
    why = f"coalesce(_reason, '{(Reason.BAD_KEY if schema.has_row_keys else Reason.NULL_KEY).value}')"
    if (late := late_sql(schema)) is not None:
        why = f"CASE WHEN {late} THEN '{Reason.LATE.value}' ELSE {why} END"
    return f"CASE WHEN {_VALUELESS} THEN '{Reason.BAD_KEY.value}' ELSE {why} END" if schema.deletes else why


def with_keys(records: DataFrame, schema: OperatorSchema) -> DataFrame:
    """Returns the records that an operator applies, with its key in columns `key_names`.

    If it takes deletes, `_gone` says whether a record is one; of each key, the last delete and later records remain.
    """
    found = records.where(applied_sql(schema))
    keys = [f"{sql} AS _k{n}" for n, sql in enumerate(key_sql(schema))]
    if not schema.deletes:
        return _in_sessions(found.selectExpr("*", *keys), schema)
    last = f"max(CASE WHEN _gone THEN {_PLACE} END) OVER (PARTITION BY {', '.join(key_names(schema))}) AS _last_gone"
    placed = found.selectExpr("*", f"{_VALUELESS} AS _gone", *keys).selectExpr("*", last)
    return placed.where(f"_last_gone IS NULL OR {_PLACE} >= _last_gone")


def _in_sessions(records: DataFrame, schema: OperatorSchema) -> DataFrame:
    """Gives records of a key that belong to one session its bounds, if the operator has sessions."""
    if schema.window is None or not schema.window.is_merged:
        return records
    *own, start, end = key_names(schema)
    others = ", ".join(f"`{name}`" for name in records.columns if name not in (start, end))
    sessions = spark(merged_sql("{rows}", own, (start, end), others))
    return records.sparkSession.sql(f"SELECT * FROM {sessions}", rows=records)  # noqa: S608  (names of columns)


def key_sql(schema: OperatorSchema) -> list[str]:
    """Returns the expressions of an operator's key columns over its records."""
    columns = _key_columns(schema)
    if not schema.deletes or schema.has_row_keys:
        return columns
    return [f"CASE WHEN {_VALUELESS} THEN {_column(schema, n)[1]} ELSE {sql} END" for n, sql in enumerate(columns)]


def key_names(schema: OperatorSchema) -> list[str]:
    """Returns the columns in which `with_keys` puts the key."""
    return [f"_k{n}" for n in range(len(schema.keys))]


def _is_whole(schema: OperatorSchema) -> str:
    """Returns the condition that the message key is text, and if it is JSON, one array or object of all columns."""
    if len(schema.keys) == 1:
        pattern = _WHOLE.get(schema.keys[0].type.kind)
        text = f"is_valid_utf8({_TEXT})"
        return f"{text} AND {matches_sql(_TEXT, pattern)}" if pattern else text
    parsed = parsed_sql(_TEXT)
    root = f"try_variant_get({parsed}, '$[0]', 'variant')"
    is_array = f"size(try_variant_get({root}, '$', 'array<variant>')) = {len(schema.keys)}"
    shape = f"coalesce(startswith(schema_of_variant({root}), 'OBJECT<') OR {is_array}, false)"
    return f"{is_text_sql(_TEXT)} AND {is_sealed_sql(parsed, _TEXT)} AND {shape}"


def _column(schema: OperatorSchema, n: int) -> tuple[str, str]:
    """Returns (why the n-th key column does not fit, its value)."""
    key = schema.keys[n]
    if len(schema.keys) > 1:
        places = (f"try_variant_get({parsed_sql(_TEXT)}, '$[0]{at}', 'variant')" for at in (f"[{n}]", f".{key.name}"))
        return scalar_sql(f"coalesce({', '.join(places)})", key.name, key.type)
    variant = f"try_parse_json({_TEXT})" if key.type.kind in _WHOLE else f"CAST({_TEXT} AS VARIANT)"
    return scalar_sql(variant, key.name, key.type)


_KIND = "CASE WHEN NOT _was_deleted THEN 'operand' WHEN _has_records THEN 'value' ELSE 'tombstone' END"
_LETTER = dict(DEAD_LETTER_COLUMNS)
_NO_HEADERS = f"CAST(NULL AS {_LETTER['headers']}) AS headers"
_POSITION = ("topic", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """The rule for event times in the future: those later than logical time + `max_future`."""

    logical_time_ms: int
    max_future: timedelta

    @property
    def limit_us(self) -> int:
        """The last event time that is not in the future, in microseconds."""
        return self.logical_time_ms * 1000 + self.max_future // timedelta(microseconds=1)


def as_argument(number: int, varying: str) -> str:
    """Returns a BIGINT that differs between plans as an expression that generated code takes as an argument (adr/0011).

    Spark writes a number into generated code as a constant, so it would compile the code again for every plan and run
    it cold. It passes arrays as arguments. A varying index keeps Spark from looking the element up beforehand.

    Args:
        number: a number of the plan.
        varying: a column of whole numbers.
    """
    return f"array(CAST({number} AS BIGINT))[CAST(coalesce(pmod({varying}, 1), 0) AS INT)]"


def decode(
    raw: DataFrame,
    pipeline: Pipeline,
    plan: CheckpointPlan,
    name: str,
    format: RecordFormat | None = None,
    *,
    reports: bool = False,
) -> DataFrame:
    """Returns one row per record: position, `event_time`, `record`, `_reason`, `_bytes`.

    `_reason` is null if the record is good for every operator whose key is not null. Only dead letters have key and
    value.

    Args:
        raw: the raw records of one input.
        pipeline: the declaration.
        plan: the plan.
        name: name of the input.
        format: the format of its source with the schemas to decode by; None = the values name no schemas.
        reports: whether the workers that decode report spans of offsets in the column `SPANS`.
    """
    source = pipeline.inputs[name]
    lateness = Lateness(logical_time_ms=plan.logical_time_ms, max_future=pipeline.max_future)
    here = [f"`{name}`" for name in _POSITION]
    headers = has_headers(source.schema)
    kept = [*here, "key", "value", *(["headers"] if headers else [])]
    keyed = [*kept, *([ROW_KEY] if source.format.has_changes else []), *([SPANS] if reports else [])]
    event_time = _event_time(source, is_broadcast=name not in pipeline.sources)
    future = f"event_time > timestamp_micros({as_argument(lateness.limit_us, 'offset')})"
    late = f"CASE WHEN {FAULT} IS NULL AND {future} THEN '{Reason.IN_THE_FUTURE.value}' ELSE {FAULT} END"
    good = f"CASE WHEN {FAULT} IS NULL THEN {GOOD} END AS record"
    unusable = " OR ".join(["_reason IS NOT NULL", *_doubts(pipeline, plan, name)])
    size = "coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0)"
    count = sum(within.span for within in plan.ranges_of(name).values())
    path = () if source.event_time is None else tuple(source.event_time.split("."))
    times = EventTimes(path, lateness.limit_us) if reports else None
    found = _decoded(raw.selectExpr(*kept), format or source.format, source.schema, keyed, (count, times))
    decoded = (
        (_with_parsed_key(found) if source.format.has_changes else found)
        .selectExpr(*keyed, FAULT, good, f"{event_time} AS event_time")
        .selectExpr(*keyed, "event_time", f"{late} AS _reason", "record")
    )
    computing = [s for s in (plan.schemas[uid] for uid in pipeline.readers(name)) if not s.is_decided_by_joins]
    own = [column.rpartition(" AS ")[2] for schema in computing for column in _computations(schema, plan)]
    return with_computed(decoded, computing, plan).selectExpr(
        *here,
        "event_time",
        "CASE WHEN _reason IS NULL THEN record END AS record",
        "_reason",
        f"CAST({size} AS BIGINT) AS _bytes",
        f"CASE WHEN {unusable} THEN key END AS key",
        f"CASE WHEN {unusable} THEN value END AS value",
        f"CASE WHEN {unusable} THEN headers END AS headers" if headers else _NO_HEADERS,
        *([SPANS] if reports else []),
        *own,
    )


def _decoded(
    raw: DataFrame, format: RecordFormat, record: FieldType, kept: Sequence[str], of: tuple[int, EventTimes | None]
) -> DataFrame:
    """Decodes the value by its format, and adds the fields that Kafka itself has."""
    payload = split_payload(record)
    if payload.fields:
        return with_envelope(decode_values(raw, format, payload, *of), record, kept)
    fault = f"CASE WHEN value IS NULL THEN '{Reason.NULL_VALUE.value}' END AS {FAULT}"
    return with_envelope(raw.selectExpr("*", fault), record, kept)


def _doubts(pipeline: Pipeline, plan: CheckpointPlan, name: str) -> list[str]:
    """Yields conditions under which a good record is a dead letter of some operator, so that its raw bytes are kept."""
    schemas = [plan.schemas[uid] for uid in pipeline.readers(name)]
    # Whether a function fails, or a joined key is null, is known only later. Filtered records are no dead letters.
    if pipeline.may_fail(name) or any(s.is_decided_by_joins for s in schemas):
        return ["true"]
    return [f"({refused_sql(s)})" for s in schemas]


def _event_time(source: KafkaSource, *, is_broadcast: bool) -> str:
    if source.event_time is not None:
        return f"{GOOD}." + ".".join(f"`{step}`" for step in source.event_time.split("."))
    # All rows of a broadcast topic get one time: only offsets then decide which row is the latest.
    return "timestamp_millis(0)" if is_broadcast else "timestamp"


def fold(
    records: DataFrame, schema: OperatorSchema, plan: CheckpointPlan, now: Now, *, emitted: bool = False
) -> DataFrame:
    """Returns the run of an operator: one row per touched key, with merge operands or the state after a delete.

    Args:
        records: records of its input.
        schema: its stored schema.
        plan: the plan.
        now: the clocks after the batch: state that has expired by then does not count against a limit.
        emitted: whether a process emitted the records.
    """
    rows = with_keys(records, schema).selectExpr("*", f"{access_sql(schema, plan)} AS _at")
    rows = rows.withColumn("event_time", F.expr("timestamp_millis(0)")) if schema.has_row_keys else rows
    rows = _with_cuts(rows, schema)
    found = [pair for f in schema.fields for pair in partials(f, _only(f, schema), emitted=emitted)]
    aggregates = [F.expr(spark(sql)).alias(name) for name, sql in found]
    aggregates += [F.expr(f"bool_or(_from{f.ttl.ms} > _least)").alias(f"{f.name}__cut") for f in _cut(schema) if f.ttl]
    aggregates += [F.expr(f"{sql} AS {name}") for name, sql in _accesses(schema)]
    keys = [F.col(k).alias(key.name) for k, key in zip(key_names(schema), schema.keys, strict=True)]
    return rows.groupBy(*keys).agg(*aggregates).selectExpr(*map(spark, _run_columns(schema, plan, now)))


def _accesses(schema: OperatorSchema) -> list[tuple[str, str]]:
    """Returns columns with the first and last access of a key in the batch, and what follows its last delete."""
    if not schema.deletes:
        return [("_first_at", "min(_at)"), ("_last_at", "max(_at)")]
    kept = "FILTER (WHERE NOT _gone)"
    times = [
        (name, f"coalesce({of}(_at) {kept}, {of}(_at))") for name, of in (("_first_at", "min"), ("_last_at", "max"))
    ]
    return [*times, ("_was_deleted", "bool_or(_gone)"), ("_has_records", "bool_or(NOT _gone)")]


def access_sql(schema: OperatorSchema, plan: CheckpointPlan) -> str:
    """Returns when a record accesses the state of its key, in milliseconds on the operator's clock."""
    if schema.clock == "logical_time":
        return as_argument(plan.logical_time_ms, "offset")
    at = (
        "unix_millis(CASE WHEN _gone THEN `timestamp` ELSE event_time END)"
        if schema.deletes
        else "unix_millis(event_time)"
    )
    if plan.caps_event_time:
        at = f"least({at}, {as_argument(plan.logical_time_ms, 'offset')})"
    return at if plan.watermark_ms is None else f"greatest({at}, {as_argument(plan.watermark_ms, 'offset')})"


def _with_cuts(rows: DataFrame, schema: OperatorSchema) -> DataFrame:
    """Adds, per ttl, where the history of a key begins in this batch: after the last gap of at least that length.

    On logical time all records of a batch have the same access time, so there is no gap.
    """
    if not _cut(schema):
        return rows
    keys = ", ".join([*key_names(schema), *(["_gone"] if schema.deletes else [])])
    over = f"OVER (PARTITION BY {keys})"
    rows = rows.selectExpr("*", f"lag(_at) OVER (PARTITION BY {keys} ORDER BY _at) AS _before")
    starts = [
        f"coalesce(max(CASE WHEN _at - _before >= {ms} THEN _at END) {over}, min(_at) {over}) AS _from{ms}"
        for ms in sorted({f.ttl.ms for f in _cut(schema) if f.ttl})
    ]
    return rows.selectExpr("*", *starts, f"min(_at) {over} AS _least")


def _cut(schema: OperatorSchema) -> list[StoredField]:
    return [f for f in schema.fields if f.is_cut]


def _only(field: StoredField, schema: OperatorSchema) -> str:
    conditions = ["NOT _gone"] if schema.deletes else []
    conditions += [f"_at >= _from{field.ttl.ms}"] if field.is_cut and field.ttl else []
    return " AND ".join(conditions)


def _run_columns(schema: OperatorSchema, plan: CheckpointPlan, now: Now) -> list[str]:
    at = now.of(schema.clock)
    held = {name: sql for f in schema.fields for name, sql in f.fold_kind.run_columns(f, schema.keys, at).items()}
    own = {
        "_first_at": "nullif(_first_at, _last_at)",
        "_kind": _KIND if schema.deletes else "'operand'",
        "_changed": as_argument(plan.id, "_last_at"),
        "_key_group": key_group_sql(schema),
        **held,
    }
    return [f"{own.get(name, quote(name))} AS {quote(name)}" for name, _ in run_columns(schema)]


def dead_letters(
    records: DataFrame, schema: OperatorSchema, emitted: FieldType | None, at: str = "record"
) -> DataFrame:
    """Returns the records that an operator could not apply, in `letter_columns`."""
    refused = records.where(refused_sql(schema))
    return refused.selectExpr(*letter_columns(schema.uid, reason_sql(schema), emitted, at))


def letter_columns(uid: str, reason: str, emitted: FieldType | None, at: str = "record") -> list[str]:
    """Returns the columns of a dead letter over a record.

    Args:
        uid: the operator.
        reason: expression of the reason.
        emitted: the struct of its records if another operator emits them. They are a further column, `record`, from
            which `encode_emitted` makes the value.
        at: where an emitted record is.
    """
    here = ["topic", "CAST(`partition` AS INT) AS `partition`", "`offset`", "`timestamp`"]
    own = [f"'{uid}' AS uid", f"{reason} AS reason", "key", "value"]
    if emitted is None:
        return [*here, *own, "headers", f"CAST(NULL AS {_LETTER['path']}) AS path"]
    own.append(_NO_HEADERS)
    fields = ", ".join(f"'{name}', {at}.`{name}`" for name, _ in emitted.fields)
    return [*here, *own, "_path AS path", f"CASE WHEN {at} IS NOT NULL THEN named_struct({fields}) END AS record"]


def decode_emitted(letters: DataFrame, record: FieldType) -> DataFrame:
    """Returns dead letters of an operator that another one feeds as the records that it got.

    Args:
        letters: rows of the dead-letter table.
        record: the struct of the records, as the operator that feeds it is declared now.
    """
    kept = ("topic", "`partition`", "`offset`", "`timestamp`", "key", "value", "path")
    here = ("topic", "`partition`", "`offset`", "path AS _path", "`timestamp`", "`timestamp` AS event_time")
    good = (f"CASE WHEN {FAULT} IS NULL THEN {GOOD} END AS record", f"{FAULT} AS _reason", "key")
    raw = f"CASE WHEN {FAULT} IS NOT NULL THEN value END AS value"
    return decode_values(letters.selectExpr(*kept), EMITTED_FORMAT, record).selectExpr(*here, *good, raw)
