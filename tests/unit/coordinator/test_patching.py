"""A patch in memory: what it completes, what it leaves alone, and what every crash on the way leads to."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.bank import ASK, PIPELINE, BankPipeline
from tests.support.crashes import Killed
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.recovery.savepoint_transform import Transformer, Transforming
from tidemark.errors import ConflictError, NameRefusedError
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Checkpoint, WrittenRun
from tidemark.model.checkpoint.store_objects import Failure, JobEnd, JobRecord
from tidemark.model.retention.savepoint import SavepointRequest, TombstoneKind
from tidemark.model.schema.key_groups import key_group
from tidemark.model.schema.operator_schema import run_columns
from tidemark.testing.twin.memory import MemoryCompute

STEPS = ("genesis", "ids", "patch.files", "patch.commit", "patch.record", "queries", "plan", "attempt")
POINTS = [f"{step}:{moment}" for step in (*STEPS, "publish", "savepoint") for moment in ("before", "after")]
SET = {"a": (10, 100), "new": (1, 5)}
GONE = ("b",)


class Crash:
    """Counts the points that are passed, and dies at one."""

    def __init__(self, at: str = "") -> None:
        self.at, self.passed = at, list[str]()

    def __call__(self, step: str, moment: str) -> None:
        self.passed.append(f"{step}:{moment}")
        if self.passed[-1] == self.at:
            raise Killed


def patcher(bank: BankPipeline, crash: Any = None) -> Transformer:
    """Sets two accounts and deletes one."""

    def write(uid: str, folder: str, number: int) -> WrittenRun:
        return bank.tables.write(folder, [_row(uid, key, number) for key in (*SET, *GONE)])

    coordinator: CheckpointCoordinator = bank.coordinator
    return Transformer(
        coordinator=replace(coordinator, listener=crash) if crash else coordinator, tables=bank.tables, write=write
    )


def _row(uid: str, account: str, number: int) -> dict[str, Any]:
    schema = PIPELINE.schemas()[uid]
    row: dict[str, Any] = dict.fromkeys(name for name, _ in run_columns(schema))
    payments, total = SET.get(account, (0, None))
    row |= {"account": account, "payments": payments, "total": total, "_last_at": 0, "_changed": number}
    row["_kind"] = "value" if account in SET else "tombstone"
    return row | {"_key_group": key_group((account,), schema.key_groups)}


def patching(checkpoint: Checkpoint, name: str = "fixed", timeline: str = "", origin: str = "patch 1") -> Transforming:
    return Transforming(
        restore_point=RestorePoint(checkpoint=checkpoint),
        pipeline=PIPELINE,
        timeline=timeline or name,
        savepoint=SavepointRequest(name=name, owner="me", origin=origin),
        uids=("accounts",),
    )


def accounts(bank: BankPipeline, checkpoint: Checkpoint) -> dict[str, tuple[int, int]]:
    compute = MemoryCompute(pipeline=bank.pipeline, log=bank.log, tables=bank.tables)
    rows = compute.resolve(checkpoint, "accounts")
    return {key[0]: (row["payments"], row["total"]) for key, row in rows.items()}


def grown() -> tuple[BankPipeline, Checkpoint]:
    """Three checkpoints; the second one is to be patched."""
    bank = BankPipeline()
    made = []
    for _ in range(3):
        for account in "abc":
            bank.send(1, account=account)
        made.append(bank.complete())
    return bank, made[1]


def test_a_patch_completes_an_idle_checkpoint_on_a_fork_and_pins_it() -> None:
    bank, source = grown()
    objects = {key: bank.store.get(key) for key in bank.store.list("")}
    done, pin = patcher(bank).transform(patching(source))
    assert (done.plan.parent, str(done.plan.slot), done.id) == (source.id, "fixed/2.1", 4)
    assert (pin.name, pin.checkpoint, pin.timeline) == ("fixed", done.id, "fixed")
    assert accounts(bank, done) == {"a": (10, 100), "c": (2, 2), "new": (1, 5)}
    assert accounts(bank, source) == {"a": (2, 2), "b": (2, 2), "c": (2, 2)}
    (*below, above) = done.handles["accounts"]
    assert tuple(below) == source.handles["accounts"].segments
    assert (above.after, above.through, above.rows) == (2, 4, 3)
    assert all(r.is_empty for _, r in done.plan.ranges.items())
    assert (done.plan.ranges.ends, done.now) == (source.plan.ranges.ends, source.now)
    assert {key: bank.store.get(key) for key in objects} == objects, "no object of before has changed"
    assert bank.coordinator.timelines.live() == "t1"


def test_the_fork_reads_on_and_what_it_reads_is_added_to_what_was_set() -> None:
    bank, source = grown()
    patcher(bank).transform(patching(source))
    bank.send(2, account="b")
    loop = replace(bank.loop, timeline="fixed")
    (done,) = loop.run_once(ASK).checkpoints
    assert accounts(bank, done) == {"a": (11, 101), "b": (3, 3), "c": (3, 3), "new": (1, 5)}
    bank.compact(done, "accounts", done.handles["accounts"])
    bank.send(1, account="a")
    (last,) = loop.run_once(ASK).checkpoints
    assert list(last.plan.adopted) == ["accounts"]
    assert accounts(bank, last) == {"a": (12, 102), "b": (3, 3), "c": (3, 3), "new": (1, 5)}
    bank.recovery.restore(RestorePoint(checkpoint=bank.coordinator.checkpoint(4), savepoint="fixed"))
    restored = bank.complete()
    assert restored.plan.slot.timeline == "t2"
    assert accounts(bank, restored) == accounts(bank, last)


def test_every_step_of_a_patch_is_swept() -> None:
    bank, source = grown()
    crash = Crash()
    patcher(bank, crash).transform(patching(source))
    assert set(crash.passed) == set(POINTS)


@pytest.mark.parametrize("point", POINTS)
def test_a_patch_that_died_is_finished_by_the_same_patch(point: str) -> None:
    bank, source = grown()
    with pytest.raises(Killed):
        patcher(bank, Crash(point)).transform(patching(source))
    done, pin = patcher(bank).transform(patching(source))
    assert (pin.checkpoint, done.plan.slot.timeline) == (done.id, "fixed")
    assert done.id == (5 if _is_new(point) else 4)
    assert accounts(bank, done) == {"a": (10, 100), "c": (2, 2), "new": (1, 5)}
    assert accounts(bank, source) == {"a": (2, 2), "b": (2, 2), "c": (2, 2)}
    assert patcher(bank).transform(patching(source)) == (done, pin), "it finds its own work"
    assert [c.id for c in bank.coordinator.timelines.chain("fixed")] == [done.id, 2, 1]
    bank.send(1, account="a")
    assert accounts(bank, bank.complete())["a"] == (4, 4), "the live timeline goes on"
    _refuse_open_jobs(bank)


def _is_new(point: str) -> bool:
    """Whether what died had taken an id and had no plan yet."""
    steps = ["ids:after", *(p for p in POINTS if p.startswith(("patch.", "queries:"))), "plan:before"]
    return point in steps


def _refuse_open_jobs(bank: BankPipeline) -> None:
    objects = bank.coordinator.objects
    jobs = [k for k in objects.list("jobs/") if not k.endswith(".end.json")]
    assert jobs
    for key in jobs:
        found, end = objects.read(JobRecord, key), objects.read(JobEnd, key.replace(".json", ".end.json"))
        assert found is not None and found.kind == "patch" and end is not None


@pytest.mark.parametrize("point", ["plan:after", "attempt:before", "attempt:after", "publish:before"])
def test_a_plan_that_was_left_open_is_completed_by_an_ordinary_run(point: str) -> None:
    bank, source = grown()
    with pytest.raises(Killed):
        patcher(bank, Crash(point)).transform(patching(source))
    loop = replace(bank.loop, timeline="fixed")
    (found, *_) = loop.run_once(ASK).checkpoints
    assert found.id == 4
    assert accounts(bank, found) == {"a": (10, 100), "c": (2, 2), "new": (1, 5)}
    done, pin = patcher(bank).transform(patching(source))
    assert (done, pin.checkpoint) == (found, 4)


def test_a_plan_that_was_aborted_is_planned_anew_by_the_same_patch() -> None:
    bank, source = grown()
    with pytest.raises(Killed):
        patcher(bank, Crash("plan:after")).transform(patching(source))
    failure = Failure(reason=FailureReason.DECLINED, message="no", next="")
    bank.coordinator.abort(bank.coordinator.plan_of(4), failure)
    done, pin = patcher(bank).transform(patching(source))
    assert (str(done.plan.slot), done.id, pin.checkpoint) == ("fixed/2.2", 5, 5)
    assert accounts(bank, done) == {"a": (10, 100), "c": (2, 2), "new": (1, 5)}


def test_names_that_are_taken_are_refused_before_anything_is_written() -> None:
    bank, source = grown()
    patcher(bank).transform(patching(source))
    bank.recovery.fork(RestorePoint(checkpoint=source), "mine")
    before = bank.store.list("")
    with pytest.raises(ConflictError, match="savepoint fixed exists already"):
        patcher(bank).transform(patching(source, timeline="other", origin="patch 2"))
    for timeline in ("mine", "fixed"):
        with pytest.raises(ConflictError, match=f"timeline {timeline} exists already"):
            patcher(bank).transform(patching(source, "better", timeline, "patch 2"))
    with pytest.raises(NameRefusedError):
        patcher(bank).transform(patching(source, "better", "t7", "patch 2"))
    assert bank.store.list("") == before


def test_a_fork_that_somebody_ran_before_the_patch_was_planned_keeps_what_it_did() -> None:
    bank, source = grown()
    with pytest.raises(Killed):
        patcher(bank, Crash("ids:before")).transform(patching(source))
    loop = replace(bank.loop, timeline="fixed")
    loop.run_once(ASK)
    with pytest.raises(ConflictError, match="has continued without the patch"):
        patcher(bank).transform(patching(source))


def test_what_is_about_to_be_deleted_is_not_patched() -> None:
    bank, source = grown()
    bank.savepoints.tombstones.raise_for(TombstoneKind.CHECKPOINT, "chk-2", "released")
    with pytest.raises(ConflictError, match="chk-2 is about to be deleted"):
        patcher(bank).transform(patching(source))


def test_a_patch_may_be_patched() -> None:
    bank, source = grown()
    first, _ = patcher(bank).transform(patching(source))
    second, _ = patcher(bank).transform(patching(first, "again", origin="patch 2"))
    schemas = [c.plan.schemas["accounts"].patched for c in (source, first, second)]
    assert schemas == [0, first.id, second.id]
    assert accounts(bank, second) == accounts(bank, first)
