"""All kinds of targets, one line each: how each is opened."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast
from uuid import UUID

from tidemark.declare.publications import DeltaMirror, Publication
from tidemark.errors import UsageError
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.ports.publishing import Target
from tidemark.publications.delta_mirror import DeltaMirrorTable
from tidemark.publications.mirror_target import MirrorTarget
from tidemark.publications.target_folder import TargetFolder
from tidemark.sql.resolve import empty_columns
from tidemark.storage.local_store import Root


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetServices:
    """The services of this process that targets need.

    Attributes:
        pipeline: name of the pipeline.
        open_folder: opens a folder by its path or URL.
        now_ms: the clock.
        make_id: returns a random id of 32 hex digits.
    """

    pipeline: str
    open_folder: Callable[[str], Root]
    now_ms: Callable[[], int]
    make_id: Callable[[], str]


def _open_mirror(publication: Publication, schema: OperatorSchema, services: TargetServices) -> Target:
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


_OPENERS: Mapping[str, Callable[[Publication, OperatorSchema, TargetServices], Target]] = {
    DeltaMirror.kind: _open_mirror,
}


def open_target(publication: Publication, schema: OperatorSchema, services: TargetServices) -> Target:
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
