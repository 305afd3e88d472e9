"""Bugs that the simulation must find; each switches off one rule of the protocol."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from unittest.mock import patch

from tidemark.coordinator.checkpoints import loop
from tidemark.coordinator.checkpoints.attempts import Attempts, OwnedAttempt
from tidemark.coordinator.checkpoints.coordinator import Publisher
from tidemark.coordinator.plans.inputs import InputPlanner
from tidemark.coordinator.plans.runs import Runs
from tidemark.coordinator.records.claim_records import PromotionClaims
from tidemark.coordinator.records.objects import Objects, SlotEntry, encode
from tidemark.coordinator.records.states import (
    Aborted,
    Completed,
    OpenPlan,
    PlanState,
    Promoted,
    PromotionBlocked,
    SealedPlan,
    Subsumed,
    Superseded,
)
from tidemark.coordinator.recovery.promotion import Promotion
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.commits import CommitRequest, Committed
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.segments import LiveFile, StateHandle
from tidemark.model.checkpoint.store_objects import (
    AbortRecord,
    Closing,
    CompactionRecord,
    Failure,
    Outcome,
    OutcomeKind,
)
from tidemark.model.core.offsets import TopicPartition
from tidemark.ports import Fence, PutOutcome, UncertainPut
from tidemark.testing.twin.tables import MemoryTables, MemoryTableVersion


class _Blind:
    """A fence that does not consult the real fence."""

    def __init__(self, fence: Fence) -> None:
        self.fence = fence

    def check(self) -> None:
        """Always passes."""


@contextmanager
def drop_the_check() -> Iterator[None]:
    """A commit does not check the fence after reading the table version."""
    settled = MemoryTables.commit

    def commit(self: MemoryTables, request: CommitRequest, fence: Fence) -> Committed:
        return settled(self, request, _Blind(fence))

    with patch.object(MemoryTables, "commit", commit):
        yield


@contextmanager
def check_before_the_version() -> Iterator[None]:
    """A commit checks the fence before it reads the table version, not after."""
    settled = MemoryTables.commit

    def commit(self: MemoryTables, request: CommitRequest, fence: Fence) -> Committed:
        fence.check()
        return settled(self, request, _Blind(fence))

    with patch.object(MemoryTables, "commit", commit):
        yield


class _Once:
    """A fence whose first answer counts for good."""

    def __init__(self, fence: Fence) -> None:
        self.fence, self.answered = fence, False

    def check(self) -> None:
        """Checks the fence the first time."""
        if not self.answered:
            self.fence.check()
        self.answered = True


@contextmanager
def one_look_for_two_versions() -> Iterator[None]:
    """A commit that finds a later version does not check the fence again behind it (adr/0071)."""
    settled = MemoryTables.commit

    def commit(self: MemoryTables, request: CommitRequest, fence: Fence) -> Committed:
        return settled(self, request, _Once(fence))

    with patch.object(MemoryTables, "commit", commit):
        yield


@contextmanager
def reuse_an_attempt() -> Iterator[None]:
    """A re-run reuses the number of the attempt that it found, instead of revoking that attempt."""
    begin = Attempts.begin

    def reused(self: Attempts, plan: CheckpointPlan, deadline_ms: int | None = None) -> OwnedAttempt | PlanState:
        found = self.state(plan)
        if isinstance(found, OpenPlan) and found.attempt > 0:
            return self._owned(plan, found.attempt, deadline_ms)
        return begin(self, plan, deadline_ms)

    with patch.object(Attempts, "begin", reused):
        yield


@contextmanager
def publish_what_was_revoked() -> Iterator[None]:
    """An attempt that loses the race for its outcome key publishes its checkpoint as if it had won."""

    def seal(self: OwnedAttempt, sealed: Sealed) -> None:
        outcome = Outcome(
            kind=OutcomeKind.SEALED,
            attempt=self.number,
            sealed=sealed,
            abort=None,
            write_id=self.write_ids(),
            at_ms=self.clock.now_ms(),
        )
        self.objects.put(keys.outcome_key(self.plan.slot, self.number), outcome)
        Publisher(objects=self.objects).publish(self.plan, sealed)

    with (
        patch.object(OwnedAttempt, "seal", seal),
        patch.object(OwnedAttempt, "check", lambda self: None),
        patch.object(Publisher, "_refuse_unsealed", lambda self, plan, sealed: None),
    ):
        yield


@contextmanager
def keep_orphans() -> Iterator[None]:
    """A commit adds its files to the newest version's live files, instead of to the parent segment."""

    def live_after(self: MemoryTables, request: CommitRequest) -> dict[str, LiveFile]:
        history = self.tables.get(request.table)
        live = dict(history[-1].live) if history else {}
        for file in request.files:
            live[file.path] = LiveFile(file=file, level=request.level, checkpoint=request.checkpoint)
        return live

    with patch.object(MemoryTables, "_live_after", live_after):
        yield


@contextmanager
def rebase() -> Iterator[None]:
    """A commit that finds a newer version applies its actions on top of it, as Delta's own writers do."""
    made_by, compare = MemoryTables._version, MemoryTables._compare_and_set

    def settled(self: MemoryTables, request: CommitRequest, version: int, made: MemoryTableVersion) -> bool:
        try:
            done = self._compare_and_set(request.table, version, made)
        except UncertainPut:
            done = any(v.commit.write_id == request.write_id for v in self.tables.get(request.table, ()))
        if done:
            return True
        history = self.tables[request.table]
        before = history[version].live if version >= 0 else {}
        removed = before.keys() - made.live.keys()
        added = {path: f for path, f in made.live.items() if path not in before}
        live = {path: f for path, f in history[-1].live.items() if path not in removed} | added
        commit = made_by(self, request, len(history)).commit
        # The caller receives the version that the commit created.
        object.__setattr__(made, "live", live)
        object.__setattr__(made, "commit", commit)
        return compare(self, request.table, len(history) - 1, made)

    with patch.object(MemoryTables, "_settled", settled):
        yield


@contextmanager
def abort_is_not_final() -> Iterator[None]:
    """An abort revokes the attempt like a re-run does, and only then writes its record."""

    def abort(self: Attempts, plan: CheckpointPlan, failure: Failure) -> PlanState:
        while isinstance(found := self.state(plan), OpenPlan):
            if self._revoke(plan, found.attempt, None):
                record = AbortRecord(
                    id=plan.id,
                    slot=plan.slot,
                    attempts=found.attempt,
                    failure=failure,
                    at_ms=self.clock.now_ms(),
                    write_id=self.write_ids(),
                )
                self.objects.put(keys.abort_key(plan.slot), record)
                return Aborted(plan=plan, record=record)
        return found

    def walk(self: Attempts, plan: CheckpointPlan) -> OpenPlan | SealedPlan | Aborted:
        if (record := self.objects.abort(plan.slot)) is not None:
            return Aborted(plan=plan, record=record)
        return original(self, plan)

    original = Attempts._walk
    with patch.object(Attempts, "abort", abort), patch.object(Attempts, "_walk", walk):
        yield


@contextmanager
def adopt_whatever_there_is() -> Iterator[None]:
    """A plan adopts the newest compaction of the uid, regardless of its timeline and the checkpoints that it merged."""

    def adopted(
        self: InputPlanner, uid: str, timeline: str, handle: StateHandle, readable: Collection[str | None]
    ) -> tuple[StateHandle, tuple[str, CompactionRecord] | None]:
        found = [(key, self.objects.read(CompactionRecord, key)) for key in self.objects.list(f"compactions/{uid}/")]
        records = [(key, record) for key, record in found if record is not None]
        for key, record in sorted(records, key=lambda kr: kr[1].input.through, reverse=True)[:1]:
            cut = record.input.through
            rest = [replace(s, after=max(cut, s.after)) for s in handle if s.through > cut]
            return StateHandle((*record.output.segments, *rest)), (key, record)
        return handle, None

    with patch.object(InputPlanner, "_adopt_newest", adopted):
        yield


@contextmanager
def unknown_means_won() -> Iterator[None]:
    """A put whose reply was lost counts as won, without a check."""

    def put(self: Objects, key: str, value: object) -> PutOutcome:
        try:
            return self.store.put_if_absent(key, encode(value))
        except UncertainPut:
            return PutOutcome.WON

    with patch.object(Objects, "put", put):
        yield


@contextmanager
def promote_without_another_look() -> Iterator[None]:
    """A promote that loses its slot to a checkpoint takes the next slot without comparing the timelines again."""

    def promote(
        self: Promotion, name: str, *, discard: bool = False, send: bool = False
    ) -> Promoted | PromotionBlocked | Superseded:
        c = self.coordinator
        live, fork = c.head(), c.head(name)
        found = self.compare(live, fork)
        if found.left:
            return PromotionBlocked(timeline=name, lacking=found.left)
        closing = found.closing
        while not self._wins(closing):
            if isinstance(c.head(live.timeline).entry, Closing):
                return Superseded(closing=closing)
            closing = replace(closing, sequence=closing.sequence + 1)
        return Promoted(closing=closing)

    with patch.object(Promotion, "promote", promote):
        yield


@contextmanager
def void_counts_as_complete() -> Iterator[None]:
    """A sealed attempt reports that it is published, although a restore took its slot."""
    publish = Publisher.publish

    def published(
        self: Publisher, plan: CheckpointPlan, sealed: Sealed, before: SlotEntry | None = None
    ) -> Completed | Subsumed:
        done = publish(self, plan, sealed, before)
        if isinstance(done, Subsumed):
            return Completed(checkpoint=Checkpoint(plan=plan, sealed=sealed, covered_until_ms=None))
        return done

    with patch.object(Publisher, "publish", published):
        yield


@contextmanager
def promote_without_a_claim() -> Iterator[None]:
    """A promote does not claim its slot first, so closing the same fork cannot detect it."""
    with patch.object(PromotionClaims, "claim", lambda self, timeline, closes, sequence: True):
        yield


@contextmanager
def fold_stops_at_any_seal() -> Iterator[None]:
    """A fold stops at the first plan that it seals, as if that plan covered the interval."""
    with patch.object(loop, "_is_folded", lambda state, request: isinstance(state, SealedPlan)):
        yield


@contextmanager
def run_ends_fixed_again() -> Iterator[None]:
    """A planner fixes the ends of its run again, although another one did so after it looked."""
    fix = Runs.fix

    def fixed(self: Runs, *ends: Mapping[TopicPartition, int], after: int, **facts: object) -> PutOutcome:
        return fix(self, *ends, after=self.newest()[0], **facts)  # type: ignore[arg-type]

    with patch.object(Runs, "fix", fixed):
        yield


@contextmanager
def own_ends_in_any_case() -> Iterator[None]:
    """A planner goes by the ends that it found, although another one of the same run was faster."""
    fix = Runs.fix

    def fixed(self: Runs, *ends: Mapping[TopicPartition, int], **facts: object) -> PutOutcome:
        fix(self, *ends, **facts)  # type: ignore[arg-type]
        return PutOutcome.WON

    with patch.object(Runs, "fix", fixed):
        yield


BUGS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "drop-the-check": drop_the_check,
    "check-before-the-version": check_before_the_version,
    "one-look-for-two-versions": one_look_for_two_versions,
    "reuse-an-attempt": reuse_an_attempt,
    "publish-what-was-revoked": publish_what_was_revoked,
    "keep-orphans": keep_orphans,
    "rebase": rebase,
    "abort-is-not-final": abort_is_not_final,
    "adopt-whatever-there-is": adopt_whatever_there_is,
    "unknown-means-won": unknown_means_won,
    "promote-without-another-look": promote_without_another_look,
    "promote-without-a-claim": promote_without_a_claim,
    "fold-stops-at-any-seal": fold_stops_at_any_seal,
    "void-counts-as-complete": void_counts_as_complete,
    "run-ends-fixed-again": run_ends_fixed_again,
    "own-ends-in-any-case": own_ends_in_any_case,
}
"""Planted bugs by name."""
ACTORS: dict[str, frozenset[str]] = {
    "promote-without-another-look": frozenset({"promoter"}),
    "promote-without-a-claim": frozenset({"promoter", "restorer"}),
}
"""The only actors that reach the code of a bug. A schedule with none of them is the same without the bug."""
BETWEEN_TWO = frozenset({"run-ends-fixed-again", "own-ends-in-any-case"})
"""Bugs that only show between two actors of the same run."""
