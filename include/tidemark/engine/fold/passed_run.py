"""The run of a fold with windows that was written while the batch was read, before the frontier was known (adr/0063).

It has rows of all windows that the records count in. If the batch closes some of them, these rows would only be dead
weight in the state: then a second run replaces it, with the rows that stay open.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from pyarrow import fs
from pyspark.sql import DataFrame

from tidemark.engine.state.state_files import SparkWarehouse
from tidemark.engine.write.parquet_writer import RunFolder, paths_of
from tidemark.model.checkpoint.manifest import WrittenRun
from tidemark.model.schema.event_windows import to_ms
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.model.state.closed_files import least_end


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedRun:
    """A run that no commit names yet.

    Attributes:
        warehouse: the warehouse, with the session of the attempt.
        schema: the stored schema.
        folder: its folder, relative to the warehouse.
        written: its files.
    """

    warehouse: SparkWarehouse
    schema: OperatorSchema
    folder: str
    written: WrittenRun

    def rows(self) -> DataFrame:
        """Returns its rows, read from its files."""
        if not self.written.files:
            return self.warehouse.rows_of(self.schema, ())
        return self.warehouse.files(self.schema, self.paths)

    def outlives(self, frontier: int) -> bool:
        """Whether no row ends by a frontier, according to the statistics of the files."""
        ends = [least_end(file.stats) for file in self.written.files]
        return all(end is not None and to_ms(end) > frontier for end in ends)

    @property
    def paths(self) -> Sequence[str]:
        """The files, relative to the warehouse."""
        return paths_of(self.written, self.folder)

    def replaced_in(self, target: RunFolder) -> RunFolder:
        """Returns the same folder as the target of a run that replaces this one."""
        return replace(target, replaces=frozenset(file.path.rpartition("/")[2] for file in self.written.files))

    def discard(self) -> None:
        """Deletes the files, after whatever read them. What stays there is deleted as any file without a reference."""
        system = self.warehouse.arrow() or fs.LocalFileSystem()
        for path in self.paths:
            with suppress(OSError):
                system.delete_file(f"{self.warehouse.root}/{path}".rpartition("://")[2])
