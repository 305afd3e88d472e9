"""Files of the tables in dicts: the twin of `adapters.table_files`. A log has one name per version."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidemark.model.checkpoint.segments import LOG, log_version
from tidemark.model.retention.shared_state import StoredFile, TableFile, TableHistory
from tidemark.testing.twin.tables import MemoryTables

_ROW = 64
"""Bytes per row, as in `MemoryTables.write`."""


@dataclass(frozen=True)
class MemoryTableFiles:
    """Implements `ports.TableFiles` over `MemoryTables`."""

    tables: MemoryTables

    def files(self, folder: str) -> Sequence[StoredFile]:
        """See `ports.TableFiles`."""
        data = [StoredFile(path=path, bytes=_ROW * len(rows)) for path, rows in self.tables.files.items()]
        tables = self.tables.tables
        logs = [StoredFile(path=f"{t}/{LOG}/{name}", bytes=1) for t in tables for name in self._log(t)]
        return sorted((f for f in (*data, *logs) if f.path.startswith(f"{folder}/")), key=lambda f: f.path)

    def history(self, table: str) -> TableHistory:
        """See `ports.TableFiles`."""
        versions, oldest = self.tables.tables.get(table, []), self.tables.oldest.get(table, 0)
        found: list[TableFile] = []
        open_: dict[str, TableFile] = {}
        for number, version in enumerate(versions):
            live = {f"{table}/{path}": f for path, f in version.live.items()}
            for path in [path for path in open_ if path not in live]:
                f = open_.pop(path)
                found.append(
                    TableFile(path=path, bytes=f.bytes, checkpoint=f.checkpoint, added=f.added, removed=number)
                )
            for path, held in live.items():
                if path not in open_:
                    open_[path] = TableFile(
                        path=path, bytes=held.file.size, checkpoint=held.checkpoint, added=max(number, oldest)
                    )
        found = [f for f in (*found, *open_.values()) if f.removed is None or f.removed > oldest]
        files = tuple(sorted(found, key=lambda f: (f.added, f.path)))
        return TableHistory(table=table, oldest=oldest, newest=len(versions) - 1, files=files)

    def ensure_log_checkpoint(self, table: str, version: int) -> None:
        """See `ports.TableFiles`."""
        self.tables.log_checkpoints.setdefault(table, set()).add(version)

    def delete(self, paths: Iterable[str]) -> int:
        """See `ports.TableFiles`."""
        count = 0
        for path in paths:
            table, is_log, name = path.partition(f"/{LOG}/")
            if not is_log:
                count += self.tables.files.pop(path, None) is not None
                continue
            version = log_version(name)
            if name not in self._log(table) or version is None:
                continue
            count += 1
            if name.endswith(".json"):
                self.tables.oldest[table] = max(version + 1, self.tables.oldest.get(table, 0))
            else:
                self.tables.log_checkpoints[table].discard(version)
        return count

    def _log(self, table: str) -> list[str]:
        oldest, newest = self.tables.oldest.get(table, 0), len(self.tables.tables[table])
        commits = [f"{v:020d}.json" for v in range(oldest, newest)]
        return [*commits, *(f"{v:020d}.checkpoint.parquet" for v in self.tables.log_checkpoints.get(table, ()))]
