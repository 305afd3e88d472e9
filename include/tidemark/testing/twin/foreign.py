"""Foreign tables in dicts: versions of rows by path; the twin of `adapters.foreign_tables`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemark.declare.sources import Broadcast, DeltaTable
from tidemark.errors import DataLostError, NotFoundError
from tidemark.model.checkpoint.broadcast_copies import TableVersion
from tidemark.processing.broadcasts import checked_rows
from tidemark.processing.shapes import record_shape
from tidemark.processing.value_codec import codec_of


@dataclass
class MemoryForeignTables:
    """Tables that tests overwrite, roll back and drop."""

    tables: dict[str, list[tuple[str, Sequence[Any]]]] = field(default_factory=dict)
    _created: int = 0

    def overwrite(self, path: str, records: Iterable[Any]) -> None:
        """A new version: these rows and no others, as instances of the declared record."""
        versions = self.tables.setdefault(path, [])
        if not versions:
            self._created += 1
        versions.append((versions[-1][0] if versions else f"table#{self._created}", tuple(records)))

    def roll_back(self, path: str) -> None:
        """Forgets the newest version, as a table does whose log was put back."""
        del self.tables[path][-1]

    def drop(self, path: str) -> None:
        """Deletes the table; the next `overwrite` makes another one."""
        del self.tables[path]

    def newest(self, broadcast: Broadcast) -> TableVersion:
        """See `ports.ForeignTables`."""
        path = _path(broadcast)
        versions = self.tables.get(path)
        if not versions:
            raise NotFoundError(f"no Delta table at {path}", next="create it, or mend the path of the DeltaTable.")
        return TableVersion(id=versions[-1][0], version=len(versions) - 1)

    def rows(self, broadcast: Broadcast, at: TableVersion) -> Sequence[Mapping[str, Any]]:
        """See `ports.ForeignTables`."""
        versions = self.tables.get(_path(broadcast), [])
        if at.version >= len(versions) or versions[at.version][0] != at.id:
            raise DataLostError(
                f"data lost: version {at.version} of the table of broadcast state {broadcast.uid} is gone",
                safe="every completed checkpoint is intact; nothing was published.",
                next="run the pipeline again: it plans anew, with the newest version.",
            )
        dump = codec_of(record_shape(broadcast.source.record)).dump
        return checked_rows(broadcast, [dump(record) for record in versions[at.version][1]])


def _path(broadcast: Broadcast) -> str:
    if not isinstance(broadcast.source, DeltaTable):
        raise TypeError(f"{broadcast.uid} is read from Kafka")
    return broadcast.source.path
