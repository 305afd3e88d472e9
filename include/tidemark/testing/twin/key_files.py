"""Keys in the files of `MemoryTables`: the twin of `adapters.key_files`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.errors import StoreError
from tidemark.model.retention.erasure import ErasedKey
from tidemark.model.retention.letter_keys import belongs_to
from tidemark.ports import LiveFile, WrittenFile
from tidemark.testing.twin.tables import MemoryTables, Row


@dataclass(frozen=True)
class MemoryKeyFiles:
    """Implements `ports.KeyFiles` over `MemoryTables`."""

    tables: MemoryTables

    def rows_of(self, table: str, file: LiveFile, key: ErasedKey) -> int:
        """See `ports.KeyFiles`."""
        return sum(_is_of(table, row, key) for row in self._rows(table, file))

    def without(
        self, table: str, files: Sequence[LiveFile], key: ErasedKey, folder: str
    ) -> Mapping[str, WrittenFile | None]:
        """See `ports.KeyFiles`."""
        made: dict[str, WrittenFile | None] = {}
        for n, f in enumerate(files):
            left = tuple(row for row in self._rows(table, f) if not _is_of(table, row, key))
            name = f"{folder.rpartition('/')[2]}/part-{n:05d}.parquet"
            made[f.path] = None
            if left:
                self.tables.files[f"{table}/{name}"] = left
                made[f.path] = WrittenFile(path=name, size=64 * len(left), rows=len(left), stats="{}")
        return made

    def mentions(self, table: str, file: LiveFile, columns: Mapping[str, object]) -> int:
        """See `ports.KeyFiles`."""
        key = ErasedKey(columns=tuple(columns), values=tuple(columns.values()), groups=())
        return self.rows_of(table, file, key)

    def _rows(self, table: str, file: LiveFile) -> Sequence[Row]:
        path = f"{table}/{file.path}"
        if path not in self.tables.files:
            raise StoreError(f"cannot read {path} any more", next="repeat the erasure.")
        return self.tables.files[path]


def _is_of(table: str, row: Row, key: ErasedKey) -> bool:
    columns = dict(zip(key.columns, key.values, strict=True))
    if table.split("/")[1] == "dead_letters":
        raw, value = (part if isinstance(part := row.get(name), bytes) else None for name in ("key", "value"))
        headers: Any = row.get("headers") or ()
        return belongs_to(raw, value, columns, [h["value"] for h in headers])
    if key.uids and "_uid" in row and row["_uid"] not in key.uids:
        return False
    return all(name in row and row[name] == value for name, value in columns.items())
