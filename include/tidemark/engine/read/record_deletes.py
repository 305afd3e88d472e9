"""Records without a value delete the key in their message key; no Python code runs per record.

For one key column the message key is its text: as it is for a string, in its JSON or ISO-8601 form for other types. For
several columns it is a JSON array of them in order, or an object by their names.
"""

from pyspark.sql import DataFrame

from tidemark.formats.json_sql import is_sealed_sql, is_text_sql, matches_sql, parsed_sql, scalar_sql
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.kinds.base.sql import record_path
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.sql.fold_columns import spark

_TEXT = "CAST(key AS STRING)"
_WHOLE = {"int": "-?(0|[1-9][0-9]*)", "bool": "true|false"}
_VALUELESS = f"_reason <=> '{Reason.NULL_VALUE.value}'"
_PLACE = "struct(topic, `partition`, `offset`)"


def applied_sql(schema: OperatorSchema) -> str:
    """Returns the condition that an operator applies a record; never null."""
    keyed = " AND ".join(f"{spark(record_path(k.source))} IS NOT NULL" for k in schema.keys)
    good = f"_reason IS NULL AND {keyed}"
    return f"(({good}) OR ({deleted_sql(schema)}))" if schema.deletes else good


def deleted_sql(schema: OperatorSchema) -> str:
    """Returns the condition that a record is a delete and its message key is a key of the operator."""
    named = [f"({_column(schema, n)[0]}) IS NULL" for n in range(len(schema.keys))]
    return " AND ".join([_VALUELESS, "key IS NOT NULL", _is_whole(schema), *named])


def reason_sql(schema: OperatorSchema) -> str:
    """Returns why a record that an operator does not apply is a dead letter."""
    why = f"coalesce(_reason, '{Reason.NULL_KEY.value}')"
    return f"CASE WHEN {_VALUELESS} THEN '{Reason.BAD_KEY.value}' ELSE {why} END" if schema.deletes else why


def keyed(records: DataFrame, schema: OperatorSchema) -> DataFrame:
    """Returns the records that an operator applies, with its key in columns `key_names`.

    If it takes deletes, `_gone` says whether a record is one; of each key, the last delete and later records remain.
    """
    found = records.where(applied_sql(schema))
    keys = [f"{sql} AS _k{n}" for n, sql in enumerate(key_sql(schema))]
    if not schema.deletes:
        return found.selectExpr("*", *keys)
    last = f"max(CASE WHEN _gone THEN {_PLACE} END) OVER (PARTITION BY {', '.join(key_names(schema))}) AS _last_gone"
    placed = found.selectExpr("*", f"{_VALUELESS} AS _gone", *keys).selectExpr("*", last)
    return placed.where(f"_last_gone IS NULL OR {_PLACE} >= _last_gone")


def key_sql(schema: OperatorSchema) -> list[str]:
    """Returns the expressions of an operator's key columns over its records."""
    paths = [spark(record_path(k.source)) for k in schema.keys]
    if not schema.deletes:
        return paths
    return [f"CASE WHEN {_VALUELESS} THEN {_column(schema, n)[1]} ELSE {path} END" for n, path in enumerate(paths)]


def key_names(schema: OperatorSchema) -> list[str]:
    """Returns the columns in which `keyed` puts the key."""
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
