"""The resolving query with its sources, as one text that another engine runs without Tidemark."""

from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.segments import Segment
from tidemark.model.kinds.base.sql import quote
from tidemark.model.portable_sql.dialects import DUCKDB, DUCKDB_MACROS, SPARK, Dialect
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.readers.duckdb_session import literal
from tidemark.readers.state_reader import files_of
from tidemark.sql.resolve import empty_columns, mapped_sql, stored_columns
from tidemark.storage.local_store import Root, join_path, spark_root


def spark_query(warehouse: Root, checkpoint: Checkpoint, uid: str, query: str) -> str:
    """Returns the query for Spark with Delta's extension: each segment's table at its version, cut to its range.

    Args:
        warehouse: root of all tables.
        checkpoint: the checkpoint.
        uid: the operator.
        query: the resolving query over `segments`.
    """
    schema, handle = checkpoint.plan.schemas[uid], checkpoint.handles[uid]
    if not handle:
        return _nothing(checkpoint, uid, "`")
    parts = [_spark_part(schema, s, spark_root(warehouse)) for s in handle]
    return _whole(checkpoint, uid, parts, query)


def duckdb_query(warehouse: Root, checkpoint: Checkpoint, uid: str, query: str) -> str:
    """Returns the query for DuckDB without Delta: the Parquet files of each segment; otherwise like `spark_query`.

    Raises:
        StoreError: a version or a file of the handle is missing.
    """
    schema, handle = checkpoint.plan.schemas[uid], checkpoint.handles[uid]
    if not handle:
        return _nothing(checkpoint, uid, '"')
    files: dict[Segment, list[str]] = {segment: [] for segment in handle}
    for segment, live in files_of(warehouse, handle):
        files[segment].append(literal(str(join_path(warehouse, segment.path, live.path))))
    parts = [
        _selected(schema, s, "read_parquet([\n    " + ",\n    ".join(paths) + "\n  ])", DUCKDB)
        for s, paths in files.items()
        if paths
    ]
    whole = _whole(checkpoint, uid, parts, query)
    return f"{DUCKDB_MACROS};\n{whole}" if "raise_error(" in query else whole


def _spark_part(schema: OperatorSchema, s: Segment, warehouse: str) -> str:
    table = f"delta.`{warehouse}/{s.path}` VERSION AS OF {s.version}"
    if schema.layout(s.path) is not None:
        # A version can only be given in FROM, and the mapping may add its own condition.
        table = f"(SELECT * FROM {table} WHERE `_checkpoint` > {s.after} AND `_checkpoint` <= {s.through})"
        return _selected(schema, s, table, SPARK)
    return f"{_selected(schema, s, table, SPARK)}\n  WHERE `_checkpoint` > {s.after} AND `_checkpoint` <= {s.through}"


def _selected(schema: OperatorSchema, s: Segment, source: str, dialect: Dialect) -> str:
    if schema.layout(s.path) is not None:
        return "  " + mapped_sql(schema, s.path, source, dialect)
    return f"  SELECT {', '.join(dialect.text(quote(name)) for name in stored_columns(schema))}\n  FROM {source}"


def _whole(checkpoint: Checkpoint, uid: str, parts: list[str], query: str) -> str:
    united = "\n  UNION ALL\n".join(parts)
    return f"{_head(checkpoint, uid)}WITH segments AS (\n{united}\n)\n{query}"


def _head(checkpoint: Checkpoint, uid: str) -> str:
    sources = [
        f"-- {s.path} at version {s.version}, checkpoints ({s.after}, {s.through}]\n" for s in checkpoint.handles[uid]
    ]
    return f"-- {checkpoint.plan.pipeline}: state of {uid} at {checkpoint.plan.name}\n{''.join(sources)}"


def _nothing(checkpoint: Checkpoint, uid: str, quote: str) -> str:
    columns = ", ".join(f"NULL AS {quote}{n}{quote}" for n, _ in empty_columns(checkpoint.plan.schemas[uid]))
    return f"{_head(checkpoint, uid)}SELECT {columns} WHERE false"
