"""Publishes states to their targets, rebuilds, compares and drops publications, and lists them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tidemark.answers.checkpoint_facts import iso
from tidemark.answers.publication_facts import (
    PublicationCheck,
    PublicationDetails,
    PublicationStatus,
    PublishedFacts,
)
from tidemark.context import Context
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.publications.publisher import MadeStep, StatePublisher
from tidemark.coordinator.records.publication_steps import PublicationSteps
from tidemark.coordinator.records.timelines import Erasures
from tidemark.declare.publications import Publication, thaw
from tidemark.environment import open_bucket_folder, random_id
from tidemark.errors import ConflictError, NotFoundError, UsageError
from tidemark.model.core.names import S3Url, is_url
from tidemark.model.retention.publication_records import PublicationBegun, PublicationMode

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemark.model.schema.operator_schema import OperatorSchema
    from tidemark.ports.publishing import PublicationTarget
    from tidemark.storage.local_store import Root


_MOST_BEHIND = 1000
"""So many checkpoints are counted at most, because each is a manifest to read."""


def publish(context: Context, name: str, publication: str) -> list[PublishedFacts]:
    """Brings a target to the newest checkpoint; empty if it has it, or if the publication was dropped.

    Raises:
        NotFoundError: no such pipeline, or it declares no such publication.
        TidemarkError: as `StatePublisher.publish` raises.
    """
    with _publisher(context, name, *_declared(context, name, publication)) as publisher:
        return [_facts(made) for made in publisher.publish()]


def rebuild(context: Context, name: str, publication: str, *, replaces_others: bool = False) -> PublishedFacts:
    """Replaces all rows of a target by the newest state; see `StatePublisher.rebuild`."""
    with _publisher(context, name, *_declared(context, name, publication)) as publisher:
        return _facts(publisher.rebuild(replaces_others=replaces_others))


def drop(context: Context, name: str, publication: str) -> PublishedFacts | None:
    """Ends a publication, declared or not; its target keeps its rows. Returns None if it was never begun.

    Raises:
        NotFoundError: no such pipeline or publication.
        TidemarkError: as `StatePublisher.drop` raises.
    """
    begun = PublicationSteps(context.coordinator(context.require_pipeline(name)).objects).newest(publication)
    if begun is None:
        _declared(context, name, publication)
        return None
    with _publisher(context, name, begun.uid, _with_login(context, name, begun)) as publisher:
        made = publisher.drop()
    return None if made is None else _facts(made)


def verify(context: Context, name: str, publication: str) -> PublicationCheck:
    """Compares the rows of a target with the state of the checkpoint that it should have.

    Raises:
        NotFoundError: no such pipeline, or nothing was published yet.
        ConflictError: the target has another step.
        StoreError, StateOverflowError: the target or the state cannot be read.
    """
    from tidemark.readers.checkpoint_reader import read_checkpoint
    from tidemark.readers.duckdb_session import open_query_runner
    from tidemark.readers.state_diff import compare_states

    coordinator = context.coordinator(context.require_pipeline(name))
    found = PublicationSteps(coordinator.objects).last_done(publication)
    if found is None or found[0].mode is PublicationMode.DROP:
        raise NotFoundError(
            f"{publication} has not been published", next=f"tidemark publication run {name} {publication}"
        )
    begun, checkpoint = found[0], coordinator.checkpoint(found[0].checkpoint)
    schema = checkpoint.plan.schemas[begun.uid]
    with _publisher(context, name, begun.uid, _with_login(context, name, begun)) as publisher:
        step, found_rows = publisher.open_target(schema).rows()
        rows = publisher.states.state_of(found_rows, schema)
    if step != begun.step:
        raise ConflictError(
            f"the target of {publication} has step {step}, and the last one that is done is {begun.step}",
            safe="nothing was changed.",
            next=f"tidemark publication run {name} {publication}    (finishes its step), then verify again.",
        )
    state = read_checkpoint(context.warehouse.root, checkpoint, begun.uid)
    with open_query_runner() as ask:
        changes = compare_states(ask, schema, state, rows.select(state.column_names).cast(state.schema))
        counts = _counts(changes)
    missing, extra, different = (counts.get(c, 0) for c in ("deleted", "inserted", "updated"))
    return PublicationCheck(
        publication=publication,
        checkpoint=checkpoint.plan.name,
        rows=state.num_rows,
        missing=missing,
        extra=extra,
        different=different,
        # More rows than keys: a key that has two is found by neither side of the comparison.
        equal=not changes.num_rows and rows.num_rows == state.num_rows,
    )


def list_publications(context: Context, name: str) -> list[PublicationStatus]:
    """Lists the publications that are declared, or that were begun, by name.

    Raises:
        NotFoundError: no such pipeline.
    """
    coordinator = context.coordinator(context.require_pipeline(name))
    steps, declared = PublicationSteps(coordinator.objects), _all_declared(context, name)
    newest = {n: steps.newest(n) for n in {*steps.names(), *declared}}
    return [_status(coordinator, n, newest[n], declared.get(n)) for n in sorted(newest)]


def list_begun(context: Context, name: str) -> list[PublicationStatus]:
    """Like `list_publications`, without reading the pipeline's file: those that were begun count as declared.

    Raises:
        NotFoundError: no such pipeline.
    """
    coordinator = context.coordinator(context.require_pipeline(name))
    steps, found = PublicationSteps(coordinator.objects), list[PublicationStatus]()
    for publication in steps.names():
        newest = steps.newest(publication)
        if newest is not None:
            found.append(_status(coordinator, publication, newest, (newest.uid, _thawed(newest))))
    return found


def describe_begun(context: Context, name: str, publication: str, limit: int = 10) -> PublicationDetails:
    """Like `describe_publication`, without reading the pipeline's file, and without views.

    Raises:
        NotFoundError: no such pipeline, or the publication was never begun.
    """
    status = next((found for found in list_begun(context, name) if found.publication == publication), None)
    if status is None:
        raise NotFoundError(
            f"{name} has begun no publication {publication!r}", next=f"tidemark publication list {name}"
        )
    done = PublicationSteps(context.coordinator(name).objects).list_done(publication)
    steps = [_facts(MadeStep(begun=begun, done=end)) for begun, end in islice(done, limit)]
    return PublicationDetails(status=status, steps=steps, views={})


def find_publication(context: Context, name: str, publication: str) -> PublicationStatus:
    """Returns one of `list_publications`.

    Raises:
        NotFoundError: no such pipeline or publication.
    """
    found = {status.publication: status for status in list_publications(context, name)}
    if publication not in found:
        known = ", ".join(found) or "none: add publish=[...] to an operator"
        raise NotFoundError(f"{name} has no publication {publication!r}", next=f"name one of: {known}.")
    return found[publication]


def describe_publication(context: Context, name: str, publication: str, limit: int = 10) -> PublicationDetails:
    """Returns a publication with its last steps, and the statements that make a view of its Delta table.

    Args:
        context: of this process.
        name: the pipeline.
        publication: its name.
        limit: the most steps to return.

    Raises:
        NotFoundError: no such pipeline or publication.
    """
    from tidemark.publications.known_targets import target_columns

    status, coordinator = find_publication(context, name, publication), context.coordinator(name)
    steps = list(islice(PublicationSteps(coordinator.objects).list_done(publication), limit))
    views: Mapping[str, str] = {}
    for begun, _ in steps[:1]:
        target, schema = _thawed(begun), coordinator.timelines.checkpoint(begun.checkpoint).plan.schemas[begun.uid]
        if target.is_delta_table:
            views = _view_texts(target.place, [column for column, _ in target_columns(target, schema)], publication)
    return PublicationDetails(
        status=status,
        steps=[_facts(MadeStep(begun=begun, done=done)) for begun, done in steps],
        views=views,
    )


def names_to_publish(context: Context, name: str) -> list[str]:
    """Names of the publications that the pipeline declares.

    Raises:
        NotFoundError: no file declares the pipeline.
    """
    return [publication.name for _, publication in context.pipeline(name).publications]


def _status(
    coordinator: CheckpointCoordinator,
    name: str,
    newest: PublicationBegun | None,
    declared: tuple[str, Publication] | None,
) -> PublicationStatus:
    steps = PublicationSteps(coordinator.objects)
    last = steps.last_done(name)
    made = None if last is None or last[0].mode is PublicationMode.DROP else last
    if declared is not None:
        uid, publication = declared
    else:
        assert newest is not None  # noqa: S101  (listed because it was begun)
        uid, publication = newest.uid, _thawed(newest)
    had = 0 if made is None else made[0].checkpoint
    line = (c.id for c in coordinator.checkpoints())
    is_dropped = newest is not None and newest.mode is PublicationMode.DROP
    behind = 0 if is_dropped else sum(1 for _ in takewhile(lambda n: n > had, islice(line, _MOST_BEHIND)))
    return PublicationStatus(
        publication=name,
        uid=uid,
        kind=publication.kind,
        place=publication.place,
        state=_state(newest, made is not None, behind, is_declared=declared is not None, steps=steps),
        checkpoint=None if made is None else f"chk-{had}",
        version=None if made is None else made[1].version,
        behind=behind,
        published_at=None if made is None else iso(made[1].at_ms),
    )


def _state(
    newest: PublicationBegun | None, has_rows: bool, behind: int, *, is_declared: bool, steps: PublicationSteps
) -> Literal["new", "current", "behind", "begun", "removed", "dropped"]:
    if newest is not None and newest.mode is PublicationMode.DROP:
        return "dropped"
    if not is_declared:
        return "removed"
    if newest is not None and steps.done(newest) is None:
        return "begun"
    if newest is None or not has_rows:
        return "new"
    # An erasure is published even without a newer checkpoint.
    return "behind" if behind or Erasures(steps.objects).newest() > newest.erasures else "current"


def _counts(changes: "pa.Table") -> dict[str, int]:
    found = changes["_change"].value_counts().to_pylist()
    return {row["values"]: row["counts"] for row in found}


def _all_declared(context: Context, name: str) -> dict[str, tuple[str, Publication]]:
    """The declared publications by name; none if the pipeline's file is gone."""
    try:
        return {p.name: (uid, p) for uid, p in context.pipeline(name).publications}
    except NotFoundError:
        return {}


def _declared(context: Context, name: str, publication: str) -> tuple[str, Publication]:
    found = {p.name: (uid, p) for uid, p in context.pipeline(name).publications}
    if publication not in found:
        known = ", ".join(found) or "none: add publish=[...] to an operator"
        raise NotFoundError(f"{name} declares no publication {publication!r}", next=f"name one of: {known}.")
    return found[publication]


def _thawed(begun: PublicationBegun) -> Publication:
    return thaw(begun.kind, begun.name, begun.options)


def _with_login(context: Context, name: str, begun: PublicationBegun) -> Publication:
    """The publication of a step as it is declared now, with its user and password; if it moved, as it was recorded."""
    _, declared = _all_declared(context, name).get(begun.name, ("", None))
    if declared is not None and (declared.kind, dict(declared.options)) == (begun.kind, dict(begun.options)):
        return declared
    return _thawed(begun)


@contextmanager
def _publisher(context: Context, name: str, uid: str, publication: Publication) -> "Iterator[StatePublisher]":
    from tidemark.publications.known_targets import TargetServices, open_target, states_for

    with ExitStack() as opened:
        folders = _Folders(context, opened)
        services = TargetServices(
            pipeline=name,
            open_folder=folders.open,
            find_kafka=lambda: (context.settings.kafka_address, context.settings.kafka_client_options),
            now_ms=context.clock.now_ms,
            make_id=random_id,
        )

        def target(schema: "OperatorSchema") -> "PublicationTarget":
            return open_target(publication, schema, services)

        yield StatePublisher(
            coordinator=context.coordinator(name),
            uid=uid,
            publication=publication,
            open_target=target,
            states=states_for(publication, context.warehouse.root, uid),
        )


@dataclass(frozen=True)
class _Folders:
    """Folders that are closed with the publisher."""

    context: Context
    opened: ExitStack

    def open(self, place: str) -> "Root":
        self._refuse_inside(place)
        if not is_url(place):
            return place
        folder = open_bucket_folder(self.context.settings, S3Url.parsed(place))
        self.opened.callback(folder.close)
        return folder

    def _refuse_inside(self, place: str) -> None:
        """Refuses a table below the warehouse, whose files are Tidemark's alone."""
        warehouse = self.context.settings.warehouse
        if isinstance(warehouse, Path):
            is_inside = not is_url(place) and Path(place).resolve().is_relative_to(warehouse.resolve())
        else:
            is_inside = f"{place}/".startswith(f"{str(warehouse).rstrip('/')}/")
        if is_inside:
            raise UsageError(
                f"{place} is inside the warehouse",
                safe="nothing was written.",
                next="name a folder outside it in the pipeline file.",
            )


def _facts(made: MadeStep) -> PublishedFacts:
    begun, done = made.begun, made.done
    return PublishedFacts(
        publication=begun.name,
        uid=begun.uid,
        place=_thawed(begun).place,
        mode=begun.mode.value,
        checkpoint=f"chk-{begun.checkpoint}",
        timeline=begun.timeline,
        version=done.version,
        inserted=done.inserted,
        deleted=done.deleted,
        bytes=done.bytes,
        published_at=iso(done.at_ms),
    )


def _view_texts(place: str, columns: Sequence[str], name: str) -> Mapping[str, str]:
    """Returns statements that make a view of a Delta table, by engine; for Trino in the schema of the session.

    Args:
        place: the table, a path or URL.
        columns: names of its columns.
        name: of the publication; the view gets a name that needs no quotes.
    """
    view, location = "".join(c if c.isalnum() else "_" for c in name), place if "://" in place else f"file://{place}"
    here = location.replace("'", "''")
    plain = ", ".join('"' + c.replace('"', '""') + '"' for c in columns)
    ticked = ", ".join("`" + c.replace("`", "``") + "`" for c in columns)
    make, table = f"CREATE OR REPLACE VIEW {view} AS", f"{view}_table"
    register = "CALL delta.system.register_table(schema_name => 'default', table_name =>"
    # For people to run elsewhere: no query of Tidemark's is made of these texts.
    trino = f"{make} SELECT {plain} FROM {table};"  # noqa: S608
    databricks = f"{make} SELECT {ticked} FROM delta.`{location}`;"  # noqa: S608
    return {"trino": f"{register} '{table}', table_location => '{here}');\n{trino}", "databricks": databricks}
