"""A Delta mirror as the target of a publication."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa
from deltalake import QueryBuilder

from tidemark.model.retention.publication_records import Replaceable
from tidemark.ports.publishing import Difference, Published, Step
from tidemark.publications.delta_mirror import DeltaMirrorTable, PublishedVersion
from tidemark.tables.delta_tables import arrow_schema


@dataclass(frozen=True, slots=True)
class MirrorTarget:
    """See `ports.publishing.Target`."""

    table: DeltaMirrorTable

    def newest_step(self) -> int:
        """See `ports.publishing.Target`."""
        return self.table.log.newest().publications.get(self.table.application, 0)

    def apply(self, step: Step, difference: Callable[[], Difference]) -> Published:
        """See `ports.publishing.Target`."""
        return self._had(step) or _published(self.table.apply(step, difference()))

    def replace(self, step: Step, tables: Callable[[], Iterable[pa.Table]], replaces: Replaceable) -> Published:
        """See `ports.publishing.Target`."""
        return _published(self.table.replace(step, tables, replaces))

    def drop(self, step: Step) -> Published:
        """See `ports.publishing.Target`."""
        found = self.table.drop(step)
        return Published(version="") if found is None else _published(found)

    def rows(self) -> tuple[int, pa.Table]:
        """See `ports.publishing.Target`."""
        step, opened = self.newest_step(), self.table.folder.table()
        found = pa.table(QueryBuilder().register("mirror", opened).execute("SELECT * FROM mirror").read_all())
        columns = arrow_schema(self.table.columns)
        return step, found.select(columns.names).cast(columns)

    def _had(self, step: Step) -> Published | None:
        """The result of a step that the table has: no difference is read then."""
        state = self.table.log.newest()
        if state.publications.get(self.table.application, 0) < step.number:
            return None
        found = self.table.log.find_publication(state, self.table.application)
        return Published(version=str(state.version if found is None else found.version))


def _published(made: PublishedVersion) -> Published:
    return Published(version=str(made.version), inserted=made.inserted, deleted=made.deleted, bytes=made.bytes)
