"""Stored rows of handles: the changed keys, where a key is, all rows of a key; reads no column without need.

Files are sorted by (`_key_group`, key), so the bounds of a row group exclude keys.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.kinds.base.sql import key_columns
from tidemark.model.schema.operator_schema import OperatorSchema, run_columns
from tidemark.readers.duckdb_session import QueryRunner, translate_duckdb_errors
from tidemark.readers.state_reader import files_of
from tidemark.storage.local_store import Root, join_path
from tidemark.tables.delta_tables import arrow_schema
from tidemark.tables.row_groups import PLACE, NumberedFile, RowGroups, above, among, every, select_row_groups

_DOUBTFUL = "bool_or(_kind NOT IN ('operand', 'value')) AS _doubtful"
"""A row of another kind may end its key; only the resolving query can decide whether that key lives."""


@dataclass
class StoredRows:
    """The files of some handles of one operator, each file once.

    Attributes:
        warehouse: root of all tables.
        schema: the operator's stored schema.
        over: runs queries over Arrow tables.
        read: reads, and counts bytes.
    """

    warehouse: Root
    schema: OperatorSchema
    over: QueryRunner
    read: RowGroups = field(default_factory=RowGroups)
    _files: dict[str, NumberedFile] = field(default_factory=dict)

    def files(self, handle: StateHandle) -> list[NumberedFile]:
        """Returns the files of a handle, oldest first.

        Raises:
            StoreError: a version or a file of the handle is missing.
        """
        found = []
        for segment, live in files_of(self.warehouse, handle):
            path = join_path(self.warehouse, segment.path, live.path)
            found.append(self._files.setdefault(str(path), NumberedFile(len(self._files), path, live)))
        return sorted(found, key=lambda f: (f.live.checkpoint, -f.live.level))

    def changed_since(self, checkpoint: int, files: Iterable[NumberedFile]) -> pa.Table:
        """Returns keys that a checkpoint later than `checkpoint` changed: key columns, `_key_group`, `_here`.

        `_here` says whether the key lives, which its newest row decides: every change of a key writes a row of the key
        itself, a tombstone if nothing is left of it (ADR 0070). Values that expire and windows that close are ignored.

        It opens only files that can contain such rows, and reads only the columns that it needs to decide.
        """
        pick = above("_changed", checkpoint)
        newer = [f for f in files if f.live.checkpoint > checkpoint]
        entry = ("_field",) if self.schema.maps else ()
        rows = self._stream(("_changed", "_kind", "_key_group", *entry), newer, pick)
        own = " FILTER (WHERE _field IS NULL)" if entry else ""
        found = f"any_value(_key_group) AS _key_group, arg_max(_kind, _changed){own} <> 'tombstone' AS _here"
        return self.ask(
            f"SELECT {{keys}}, {found} FROM rows WHERE _changed > {checkpoint} GROUP BY {{keys}}", rows=rows
        )

    def all_keys(self, files: Iterable[NumberedFile]) -> pa.Table:
        """Returns every key that has a row: key columns, `_key_group`."""
        rows = self._stream(("_key_group",), files, every)
        return self.ask("SELECT DISTINCT {keys}, _key_group FROM rows", rows=rows)

    def hits(self, wanted: pa.Table, files: Iterable[NumberedFile]) -> pa.Table:
        """Returns the locations of rows of wanted keys: key columns, `_file`, `_row_group`, `_doubtful`.

        Args:
            wanted: key columns and `_key_group`.
            files: the files to search.
        """
        groups = set(wanted["_key_group"].to_pylist())
        rows = self._stream(("_kind",), files if groups else (), select_row_groups("_key_group", groups))
        place = "{keys}, _file, _row_group"
        sql = f"SELECT {place}, {_DOUBTFUL} FROM rows SEMI JOIN wanted USING ({{keys}}) GROUP BY {place}"
        return self.ask(sql, rows=rows, wanted=wanted)

    def rows(self, wanted: pa.Table, places: pa.Table) -> pa.Table:
        """Returns all columns of the rows of wanted keys, and `_file`; reads the whole row groups at `places`."""
        chosen: dict[int, set[int]] = {}
        for place in places.select(PLACE.names).to_pylist():
            chosen.setdefault(place["_file"], set()).add(place["_row_group"])
        files = [f for f in self._files.values() if f.number in chosen]
        schema = self.read.schema_of(files[0]) if files else arrow_schema(run_columns(self.schema))
        parts = ((f, among(chosen[f.number])) for f in files)
        rows = self.read.stream(parts, schema, whole=True)
        return self.ask("FROM rows SEMI JOIN wanted USING ({keys})", rows=rows, wanted=wanted)

    def ask(self, sql: str, **tables: Any) -> pa.Table:
        """Returns the rows of a query over named Arrow tables; `{keys}` in it becomes the key columns.

        Raises:
            StoreError: a file cannot be read.
        """
        with translate_duckdb_errors(f"state of {self.schema.uid} cannot be read"):
            return self.over(sql.replace("{keys}", ", ".join(key_columns(self.schema))), **tables)

    def _stream(self, columns: Sequence[str], files: Iterable[NumberedFile], pick: Any) -> pa.RecordBatchReader:
        declared = arrow_schema(run_columns(self.schema))
        names = [*(k.name for k in self.schema.keys), *columns]
        return self.read.stream(((f, pick) for f in files), pa.schema([declared.field(name) for name in names]))
