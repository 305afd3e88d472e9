"""The state of an operator at a checkpoint, read without Spark."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark.context import Context
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.operations import queries, reads

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow as pa

    from tidemark.readers.state_hash import StateHash


@dataclass(frozen=True, slots=True)
class StateTable:
    """The state of an operator as of one checkpoint: a row per live key. Nothing is read before you ask.

    A row has the key columns, the fields of the state class, and `_changed`, the id of the last checkpoint that changed
    the key. Get one from `PipelineHistory.state`.

    Attributes:
        pipeline: the pipeline's name.
        uid: the operator.
        found: the checkpoint's manifest.

    Every method raises StoreError if a file or a version of the state is gone, StateOverflowError if the merged state
    of a key does not fit its type, and ReleasedError if retention has released the checkpoint meanwhile.

    >>> aircraft = w["flights"].state("aircraft", at="chk-2")
    >>> aircraft
    <state of aircraft at chk-2: tail_number, flights, distance, last_airport>
    """

    context: Context
    pipeline: str
    uid: str
    found: Checkpoint

    @property
    def checkpoint(self) -> str:
        """The checkpoint that it is as of: `chk-17`."""
        return self.found.plan.name

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Names of the key columns, in the order in which `get` takes their values."""
        return tuple(k.name for k in self.found.plan.schemas[self.uid].keys)

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields of the state class, in their declared order."""
        return tuple(f.name for f in self.found.plan.schemas[self.uid].fields)

    def get(self, *key: object) -> dict[str, Any] | None:
        """The row of one key; None if the key is unknown. Reads only the row groups that may hold it.

        Args:
            *key: a value for each key column, in the order of `key_columns`.

        Raises:
            UsageError: another number of values, or a value that does not fit its column.

        >>> w["flights"].state("aircraft").get("N14228")
        {'tail_number': 'N14228', 'flights': 3, 'distance': 3519, 'last_airport': 'IAH', '_changed': 3}
        >>> w["flights"].state("routes", at="chk-1").get("EWR", "IAH")
        {'origin': 'EWR', 'destination': 'IAH', 'flights': 1, '_changed': 1}
        >>> w["flights"].state("aircraft").get("N00000") is None
        True
        """
        texts = [str(value.value if isinstance(value, Enum) else value) for value in key]
        rows = reads.read_state(self.context, self.pipeline, self.uid, checkpoint=self.found.id, key=texts)
        found: list[dict[str, Any]] = rows.to_pylist()
        return found[0] if found else None

    def head(self, limit: int = 20) -> list[dict[str, Any]]:
        """The first rows in order of keys. Reads the whole state.

        >>> [row["tail_number"] for row in w["flights"].state("aircraft").head(2)]
        ['N14228', 'N24211']
        """
        rows = reads.read_state(self.context, self.pipeline, self.uid, checkpoint=self.found.id, limit=limit)
        found: list[dict[str, Any]] = rows.to_pylist()
        return found

    def to_arrow(self) -> "pa.Table":
        """All rows as an Arrow table, in no particular order.

        >>> w["flights"].state("aircraft").to_arrow().num_rows
        3
        """
        return reads.read_state(self.context, self.pipeline, self.uid, checkpoint=self.found.id)

    def to_pandas(self) -> "pd.DataFrame":
        """All rows as a pandas DataFrame, in no particular order; pandas must be installed.

        >>> frame = w["flights"].state("aircraft").to_pandas()
        >>> int(frame["flights"].sum())
        7
        """
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def duckdb(self) -> "duckdb.DuckDBPyConnection":
        """A DuckDB connection of your own, with the state as the view `<uid>`. A query reads only the needed parts.

        The connection is in memory and in UTC, and may do all that DuckDB can, such as joining your own files.

        Raises:
            UsageError: only Spark can read the state, because of an aggregate with `spark_only`.

        >>> connection = w["flights"].state("aircraft").duckdb()
        >>> connection.sql("select last_airport, count(*) from aircraft group by all order by all").fetchall()
        [('IAH', 1), ('JFK', 1), ('LGA', 1)]
        """
        return queries.connect_duckdb(self.context, self.found, self.uid)

    def sql(self, statement: str) -> "pa.Table":
        """The rows of one read-only statement, in DuckDB's dialect, as of this checkpoint.

        It may also name the other views of `tidemark state sql`: other operators, `<uid>_at(N)`, `checkpoints`.

        Raises:
            NotFoundError: it names an unknown view or checkpoint.
            UsageError: it is no read-only statement, or DuckDB refuses it.

        >>> w["flights"].state("aircraft", at="chk-1").sql("select count(*) as n from aircraft").to_pylist()
        [{'n': 2}]
        """
        return queries.run_sql(self.context, self.pipeline, statement, self.found.id)

    def query(self, dialect: str = "spark") -> dict[str, Any]:
        """The SQL that gives this state in another engine, with the table versions that it reads.

        Args:
            dialect: `spark` or `duckdb`.

        >>> found = w["flights"].state("aircraft", at="chk-1").query("duckdb")
        >>> found["checkpoint"], len(found["segments"]), "read_parquet" in found["sql"]
        ('chk-1', 1, True)
        """
        return queries.describe_query(self.context, self.pipeline, self.uid, dialect, self.found.id)

    def hash(self) -> "StateHash":
        """The hash of the state: equal if the same keys hold the same values. Floats and `_changed` are left out.

        >>> w["flights"].state("aircraft").hash().rows
        3
        """
        return queries.hash_state(self.context, self.pipeline, self.uid, self.found.id)[1]

    def export(self, file: str | Path) -> int:
        """Writes all rows to a new file, `.parquet` or `.csv`; returns the number of rows.

        Raises:
            UsageError: the file exists, or its folder does not.
            StoreError: it could not be written.

        >>> w["flights"].state("aircraft").export("aircraft.parquet")
        3
        """
        return reads.write_state_file(self.context, self.pipeline, self.uid, Path(file), checkpoint=self.found.id)

    def __repr__(self) -> str:
        return f"<state of {self.uid} at {self.checkpoint}: {', '.join([*self.key_columns, *self.fields])}>"
