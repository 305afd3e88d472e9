"""Timelines: restores, forks, promotes, closes and lists them, without Spark and without copying anything."""

from functools import partial

from tidemark.answers.checkpoint_facts import iso, loss_of, span_of
from tidemark.answers.timeline_facts import CloseFacts, ForkFacts, PromoteFacts, RestoreFacts, TimelineFacts
from tidemark.context import Context
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.states import Ended, Forked, Promoted, PromotionBlocked, Restored, Superseded
from tidemark.coordinator.records.timeline_tree import Branch, branch, branches
from tidemark.coordinator.records.tombstones import read_release
from tidemark.coordinator.recovery.latest_valid import latest_valid
from tidemark.coordinator.recovery.promotion import Promotion
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.coordinator.recovery.restore_preview import RestorePlan
from tidemark.coordinator.recovery.restore_preview import plan_restore as plan_restore_from
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.coordinator.recovery.timeline_end import Ending
from tidemark.errors import ConflictError
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.operations import verification
from tidemark.telemetry.lazy_logger import log

_SAFE = "every checkpoint of every timeline is intact."


def plan_restore(context: Context, name: str, request: RestoreRequest) -> RestorePlan:
    """Returns the effect of a restore; writes nothing. Asks Kafka which records it still has.

    Raises:
        NotFoundError, ConflictError, UsageError: see `RestoreRequest.find_restore_point`.
        DamagedError: the checkpoint is not whole; each damaged file is listed.
        IncompatibleStateError: the checkpoint does not fit the declaration.
        DataLostError: a topic no longer exists.
        BrokerError: Kafka does not answer.
    """
    return _planned(context, name, request)[2]


def restore(context: Context, name: str, request: RestoreRequest) -> tuple[RestorePlan, Restored]:
    """Makes a new timeline live; see `Recovery.restore`. A repeated call finishes what a killed one left.

    Returns:
        The plan of the restore, and its result.

    Raises:
        DataLostError: Kafka lacks records after the checkpoint, and the request does not accept that.
        ConflictError: another restore or promote came first.
        TidemarkError: as in `plan_restore`.
    """
    recovery, restore_point, plan = _planned(context, name, request)
    if not request.accept_loss:
        plan.refuse_gaps()
    done = recovery.restore(restore_point, request.request)
    if isinstance(done, Superseded):
        raise superseded_error(name, done)
    report_state_left_behind(name, done.genesis)
    return plan, done


def plan_fork(context: Context, name: str, timeline: str, request: RestoreRequest) -> Genesis:
    """Returns the genesis that a fork would begin with; writes nothing.

    Raises:
        TidemarkError: as in `fork`.
    """
    recovery, restore_point = find_restore_point(context, name, request)
    return recovery.fork_draft(restore_point, timeline, request.request)


def fork(context: Context, name: str, timeline: str, request: RestoreRequest) -> Forked:
    """Begins a named timeline next to the live one; see `Recovery.fork`.

    Raises:
        TidemarkError: as in `Recovery.fork` and `RestoreRequest.find_restore_point`.
    """
    recovery, restore_point = find_restore_point(context, name, request)
    done = recovery.fork(restore_point, timeline, request.request)
    report_state_left_behind(name, done.genesis)
    return done


def plan_promote(context: Context, name: str, timeline: str) -> Promoted:
    """Returns the effect of a promote at this moment; writes nothing.

    Raises:
        NotFoundError: no such timeline.
        ConflictError: it is live already, or closed.
    """
    coordinator = context.coordinator(context.require_pipeline(name))
    live, fork = coordinator.head(), coordinator.head(timeline)
    if live.timeline == timeline:
        raise ConflictError(f"timeline {timeline} is live already", next=f"tidemark timeline list {name}")
    return Promotion(coordinator=coordinator).compare(live, fork)


def promote(context: Context, name: str, timeline: str, *, discard: bool = False, send: bool = False) -> Promoted:
    """Makes a fork live; see `Promotion.promote`.

    Raises:
        ConflictError: it lacks what the live timeline has, or another restore or promote came first.
        NotFoundError: no such timeline.
    """
    done = Promotion(coordinator=context.coordinator(context.require_pipeline(name))).promote(
        timeline, discard=discard, send=send
    )
    if isinstance(done, PromotionBlocked):
        raise behind(name, done)
    if isinstance(done, Superseded):
        raise superseded_error(name, done)
    return done


def plan_close(context: Context, name: str, timeline: str) -> Ended:
    """Returns the effect of ending a timeline; writes nothing.

    Raises:
        NotFoundError, ConflictError: as in `Ending.plan`.
    """
    return Ending(coordinator=context.coordinator(context.require_pipeline(name))).plan(timeline)


def close(context: Context, name: str, timeline: str) -> Ended:
    """Ends a timeline that is not live; see `Ending.close`.

    Raises:
        BusyError: another process makes a checkpoint or a backfill on the timeline.
        NotFoundError, ConflictError: as in `Ending.close`.
    """
    plan_close(context, name, timeline)  # before taking the lock, which would succeed for any name
    with context.lock(name, timeline):
        return Ending(coordinator=context.coordinator(name)).close(timeline)


def list_timelines(context: Context, name: str) -> list[Branch]:
    """Every timeline of a pipeline, in the order in which they began."""
    return branches(context.coordinator(context.require_pipeline(name)).timelines)


def get_timeline(context: Context, name: str, timeline: str) -> Branch:
    """Returns one timeline by its name.

    Raises:
        NotFoundError: no such timeline.
    """
    timelines = context.coordinator(context.require_pipeline(name)).timelines
    return branch(timelines, timeline, timelines.live())


def _planned(context: Context, name: str, request: RestoreRequest) -> tuple[Recovery, RestorePoint, RestorePlan]:
    recovery, restore_point = find_restore_point(context, name, request)
    plan = plan_restore_from(recovery, restore_point, context.pipeline(name))
    verification.open_verifier(context, name).verify_kept_rows(plan.genesis, plan.checkpoint)
    if request.newest_whole and plan.sent_again:
        raise ConflictError(
            f"a fallback would send records to {', '.join(plan.sent_again)} again, under other ids",
            safe="nothing was started or changed.",
            next=f"omit --restore-sinks, or name the checkpoint: --checkpoint {plan.checkpoint.plan.name}.",
        )
    return recovery, restore_point, plan


def find_restore_point(context: Context, name: str, request: RestoreRequest) -> tuple[Recovery, RestorePoint]:
    """Returns the recovery and the verified beginning of a timeline, so that nothing is left half started."""
    coordinator, pipeline = context.coordinator(context.require_pipeline(name)), context.pipeline(name)
    if request.newest_whole:
        line = coordinator.timelines.chain(coordinator.timelines.live())
        chain = (c for c in line if read_release(coordinator.objects, c.plan.name) is None)
        found = latest_valid(chain, partial(verification.verify_checkpoint, context), request.max_fallback)
        for passed, why in found.passed_over:
            log.warning("damaged_checkpoint_passed_over", pipeline=name, checkpoint=passed.plan.name, why=why.what)
        restore_point = request.at(found).find_restore_point(coordinator)
    else:
        restore_point = request.find_restore_point(coordinator)
        verification.verify_checkpoint(context, restore_point.checkpoint)
    return Recovery(coordinator=coordinator, pipeline=pipeline), restore_point


def describe_timeline(found: Branch) -> TimelineFacts:
    """A timeline as an answer."""
    genesis, newest = found.genesis, found.newest
    return TimelineFacts(
        timeline=found.timeline,
        fate=found.fate,
        is_live=found.is_live,
        parent=found.parent,
        began_at=None if genesis is None else f"chk-{genesis.parent}",
        why=None if genesis is None else genesis.why,
        savepoint=None if genesis is None else genesis.savepoint or None,
        began=None if genesis is None or not genesis.at_ms else iso(genesis.at_ms),
        checkpoints=found.checkpoints,
        newest=None if newest is None else newest.plan.name,
        successor=None if found.closing is None else found.closing.successor or None,
        left_behind={} if genesis is None else _rows_left(genesis),
        renamed={} if genesis is None else dict(genesis.renamed),
        note=None if genesis is None else genesis.note or None,
    )


def describe_fork(genesis: Genesis) -> ForkFacts:
    """A fork as an answer."""
    return ForkFacts(
        timeline=genesis.timeline,
        checkpoint=f"chk-{genesis.parent}",
        savepoint=genesis.savepoint or None,
        note=genesis.note or None,
        left_behind=_rows_left(genesis),
    )


def describe_promote(timeline: str, found: Promoted) -> PromoteFacts:
    """A promote as an answer."""
    return PromoteFacts(
        timeline=timeline,
        closes=found.closing.timeline,
        replaced=[c.plan.name for c in found.replaced],
        left=[c.plan.name for c in found.left],
    )


def describe_close(found: Ended) -> CloseFacts:
    """The end of a timeline as an answer."""
    return CloseFacts(
        timeline=found.closing.timeline,
        checkpoints=[c.plan.name for c in found.checkpoints],
        pinned_by_savepoints=list(found.savepoints),
        begun_there=list(found.forks),
        gives_back=found.gives_back or None,
    )


def describe_restore(plan: RestorePlan, done: Restored | None = None) -> RestoreFacts:
    """The plan of a restore as an answer; with `done`, the checkpoints that it did leave behind."""
    genesis = plan.genesis
    return RestoreFacts(
        checkpoint=plan.checkpoint.plan.name,
        savepoint=genesis.savepoint or None,
        closes=genesis.closes,
        left=[c.plan.name for c in (plan if done is None else done).left],
        read_again={str(tp): span_of(r) for tp, r in plan.read_again.items()},
        repeats=[recorded.name for recorded in plan.repeats],
        lost=[loss_of(gap) for gap in plan.gaps],
        sinks=dict(plan.sinks),
        left_behind=_rows_left(genesis),
        renamed=dict(genesis.renamed),
        claim=genesis.claim,
    )


def _rows_left(genesis: Genesis) -> dict[str, int]:
    return {uid: handle.rows for uid, handle in genesis.left_behind.items()}


def report_state_left_behind(name: str, genesis: Genesis) -> None:
    """Logs the state that a timeline leaves behind; the genesis keeps it readable."""
    for uid, handle in genesis.left_behind.items():
        log.warning("state_left_behind", pipeline=name, timeline=genesis.timeline, uid=uid, rows=handle.rows)


def behind(name: str, found: PromotionBlocked) -> ConflictError:
    """The error of a promote whose fork must catch up first."""
    lacking = ", ".join(c.plan.name for c in found.lacking)
    won = "a checkpoint completed meanwhile: " if found.overtaken else ""
    return ConflictError(
        f"{won}timeline {found.timeline} lacks offsets of the live one: {lacking}",
        safe=_SAFE,
        next=f"tidemark run {name} --timeline {found.timeline}    (catches up), then promote again; or add --discard.",
    )


def superseded_error(name: str, found: Superseded) -> ConflictError:
    """The error of a restore or promote that came after another one."""
    left = "" if found.genesis is None else f"; {found.genesis.timeline} stays next to it"
    return ConflictError(
        f"timeline {found.closing.timeline} was closed for {found.closing.successor} first{left}",
        safe=_SAFE,
        next=f"tidemark timeline list {name}    (then try again, with the timeline that is live now).",
    )
