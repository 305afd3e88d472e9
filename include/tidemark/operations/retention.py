"""Retention: plans and sweeps, storage, legal holds. Nothing here loads Spark."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial

from tidemark.answers.checkpoint_facts import iso_or_none, span_of
from tidemark.answers.retention_facts import (
    FreeFileFacts,
    GiveUpFacts,
    KeptFiles,
    RetentionFacts,
    StorageFacts,
    StoredBytes,
    SweepFacts,
    TableBytes,
    UnreadableManifest,
    VerifiedSweepFacts,
)
from tidemark.context import Context
from tidemark.coordinator.recovery.integrity import Tell, tell_nobody
from tidemark.coordinator.retention.deletion_plan import plan
from tidemark.coordinator.retention.give_up import GivenUp, GivingUp
from tidemark.coordinator.retention.legal_holds import Holding
from tidemark.coordinator.retention.storage_report import Storage, Stored, storage
from tidemark.coordinator.retention.stored_rule import Rules
from tidemark.coordinator.retention.sweep import GRACE_MS, Sweeper, Swept
from tidemark.declare.retention import Retention
from tidemark.declare.retention_text import parse_retention
from tidemark.model.retention.deletion import DeletionPlan, KeptBytes
from tidemark.model.retention.findings import Verified
from tidemark.operations import verification

_SHOWN = 1000
"""The default number of files in an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The result of a sweep, and of the check of every remaining restore point."""

    swept: Swept
    verified: Verified


def get_rule(context: Context, name: str, keep: str | None = None) -> Retention | None:
    """Returns the rule in effect: the given one, else the one that the pipeline's DAG declares; None = keep everything.

    Raises:
        DeclarationError: the given text is no rule.
        NotFoundError: no such pipeline.
    """
    return (
        Rules(context.coordinator(context.require_pipeline(name))).current() if keep is None else parse_retention(keep)
    )


def declare_rule(context: Context, name: str, rule: Retention | None) -> bool:
    """Stores the rule that a DAG declares, if it differs. Returns whether it was stored."""
    return Rules(context.coordinator(context.require_pipeline(name))).record(rule)


def plan_sweep(context: Context, name: str, keep: str | None = None) -> DeletionPlan:
    """Returns what a sweep would do now; writes nothing.

    Raises:
        NotFoundError, DeclarationError: as in `get_rule`.
        StoreError, CorruptObjectError: it is unknown which files are needed; nothing may be deleted.
    """
    rule = get_rule(context, name, keep)
    return plan(context.coordinator(name), context.table_files, rule)


def sweep(context: Context, name: str, keep: str | None = None, *, grace_ms: int = GRACE_MS) -> Swept:
    """Releases checkpoints that nothing keeps, and deletes files that have been free for the grace time.

    Raises:
        NotFoundError, DeclarationError: as in `get_rule`.
        DamagedError: the newest checkpoint of a timeline is not whole; nothing was released.
        StoreError, CorruptObjectError: as in `plan_sweep`, or a file could not be deleted: try again.
    """
    sweeper = Sweeper(
        coordinator=context.coordinator(name),
        files=context.table_files,
        rule=get_rule(context, name, keep),
        grace_ms=grace_ms,
        verify=partial(verification.verify_checkpoint, context),
    )
    return sweeper.sweep()


def sweep_and_verify(
    context: Context, name: str, keep: str | None = None, *, grace_ms: int = GRACE_MS, on_progress: Tell = tell_nobody
) -> Applied:
    """Sweeps, then checks every remaining restore point.

    Raises:
        TidemarkError: as in `sweep`.
    """
    swept = sweep(context, name, keep, grace_ms=grace_ms)
    return Applied(swept=swept, verified=verification.open_verifier(context, name).verify_all(on_progress))


def give_up(context: Context, name: str, number: int, *, execute: bool = False) -> GivenUp:
    """Gives up a checkpoint whose manifest is damaged; without `execute`, returns the effect of doing so.

    Raises:
        TidemarkError: as in `GivingUp.outlook`.
    """
    verb = GivingUp(coordinator=context.coordinator(context.require_pipeline(name)))
    return verb.give_up(number) if execute else verb.outlook(number)


def measure_storage(context: Context, name: str) -> Storage:
    """Measures the storage of a pipeline.

    Raises:
        NotFoundError: no such pipeline.
        StoreError, CorruptObjectError: it is unknown which files are needed.
    """
    rule = get_rule(context, name)
    return storage(context.coordinator(name), context.table_files, rule)


def open_holds(context: Context, name: str) -> Holding:
    """Opens the legal holds on the savepoints of a pipeline.

    Raises:
        NotFoundError: no such pipeline.
    """
    return Holding(context.coordinator(context.require_pipeline(name)))


def describe_plan(found: DeletionPlan, grace_ms: int, *, shown: int | None = _SHOWN) -> RetentionFacts:
    """A deletion plan as an answer, with at most `shown` files; None = all."""
    due = found.due(grace_ms)
    return RetentionFacts(
        pipeline=found.pipeline,
        rule=found.rule or None,
        released=list(found.released),
        disposed=list(found.disposed),
        ended_jobs=list(found.ended),
        free_files=len(found.free),
        free_bytes=found.bytes,
        due_files=len(due),
        due_bytes=sum(f.bytes for f in due),
        grace_ms=grace_ms,
        kept_files=found.kept_files,
        kept_bytes=found.kept_bytes,
        unknown_files=len(found.unknown),
        log_files=sum(len(prefix.files) for prefix in found.logs),
        log_bytes=sum(prefix.bytes for prefix in found.logs),
        kept_by=_kept_by(found.kept),
        free=[
            FreeFileFacts(file=f.path, bytes=f.bytes, why=f.why, since=iso_or_none(f.since_ms))
            for f in found.free[:shown]
        ],
        unknown=[f.path for f in found.unknown[:shown]],
        damaged=_damaged(found),
    )


def describe_give_up(found: GivenUp) -> GiveUpFacts:
    """A given-up checkpoint as an answer."""
    return GiveUpFacts(
        checkpoint=found.manifest.name,
        key=found.manifest.key,
        why=found.manifest.why,
        timeline=found.timeline,
        given_up=found.done,
        goes_on_from=found.goes_on_from,
        stops_at=found.stops_at,
        read_again={str(tp): span_of(r) for tp, r in found.read_again.items()},
        savepoints=list(found.savepoints),
        kafka_sinks=list(found.sinks),
    )


def describe_sweep(swept: Swept) -> SweepFacts:
    """A sweep as an answer."""
    return SweepFacts(
        pipeline=swept.plan.pipeline,
        rule=swept.plan.rule or None,
        released=list(swept.released),
        disposed=list(swept.disposed),
        ended_jobs=list(swept.ended),
        deleted_files=len(swept.deleted),
        deleted_bytes=swept.bytes,
        waiting_files=len(swept.waiting),
        waiting_bytes=sum(f.bytes for f in swept.waiting),
        deleted_log_files=swept.log_files,
        kept_files=swept.plan.kept_files,
        kept_bytes=swept.plan.kept_bytes,
        damaged=_damaged(swept.plan),
    )


def describe_verified_sweep(done: Applied) -> VerifiedSweepFacts:
    """A sweep and the check after it, as an answer."""
    facts = describe_sweep(done.swept)
    return VerifiedSweepFacts(
        **{f.name: getattr(facts, f.name) for f in fields(facts)},
        verified=len(done.verified.points),
        broken=list(done.verified.broken),
    )


def describe_storage(name: str, found: Storage) -> StorageFacts:
    """Where the bytes of a pipeline are, as an answer."""
    return StorageFacts(
        pipeline=name,
        rule=found.rule or None,
        total=StoredBytes(**_sizes(found.total)),
        tables=[
            TableBytes(kind=kind, owner=owner, timeline=timeline, **_sizes(held))
            for (kind, owner, timeline), held in found.owners.items()
        ],
        timelines=dict(found.fates),
        kept_by=_kept_by(found.kept),
    )


def _sizes(held: Stored) -> dict[str, int]:
    return {f.name: getattr(held, f.name) for f in fields(held)}


def _kept_by(kept: Sequence[KeptBytes]) -> list[KeptFiles]:
    return [
        KeptFiles(why=k.why, held_by=list(k.checkpoints), files=k.files, bytes=k.bytes, alone_bytes=k.alone)
        for k in kept
    ]


def _damaged(found: DeletionPlan) -> list[UnreadableManifest]:
    return [UnreadableManifest(checkpoint=d.name, key=d.key, why=d.why, blocks=list(d.blocks)) for d in found.damaged]
