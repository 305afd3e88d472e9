"""All kinds of targets, one line each: how each is opened."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast
from uuid import UUID

import pyarrow as pa
from deltalake import QueryBuilder

from tidemark.declare.publications import DeltaChangelog, DeltaMirror, JdbcUpsert, KafkaUpsert, Publication
from tidemark.errors import UsageError
from tidemark.model.kinds.base.sql import quote
from tidemark.model.retention.publication_records import Replaceable
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.ports.publishing import Difference, PublicationTarget, Published, PublishedStates, StatePart, Step
from tidemark.publications.change_states import ChangeStates, change_columns
from tidemark.publications.delta_mirror import DeltaMirrorTable, PublishedVersion
from tidemark.publications.operator_states import OperatorStates
from tidemark.publications.target_folder import TargetFolder
from tidemark.readers.duckdb_session import open_query_runner
from tidemark.sql.resolve import empty_columns
from tidemark.storage.local_store import Root
from tidemark.tables.delta_tables import arrow_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetServices:
    """The services of this process that targets need.

    Attributes:
        pipeline: name of the pipeline.
        open_folder: opens a folder by its path or URL.
        find_kafka: returns the address of the cluster and librdkafka settings.
        now_ms: the clock.
        make_id: returns a random id of 32 hex digits.
    """

    pipeline: str
    open_folder: Callable[[str], Root]
    find_kafka: Callable[[], tuple[str, Mapping[str, str]]]
    now_ms: Callable[[], int]
    make_id: Callable[[], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorTarget:
    """See `ports.publishing.PublicationTarget`."""

    table: DeltaMirrorTable

    def newest_step(self) -> int:
        """See `ports.publishing.PublicationTarget`."""
        return self.table.log.newest().publications.get(self.table.application, 0)

    def apply(self, step: Step, difference: Callable[[], Difference]) -> Published:
        """See `ports.publishing.PublicationTarget`."""
        return self._had(step) or _published(self.table.apply(step, difference()))

    def replace(self, step: Step, parts: Sequence[StatePart], replaces: Replaceable) -> Published:
        """See `ports.publishing.PublicationTarget`."""
        return _published(self.table.replace(step, parts, replaces))

    def drop(self, step: Step) -> Published:
        """See `ports.publishing.PublicationTarget`."""
        found = self.table.drop(step)
        return Published(version="") if found is None else _published(found)

    def rows(self) -> tuple[int, pa.Table]:
        """See `ports.publishing.PublicationTarget`."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogTarget(MirrorTarget):
    """See `ports.publishing.PublicationTarget`.

    Attributes:
        state: columns of the state.
    """

    state: pa.Schema

    def rows(self) -> tuple[int, pa.Table]:
        """See `ports.publishing.PublicationTarget`: the newest row of each key, if it was not deleted."""
        step, changes = MirrorTarget.rows(self)
        keys = ", ".join(map(quote, self.table.keys))
        columns = ", ".join(
            quote(name) if name in set(self.table.keys) else f"after.{quote(name)} AS {quote(name)}"
            for name in self.state.names
        )
        newest = f"QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY _checkpoint DESC) = 1"
        with open_query_runner() as ask:
            found = ask(f"SELECT {columns} FROM (FROM changes {newest}) WHERE _op <> 'delete'", changes=changes)
        return step, found.select(self.state.names).cast(self.state)


def states_for(publication: Publication, warehouse: Root, uid: str) -> PublishedStates:
    """Returns the states of an operator in the form that the target of a publication takes."""
    made = ChangeStates if isinstance(publication, DeltaChangelog) else OperatorStates
    return made(warehouse=warehouse, uid=uid)


def _open_mirror(publication: Publication, schema: OperatorSchema, services: TargetServices) -> PublicationTarget:
    mirror = cast("DeltaMirror", publication)
    return MirrorTarget(
        table=DeltaMirrorTable(
            folder=TargetFolder(services.open_folder(mirror.place)),
            application=f"tidemark/{services.pipeline}/{mirror.name}",
            keys=tuple(key.name for key in schema.keys),
            columns=tuple(empty_columns(schema)),
            now_ms=services.now_ms,
            make_id=lambda: UUID(services.make_id()),
            deletion_vectors=mirror.deletion_vectors,
        )
    )


def _open_postgres(publication: Publication, schema: OperatorSchema, services: TargetServices) -> PublicationTarget:
    from tidemark.publications.postgres_target import PostgresTarget

    upsert = cast("JdbcUpsert", publication)
    return PostgresTarget(
        url=upsert.url,
        table=upsert.table,
        application=f"tidemark/{services.pipeline}/{upsert.name}",
        keys=tuple(key.name for key in schema.keys),
        columns=arrow_schema(empty_columns(schema)),
    )


def _open_topic(publication: Publication, schema: OperatorSchema, services: TargetServices) -> PublicationTarget:
    from tidemark.kafka.compacted_topic import CompactedTopic
    from tidemark.publications.topic_target import TopicTarget

    upsert, (bootstrap, options) = cast("KafkaUpsert", publication), services.find_kafka()
    application = f"tidemark/{services.pipeline}/{upsert.name}"
    return TopicTarget(
        topic=CompactedTopic(bootstrap=bootstrap, topic=upsert.topic, application=application, options=options),
        application=application,
        keys=tuple(key.name for key in schema.keys),
        columns=arrow_schema(empty_columns(schema)),
    )


def _open_changelog(publication: Publication, schema: OperatorSchema, services: TargetServices) -> PublicationTarget:
    log = cast("DeltaChangelog", publication)
    return ChangelogTarget(
        table=DeltaMirrorTable(
            folder=TargetFolder(services.open_folder(log.place)),
            application=f"tidemark/{services.pipeline}/{log.name}",
            keys=tuple(key.name for key in schema.keys),
            columns=change_columns(schema),
            now_ms=services.now_ms,
            make_id=lambda: UUID(services.make_id()),
            deletion_vectors=False,
            appends=True,
        ),
        state=arrow_schema(empty_columns(schema)),
    )


_OPENERS: Mapping[str, Callable[[Publication, OperatorSchema, TargetServices], PublicationTarget]] = {
    DeltaMirror.kind: _open_mirror,
    DeltaChangelog.kind: _open_changelog,
    JdbcUpsert.kind: _open_postgres,
    KafkaUpsert.kind: _open_topic,
}


def open_target(publication: Publication, schema: OperatorSchema, services: TargetServices) -> PublicationTarget:
    """Opens the target of a publication for the columns of a stored schema.

    Raises:
        UsageError: this release has no such target, or the settings do not fit it.
    """
    opener = _OPENERS.get(publication.kind)
    if opener is None:
        raise UsageError(
            f"{publication.name}: this release has no target of the kind {publication.kind!r}",
            next="install the release that has it.",
        )
    return opener(publication, schema, services)
