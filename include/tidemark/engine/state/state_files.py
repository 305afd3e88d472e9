"""The stored rows of state handles in Spark: reads the files by name, as plain Parquet.

The names come from the commits of the handle's versions (port `StateTables`) within milliseconds. Spark's own time
travel replays the log of each table in separate jobs, once per table and read, and refuses versions older than a week.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.engine.write.parquet_writer import ArrowSystem, RunFolder, this_machine
from tidemark.model.checkpoint.manifest import WrittenRun
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.core.ttl import Now
from tidemark.model.kinds.base.sql import quote, spark
from tidemark.model.portable_sql.dialects import SPARK
from tidemark.model.schema.key_groups import KeyGroupRange
from tidemark.model.schema.operator_schema import KeyColumn, OperatorSchema, run_columns
from tidemark.model.state.closed_files import open_groups
from tidemark.model.state.compaction import FilesOf, Group, groups_of
from tidemark.sql.resolve import mapped_sql, stored_columns, table_columns

KeyReader = Callable[[KeyGroupRange, pa.Table], pa.Table]
"""Returns the stored rows of some keys of a range of key groups, and of those with a due timer; pickled for workers.

The table has the key columns. Of each key only the newest rows are returned, and no tombstones.
"""
WorkerReader = Callable[[OperatorSchema, Sequence[Group], str], KeyReader]
"""Returns a reader of groups of a state. The text is a condition on rows of due timers, in DuckDB's SQL; "" = none."""


class CandidateReader(Protocol):
    """Reads small states of a candidate in this process."""

    def rows(
        self, schema: OperatorSchema, groups: Sequence[Group], files: Sequence[str], now: Now, at_most: int
    ) -> pa.Table:
        """Returns the resolved rows of stored groups and a run; see `readers.candidate_state`."""

    def refuse_overflow(self, schema: OperatorSchema, groups: Sequence[Group], files: Sequence[str], now: Now) -> None:
        """Raises if a key of a run, merged with its stored rows, is too large; see `readers.candidate_state`."""


_SMALL = 500_000
"""Up to this many keys are sent to every task, so that stored rows are filtered as they are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkWarehouse:
    """The warehouse as one Spark session sees it.

    Attributes:
        session: classic or Connect.
        root: root of all tables, as Spark names it.
        files_of: returns the files of a segment.
        arrow: returns the file system of the root for pyarrow; None = the local one. Called each time, because
            credentials are renewed.
        worker_reader: reads stored rows in Spark's workers; None = they may have no access to the files.
        write: writes rows of this process to a folder of the warehouse, given by its path; None = only Spark writes.
        candidate: reads small states in this process; None = only Spark reads.
    """

    session: SparkSession
    root: str
    files_of: FilesOf
    arrow: ArrowSystem = this_machine
    worker_reader: WorkerReader | None = None
    write: Callable[[str, pa.Table, str, Callable[[Path], WrittenRun]], WrittenRun] | None = None
    candidate: CandidateReader | None = None

    def reader_of(self, handle: StateHandle, held: int) -> WorkerReader | None:
        """Returns the reader with which workers look up keys themselves; None = Spark has to join.

        Workers hold keys and their rows in memory. Those of a cluster may lack libraries and the folder.

        Args:
            handle: the state.
            held: upper bound of the number of keys that workers hold at once.
        """
        if self.worker_reader is None or not handle or held > _SMALL:
            return None
        return self.worker_reader if str(self.session.conf.get("spark.master", "")).startswith("local") else None

    def folder(self, path: str) -> RunFolder:
        """Returns a folder for files, by its path relative to the warehouse."""
        write = None if self.write is None else partial(self.write, path)
        return RunFolder(path=f"{self.root}/{path}", arrow=self.arrow, write=write)

    def groups(self, handle: StateHandle) -> list[Group]:
        """Returns the files of a handle by run and compaction output, oldest first.

        Raises:
            StoreError: a version of the handle does not exist any more.
        """
        return groups_of(handle, self.files_of)

    def stored_rows(self, schema: OperatorSchema, handle: StateHandle, frontier: int | None = None) -> DataFrame:
        """Returns the stored rows of a handle with segments, in `stored_columns`.

        Args:
            schema: the stored schema.
            handle: the state.
            frontier: files are left out if all of their windows have closed by it; None = no file is.

        Raises:
            StoreError: a version of the handle does not exist any more.
        """
        return self.rows_of(schema, open_groups(schema, self.groups(handle), frontier))

    def stored_of(
        self,
        schema: OperatorSchema,
        handle: StateHandle,
        keys: DataFrame,
        at_most: int,
    ) -> DataFrame:
        """Returns the stored rows of some keys only; see `stored_rows`.

        Args:
            schema: the stored schema.
            handle: the state.
            keys: the columns `found_by` and `_key_group`, by which files are skipped; a key may occur more than once.
            at_most: upper bound of the number of rows of `keys`.

        Raises:
            StoreError: a version of the handle does not exist any more.
        """
        return rows_of_keys(self.stored_rows(schema, handle), keys, at_most, schema.found_by)

    def rows_of(self, schema: OperatorSchema, groups: Sequence[Group]) -> DataFrame:
        """Returns the stored rows of some groups, with one read for all files of one layout."""
        paths: dict[str, list[str]] = {}
        for group in groups:
            table = group.segment.path if schema.layout(group.segment.path) is not None else ""
            paths.setdefault(table, []).extend(f"{group.segment.path}/{f.path}" for f in group.files)
        if not any(paths.values()):
            columns = ", ".join(f"{quote(name)} {sql}" for name, sql in run_columns(schema))
            return self.session.createDataFrame([], spark(columns))
        return reduce(DataFrame.unionAll, (self.files(schema, found, table) for table, found in paths.items() if found))

    def files(self, schema: OperatorSchema, paths: Sequence[str], table: str = "") -> DataFrame:
        """Returns the stored rows of files.

        Args:
            schema: the stored schema.
            paths: paths of the files, relative to the warehouse.
            table: the table of the files, as a segment names it; without it the files have the columns of the schema.
        """
        columns = ", ".join(f"{quote(name)} {sql}" for name, sql in table_columns(schema, table))
        rows = self.session.read.schema(spark(columns)).parquet(*(f"{self.root}/{path}" for path in paths))
        if schema.layout(table) is None:
            return rows.selectExpr(*(spark(quote(name)) for name in stored_columns(schema)))
        mapped: DataFrame = self.session.sql(mapped_sql(schema, table, "{rows}", SPARK), rows=rows)
        return mapped


def rows_of_keys(rows: DataFrame, keys: DataFrame, at_most: int, by: Sequence[KeyColumn]) -> DataFrame:
    """Returns the stored rows of some keys only.

    Args:
        rows: stored rows.
        keys: the columns of `by` and `_key_group`; a key may occur more than once.
        at_most: upper bound of the number of rows of `keys`.
        by: the key columns.
    """
    names = ["_key_group", *(k.name for k in by)]
    wanted = F.broadcast(keys.select(*names)) if at_most <= _SMALL else keys.select(*names)
    return rows.join(wanted, names, "left_semi").select(*rows.columns)
