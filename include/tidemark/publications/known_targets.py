"""The kinds of targets: which states each gets, and how it is opened."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast
from uuid import UUID

from tidemark.declare.publications import Publication
from tidemark.errors import UsageError
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.ports.publishing import Columns, PublicationTarget, PublishedStates
from tidemark.publications.change_states import ChangeStates
from tidemark.publications.delta_mirror import DeltaMirrorTable
from tidemark.publications.operator_states import OperatorStates
from tidemark.publications.target_folder import TargetFolder
from tidemark.storage.local_store import Root
from tidemark.tables.delta_tables import arrow_schema
from tidemark.targets import DeltaChangelog, DeltaMirror, JdbcUpsert, KafkaUpsert


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

    def application(self, publication: Publication) -> str:
        """Returns the id of a publication at its target, `tidemark/<pipeline>/<name>`."""
        return f"tidemark/{self.pipeline}/{publication.name}"


def states_for(publication: Publication, warehouse: Root, uid: str) -> PublishedStates:
    """Returns the states of an operator in the form that the target of a publication takes."""
    return _states(publication)(warehouse=warehouse, uid=uid)


def target_columns(publication: Publication, schema: OperatorSchema) -> Columns:
    """Returns (column, SQL type) of a target's rows, for a stored schema."""
    return _states(publication).columns(schema)


def _states(publication: Publication) -> type[ChangeStates] | type[OperatorStates]:
    return ChangeStates if isinstance(publication, DeltaChangelog) else OperatorStates


def _open_delta(publication: Publication, schema: OperatorSchema, services: TargetServices) -> PublicationTarget:
    delta = cast("DeltaMirror | DeltaChangelog", publication)
    return DeltaMirrorTable(
        folder=TargetFolder(services.open_folder(delta.place)),
        application=services.application(delta),
        keys=tuple(key.name for key in schema.keys),
        columns=target_columns(delta, schema),
        now_ms=services.now_ms,
        make_id=lambda: UUID(services.make_id()),
        deletion_vectors=isinstance(delta, DeltaMirror) and delta.deletion_vectors,
        appends=isinstance(delta, DeltaChangelog),
    )


def _open_postgres(publication: Publication, schema: OperatorSchema, services: TargetServices) -> PublicationTarget:
    from tidemark.publications.postgres_target import PostgresTarget

    upsert = cast("JdbcUpsert", publication)
    return PostgresTarget(
        url=upsert.url,
        table=upsert.table,
        application=services.application(upsert),
        keys=tuple(key.name for key in schema.keys),
        columns=arrow_schema(target_columns(upsert, schema)),
    )


def _open_topic(publication: Publication, schema: OperatorSchema, services: TargetServices) -> PublicationTarget:
    from tidemark.kafka.compacted_topic import CompactedTopic
    from tidemark.publications.topic_target import TopicTarget

    upsert, (bootstrap, options) = cast("KafkaUpsert", publication), services.find_kafka()
    application = services.application(upsert)
    return TopicTarget(
        topic=CompactedTopic(bootstrap=bootstrap, topic=upsert.topic, application=application, options=options),
        application=application,
        keys=tuple(key.name for key in schema.keys),
        columns=arrow_schema(target_columns(upsert, schema)),
    )


_OPENERS: Mapping[str, Callable[[Publication, OperatorSchema, TargetServices], PublicationTarget]] = {
    DeltaMirror.kind: _open_delta,
    DeltaChangelog.kind: _open_delta,
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
