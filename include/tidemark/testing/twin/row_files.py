"""Merges of sinks and dead letters in `MemoryTables`: the twin of `tables.row_files`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidemark.errors import StoreError
from tidemark.model.checkpoint.row_tables import ROW_CHECKPOINT, RowTable
from tidemark.model.checkpoint.segments import Segment, StateHandle
from tidemark.ports import LiveFile, WrittenRun
from tidemark.testing.twin.tables import MemoryTables, Row


@dataclass(frozen=True)
class MemoryRowFiles:
    """Implements `ports.RowFiles` over `MemoryTables`; it writes one file, whatever the number of rows."""

    tables: MemoryTables

    def merge(
        self, table: RowTable, files: Sequence[tuple[Segment, LiveFile]], folder: str, rows_per_file: int
    ) -> WrittenRun:
        """See `ports.RowFiles`."""
        made = []
        for segment, f in files:
            sources = table.sources_of(segment.path)
            for at, row in rows_of_file(self.tables, segment, f):
                held = {name: row[name] if name in sources else None for name, _ in table.columns}
                made += [held | {ROW_CHECKPOINT: at}] if at > table.handle.expired else []
        return self.tables.write(folder, made)


def emitted_rows(tables: MemoryTables, handle: StateHandle) -> list[Row]:
    """Returns the rows of a sink or of dead letters, without those that have expired."""
    found = [held for s in handle for f in tables.files_of(s) for held in rows_of_file(tables, s, f)]
    return [
        {name: value for name, value in row.items() if name != ROW_CHECKPOINT}
        for at, row in found
        if at > handle.expired
    ]


def rows_of_file(tables: MemoryTables, segment: Segment, file: LiveFile) -> Iterator[tuple[int, Row]]:
    """Returns the rows of a file, each with the checkpoint that wrote it.

    Raises:
        StoreError: the file is missing.
    """
    path = f"{segment.path}/{file.path}"
    if path not in tables.files:
        raise StoreError(f"cannot read {path} any more", next="restore an older restore point.")
    for row in tables.files[path]:
        yield int(str(row.get(ROW_CHECKPOINT, file.checkpoint))), row
