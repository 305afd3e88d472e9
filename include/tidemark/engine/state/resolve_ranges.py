"""Resolves a state in Spark's Python workers, a range of key groups in each; Spark only collects the rows (adr/0019).

Nothing is shuffled or broadcast, because all rows of a key have its key group. The caller supplies the reader of a
range. Whether the workers of a session can do this is found out by asking one of them (adr/0069).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidemark.engine.process.subtasks import parallelism
from tidemark.model.kinds.base.sql import quote, spark
from tidemark.model.schema.key_groups import KeyGroupRange, key_group_ranges
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.sql.resolve import empty_columns

RangeReader = Callable[[KeyGroupRange], Iterator[pa.RecordBatch]]
"""Yields the resolved rows of a range of key groups; pickled to travel to workers."""
FEWEST, MOST = 500_000, 8_000_000
"""Stored rows per task: with fewer, starting a task costs more than its work; with more, its memory is unbounded."""


_SEEN: WeakKeyDictionary[SparkSession, dict[str, bool]] = WeakKeyDictionary()
"""Per session and warehouse, whether its workers can read it."""


def resolved_by_ranges(
    session: SparkSession,
    schema: OperatorSchema,
    rows: int,
    reader: RangeReader,
    groups: Sequence[int] | None = None,
) -> DataFrame:
    """Returns one row per live key, like `resolve_sql.resolve_state`; the schema says that every column may be null.

    Args:
        session: classic or Connect; its Python workers need this release of Tidemark, and what the reader needs.
        schema: the operator's stored schema.
        rows: number of stored rows.
        reader: resolves one range.
        groups: the only key groups to read, in order; None = all. A range may have others between them.
    """
    ranges = _ranges(session, schema, rows, groups)
    columns = ", ".join(f"{quote(name)} {sql}" for name, sql in empty_columns(schema))
    numbers = session.range(0, len(ranges), 1, max(1, len(ranges)))
    return numbers.mapInArrow(partial(_read_ranges, reader, ranges), spark(columns))


def workers_see(session: SparkSession, root: str, file: str, needed: Callable[..., RangeReader]) -> bool:
    """Whether the Python workers of a session can resolve the states of a folder.

    Only those on the driver's machine are asked, by a job with one small task: on a cluster, an answer of one worker
    says nothing about the others. The answer is kept for the session.

    Args:
        session: classic or Connect.
        root: the folder.
        file: path of a file in it, which this process sees.
        needed: makes the readers; a worker has to import it, with its libraries.
    """
    answers = _SEEN.setdefault(session, {})
    if root not in answers:
        answers[root] = _is_local(session) and _ask_worker(session, file, needed)
    return answers[root]


def _is_local(session: SparkSession) -> bool:
    return str(session.conf.get("spark.master", "")).startswith("local")


def _ask_worker(session: SparkSession, file: str, needed: Callable[..., RangeReader]) -> bool:
    asked = session.range(0, 1, 1, 1).mapInArrow(partial(_sees, needed, _release(), file), "sees BOOLEAN")
    try:
        return bool(asked.collect()[0][0])
    except PySparkException:  # it has no Tidemark or DuckDB, or another release
        return False


def _sees(_needed: object, release: str, file: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        sees = _release() == release and Path(file).is_file()
        yield pa.RecordBatch.from_pydict({"sees": pa.array([sees] * batch.num_rows, pa.bool_())})


def _release() -> str:
    try:
        return version("tidemark")
    except PackageNotFoundError:
        return ""


def _ranges(
    session: SparkSession, schema: OperatorSchema, rows: int, groups: Sequence[int] | None
) -> tuple[KeyGroupRange, ...]:
    if groups is None:
        return key_group_ranges(schema.key_groups, _tasks(session, schema, rows))
    if not groups:
        return ()
    held = math.ceil(rows * len(groups) / schema.key_groups)
    parts = key_group_ranges(len(groups), min(len(groups), _tasks(session, schema, held)))
    return tuple(KeyGroupRange(groups[part.first], groups[part.last]) for part in parts)


def _read_ranges(
    reader: RangeReader, ranges: Sequence[KeyGroupRange], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from reader(ranges[number])


def _tasks(session: SparkSession, schema: OperatorSchema, rows: int) -> int:
    """Returns one task per core if each has enough work, more for a large state, at most one per key group."""
    wide = max(1, min(parallelism(session, schema), math.ceil(rows / FEWEST)))
    return min(wide * math.ceil(max(rows, 1) / (wide * MOST)), schema.key_groups)
