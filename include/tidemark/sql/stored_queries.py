"""The resolving query stored for every plan: texts that other engines fill in and run without Tidemark.

A text depends only on the stored schema, not on rows or a checkpoint, so it is put once, under its own hash. The texts
of an operator are called `duckdb` and `spark` for the query over the relation `segments`, and `<dialect>:<folder>` for
tables of an earlier stored schema: the query over the relation `segment` that turns a segment in that folder into rows
of the current schema. docs/how-to/read-state.md explains how to fill them in.
"""

import json
import re
from collections.abc import Mapping
from functools import lru_cache

from tidemark.model.core.canonical import sha256_of
from tidemark.model.core.ttl import Now
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.portable_sql.dialects import DUCKDB, SPARK, Dialect
from tidemark.sql.resolve import parametrised_sql, stored_columns
from tidemark.sql.schema_mapping import mapped_sql

_CLOCKS = {"event_time": "body.sealed.facts.watermark_ms", "logical_time": "body.plan.logical_time_ms"}
"""Location of each clock's value in a manifest."""


def stored_texts(schema: OperatorSchema) -> dict[str, str]:
    """Returns the texts of an operator by name; none in the dialect of an engine that cannot read it."""
    return dict(_texts(json.dumps(schema.to_json())))


@lru_cache(maxsize=256)
def _texts(stored: str) -> dict[str, str]:
    """Cached by the schema as in manifests, because the plans of a pipeline mostly have the same one."""
    schema = OperatorSchema.from_json(json.loads(stored))
    spark_only = any(f.aggregate is not None and f.aggregate.spark_only for f in schema.fields)
    made: dict[str, str] = {}
    for dialect in (SPARK,) if spark_only else (DUCKDB, SPARK):
        made[dialect.name] = _whole(schema, dialect)
        for older in schema.older:
            text = mapped_sql(schema, f"{older.folder}/runs", "segment", dialect)
            head = f"-- Rows of a relation `segment`, a table below {older.folder}, in the columns of today.\n"
            made[f"{dialect.name}:{older.folder}"] = f"{head}{text}\n"
    return made


def names_of(texts: Mapping[str, str]) -> dict[str, str]:
    """Returns the hash of each text."""
    return {name: sha256_of(text.encode()) for name, text in texts.items()}


def filled(text: str, now: Now, dialect: Dialect) -> str:
    """Returns a stored text with a checkpoint's clocks in place of its parameter, without its comments."""
    values = {"event_time_ms": now.event_time_ms, "logical_time_ms": now.logical_time_ms}
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    found = "\n".join(lines)
    for name, value in values.items():
        found = re.sub(rf"{re.escape(dialect.parameter(name))}\b", "NULL" if value is None else str(value), found)
    return found


def _whole(schema: OperatorSchema, dialect: Dialect) -> str:
    query = parametrised_sql(schema, "segments", dialect)
    clock = dialect.parameter(f"{schema.clock}_ms")
    head = [
        f"State of {schema.uid}: one row per live key, in the SQL of {dialect.name}.",
        "segments: a relation, the union of the operator's segments, each at its version and cut to its range;",
        f"its columns: {', '.join(stored_columns(schema))}.",
    ]
    if clock in query:
        head.append(f"{clock}: {_CLOCKS[schema.clock]} of the manifest, NULL where that is null.")
    return "".join(f"-- {line}\n" for line in head) + query + "\n"
