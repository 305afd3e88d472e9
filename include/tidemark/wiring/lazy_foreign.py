"""Foreign tables, with deltalake imported only when one is read: most commands never need it."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tidemark.model.copies import TableVersion
from tidemark.sources import Broadcast

if TYPE_CHECKING:
    from tidemark.adapters.foreign_tables import DeltaForeignTables


class LazyForeignTables:
    """The port `ForeignTables` over `DeltaForeignTables`, made at the first question."""

    def newest(self, broadcast: Broadcast) -> TableVersion:
        """See `ports.ForeignTables`."""
        return self._tables.newest(broadcast)

    def rows(self, broadcast: Broadcast, at: TableVersion) -> Sequence[Mapping[str, Any]]:
        """See `ports.ForeignTables`."""
        return self._tables.rows(broadcast, at)

    @cached_property
    def _tables(self) -> "DeltaForeignTables":
        from tidemark.adapters.foreign_tables import DeltaForeignTables

        return DeltaForeignTables()
