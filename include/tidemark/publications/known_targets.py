"""All kinds of targets, one line each: how each is opened."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast
from uuid import UUID

import pyarrow as pa
from deltalake import QueryBuilder

from tidemark.declare.publications import DeltaMirror, JdbcUpsert, KafkaUpsert, Publication
from tidemark.errors import UsageError
from tidemark.model.retention.publication_records import Replaceable
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.ports.publishing import Difference, PublicationTarget, Published, StatePart, Step
from tidemark.publications.delta_mirror import DeltaMirrorTable, PublishedVersion
from tidemark.publications.target_folder import TargetFolder
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


@dataclass(frozen=True, slots=True)
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


def _open_mirror(publication: Publication, schema: OperatorSchema, services: TargetServices) -> PublicationTarget:
    mirror = cast("DeltaMirror", publication)
    return MirrorTarget(
        DeltaMirrorTable(
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


_OPENERS: Mapping[str, Callable[[Publication, OperatorSchema, TargetServices], PublicationTarget]] = {
    DeltaMirror.kind: _open_mirror,
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
