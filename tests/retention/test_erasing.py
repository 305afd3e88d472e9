"""Erasure of a key from every restore point: in dicts, and on real Delta tables read by deltalake and pyarrow (Q9)."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest

from tests.support.crashes import CrashAt, Killed
from tests.support.retention import ASK, ONE_FOLD, DiskRetentionPipeline, MemoryRetentionPipeline, RetentionPipeline
from tidemark.coordinator.plans import inputs
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.states import Aborted, NothingOpen, OpenPlan
from tidemark.coordinator.records.timelines import Erasures
from tidemark.coordinator.records.tombstones import of_checkpoints
from tidemark.coordinator.retention.root_set import collect_roots
from tidemark.declare.retention import Retention
from tidemark.errors import ConflictError
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.operations.replay import Rehearsal
from tidemark.testing.twin.memory import MemoryCompute

Make = Callable[[Path], RetentionPipeline]
WORLDS = [
    pytest.param(lambda at: MemoryRetentionPipeline(), id="memory"),
    pytest.param(DiskRetentionPipeline, id="disk"),
]


def kept(retained: RetentionPipeline) -> list[Checkpoint]:
    """Checkpoints that were not released."""
    gone = {name for name, t in of_checkpoints(retained.coordinator.objects).items() if t.confirmed}
    return [c for c in retained.coordinator.timelines.all() if c.plan.name not in gone]


def holding(retained: RetentionPipeline, uid: str, key: str) -> dict[str, int]:
    """Rows of a key per restore point that is kept, read without the product's search."""
    found = {}
    for c in kept(retained):
        rows = [r for a in c.sealed.acks if a.uid == uid for r in retained.held(a.handle) if r["account"] == key]
        found[c.plan.name] = len(rows)
    return found


def others(retained: RetentionPipeline, key: str) -> dict[str, dict[str, list[str]]]:
    """All rows that every checkpoint names, but for those of a key."""
    return {
        c.plan.name: {k: [r for r in rows if f"'account': '{key}'" not in r] for k, rows in retained.rows(c).items()}
        for c in kept(retained)
    }


@pytest.mark.parametrize("make", WORLDS)
def test_a_key_is_gone_from_every_checkpoint_and_all_else_stays(make: Make, tmp_path: Path) -> None:
    retained = make(tmp_path)
    for accounts in (["ann", "bob"], ["bob"], ["ann", "cid"]):
        retained.checkpoint(*accounts)
    retained.merge("accounts")
    retained.checkpoint("ann", "bob")
    retained.checkpoint("bob")
    assert holding(retained, "accounts", "ann") == {"chk-1": 1, "chk-2": 1, "chk-3": 2, "chk-4": 2, "chk-5": 2}
    before = others(retained, "ann")
    done = retained.erase("accounts", "ann")
    assert done.number == 1
    assert sorted(done.restore_points) == [f"chk-{n}" for n in range(1, 6)]
    assert set(holding(retained, "accounts", "ann").values()) == {0}
    assert others(retained, "ann") == before
    assert retained.erase("accounts", "ann").number == 0, "there is nothing left to erase"
    retained.sweep(None)
    assert others(retained, "ann") == before
    retained.checkpoint("ann", "dan")
    assert holding(retained, "accounts", "ann")["chk-6"] == 1, "later records count"
    retained.sweep(Retention.keep_last(1))
    assert holding(retained, "accounts", "ann")["chk-6"] == 1


def points() -> list[str]:
    """Every crash point of an erasure, in order."""
    seen: list[str] = []
    line(MemoryRetentionPipeline()).erase("accounts", "ann", lambda step, moment: seen.append(f"{step}:{moment}"))
    return seen


def line(retained: RetentionPipeline) -> RetentionPipeline:
    """Three checkpoints, one compacted; a fork with a checkpoint, one without; a plan that was left open."""
    retained.checkpoint("ann", "bob")
    retained.checkpoint("bob", "ann")
    retained.merge("accounts")
    retained.checkpoint("ann", "cid")
    retained.fork("trial", 2)
    retained.checkpoint("ann", timeline="trial")
    retained.fork("newborn", 3)
    retained.pay("ann")
    retained.coordinator.trigger(retained.pipeline, ASK)
    return retained


def test_an_erasure_passes_all_of_its_crash_points() -> None:
    steps = {point.partition(":")[0] for point in points()}
    wanted = ("record", "job", "plans", "files", "commit", "revision", "end")
    assert steps >= {f"erase.{step}" for step in wanted}


@pytest.mark.parametrize("nth", range(1, len(points()) + 1))
def test_an_erasure_that_dies_anywhere_comes_to_its_end_when_it_is_repeated(nth: int) -> None:
    retained = line(MemoryRetentionPipeline())
    before = others(retained, "ann")
    with pytest.raises(Killed):
        retained.erase("accounts", "ann", CrashAt(nth))
    assert others(retained, "ann") == before, "half done is still whole"
    retained.erase("accounts", "ann")
    assert set(holding(retained, "accounts", "ann").values()) == {0}
    assert others(retained, "ann") == before
    retained.sweep(None)
    assert others(retained, "ann") == before
    assert Erasures(retained.coordinator.objects).open() == []
    assert retained.checkpoint("ann").handles, "the pipeline goes on"
    assert retained.checkpoint("dan", timeline="newborn").handles


@pytest.mark.parametrize("nth", range(1, len(points()) + 1, 5))
def test_on_delta_tables_too(nth: int, tmp_path: Path) -> None:
    retained = line(DiskRetentionPipeline(tmp_path))
    before = others(retained, "ann")
    with pytest.raises(Killed):
        retained.erase("accounts", "ann", CrashAt(nth))
    retained.erase("accounts", "ann")
    assert set(holding(retained, "accounts", "ann").values()) == {0}
    assert others(retained, "ann") == before
    retained.sweep(None)
    tables = [p for p in (tmp_path / "shelf/state/accounts").rglob("*") if p.is_file()]
    assert not [p for p in tables if b"ann" in p.read_bytes()]


def test_a_compaction_of_what_was_revised_since_is_never_adopted() -> None:
    retained = MemoryRetentionPipeline()
    retained.checkpoint("ann", "bob")
    found = retained.checkpoint("ann")
    retained.erase("accounts", "ann")
    retained.compact(found, "accounts", found.handles["accounts"])  # it had read the manifest before
    after = retained.checkpoint("bob")
    assert after.plan.adopted == {}
    assert holding(retained, "accounts", "ann") == {"chk-1": 0, "chk-2": 0, "chk-3": 0}
    assert collect_roots(retained.coordinator, None).jobs.adoptable == ()
    retained.merge("accounts")
    assert "accounts" in retained.checkpoint("cid").plan.adopted, "a later one is"


def test_without_the_look_at_the_revision_a_compaction_brings_the_key_back() -> None:
    retained = MemoryRetentionPipeline()
    found = retained.checkpoint("ann", "bob")
    retained.erase("accounts", "ann")
    retained.compact(found, "accounts", found.handles["accounts"])
    with patch.object(inputs, "is_void", lambda *given: False):
        retained.checkpoint("bob")
    assert holding(retained, "accounts", "ann") == {"chk-1": 0, "chk-2": 1}, "the test above would not see it"


def test_a_plan_that_was_made_of_what_was_revised_since_takes_no_attempt() -> None:
    retained = MemoryRetentionPipeline()
    retained.checkpoint("ann")
    head = retained.coordinator.head()
    retained.erase("accounts", "ann")
    free = retained.coordinator.next_plan(head)
    retained.pay("bob")
    assert isinstance(free, NothingOpen)
    late = retained.coordinator._planner().plan(retained.pipeline, ASK, head, free)  # who planned had read the old head
    assert isinstance(late, OpenPlan)
    state = retained.coordinator.begin(late.plan)
    assert isinstance(state, Aborted)
    assert state.record.failure.reason is FailureReason.STATE_ERASED
    retained.checkpoint("cid")
    assert set(holding(retained, "accounts", "ann").values()) == {0}


def test_a_timeline_that_began_with_what_was_revised_since_takes_no_checkpoint_and_holds_nothing() -> None:
    retained = MemoryRetentionPipeline()
    found = retained.checkpoint("ann")
    retained.erase("accounts", "ann")
    with pytest.raises(ConflictError, match="a key was erased from chk-1 while timeline late began there"):
        retained.recovery.fork(RestorePoint(checkpoint=found), "late")
    with pytest.raises(ConflictError, match="run the command again"):
        retained.checkpoint("bob", timeline="late")
    survey = collect_roots(retained.coordinator, None)
    assert survey.stillborn == {"late"}
    retained.sweep(None)
    state = [rows for path, rows in retained.tables.files.items() if "/state/accounts/" in path]
    assert not [r for rows in state for r in rows if r["account"] == "ann"]
    retained.fork("again", 1)
    retained.checkpoint("bob", timeline="again")


def test_a_sweep_between_the_commit_and_the_revision_deletes_nothing_of_either() -> None:
    retained = line(MemoryRetentionPipeline())
    before = others(retained, "ann")

    def sweep(step: str, moment: str) -> None:
        if (step, moment) == ("erase.revision", "before"):
            retained.sweep(None)

    retained.erase("accounts", "ann", sweep)
    assert others(retained, "ann") == before
    assert set(holding(retained, "accounts", "ann").values()) == {0}


def test_two_erasures_at_once_both_come_to_their_end() -> None:
    retained = line(MemoryRetentionPipeline())
    before = others(retained, "ann")
    inside: list[int] = []

    def other(step: str, moment: str) -> None:
        if (step, moment) == ("erase.revision", "before") and not inside:
            inside.append(retained.erase("accounts", "bob").number)

    retained.erase("accounts", "ann", other)
    assert inside == [2]
    for key in ("ann", "bob"):
        assert set(holding(retained, "accounts", key).values()) == {0}, key
    for name, kinds in others(retained, "ann").items():
        left = [r for r in before[name]["accounts state"] if "'account': 'bob'" not in r]
        assert kinds["accounts state"] == left


@pytest.mark.parametrize("seed", range(25))
def test_what_is_remembered_after_erasures_is_what_came_since(seed: int) -> None:
    """Plain counts, from which an erased key is taken: what came before its erasure counts no more."""
    print(f"seed {seed}")
    rng, retained = Random(seed), MemoryRetentionPipeline(pipeline=ONE_FOLD)
    counts: dict[str, int] = {}
    blocked: set[str] = set()
    compute = MemoryCompute(pipeline=ONE_FOLD, log=retained.log, tables=retained.tables)
    for _ in range(25):
        act = rng.choice(("pay", "pay", "pay", "erase", "merge", "block", "sweep"))
        key = rng.choice("abcd")
        if act == "pay":
            accounts = [rng.choice("abcd") for _ in range(3)]
            for account in accounts:
                counts[account] = counts.get(account, 0) + (account not in blocked)
            found = retained.checkpoint(*accounts)
            state = {k[0]: row["payments"] for k, row in compute.resolve(found, "accounts").items()}
            assert state == {k: n for k, n in counts.items() if n}
        elif act == "merge":
            retained.merge("accounts")
        elif act == "sweep":
            retained.sweep(Retention.keep_last(2))
        else:
            forever = act == "block" and rng.random() < 0.4
            retained.erase("accounts", key, forever=forever)
            counts.pop(key, None)
            blocked |= {key} if forever else set()


@pytest.mark.parametrize("uid", ["accounts", "teller"])
def test_a_replay_of_an_erased_checkpoint_comes_to_the_state_that_is_recorded(uid: str) -> None:
    retained = MemoryRetentionPipeline()
    retained.checkpoint("ann", "bob")
    retained.checkpoint("ann", "cid", "bob")
    retained.merge(uid)
    retained.checkpoint("ann")
    retained.erase(uid, "ann")
    retained.checkpoint("ann", "bob", "ann")
    compute = MemoryCompute(pipeline=retained.pipeline, log=retained.log, tables=retained.tables)
    counts = {}
    for found in kept(retained):
        rehearsal = Rehearsal(found.plan, f"shelf/scratch/{found.id}")
        again = replace(found, plan=rehearsal.plan, sealed=retained.run(rehearsal))
        recorded, replayed = compute.resolve(found, uid), compute.resolve(again, uid)
        assert replayed == recorded, found.plan.name
        counts[found.plan.name] = {key[0]: row["payments"] for key, row in recorded.items()}
    assert counts == {
        "chk-1": {"bob": 1},
        "chk-2": {"bob": 2, "cid": 1},
        "chk-3": {"bob": 2, "cid": 1},
        "chk-4": {"bob": 3, "cid": 1, "ann": 2},
    }
