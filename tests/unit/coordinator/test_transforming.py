"""A transform in memory: what it replaces, what it leaves alone, and what every crash on the way leads to."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.bank import ASK, PIPELINE, BankPipeline
from tests.support.crashes import Killed
from tests.unit.coordinator.test_patching import Crash, accounts, grown
from tidemark.coordinator.plans.inputs import InputPlanner, carried_over
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.recovery.idle_plans import parent_of
from tidemark.coordinator.recovery.savepoint_transform import Transformer, Transforming
from tidemark.errors import ConflictError, IncompatibleStateError
from tidemark.model.checkpoint.manifest import Checkpoint, WrittenRun
from tidemark.model.checkpoint.plan import Slot
from tidemark.model.checkpoint.store_objects import Genesis, JobEnd, JobRecord
from tidemark.model.core.types import FieldType
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.model.schema.key_groups import key_group
from tidemark.model.schema.operator_schema import KeyColumn, run_columns
from tidemark.model.state.evolution import ReplacedStates

STEPS = ("genesis", "ids", "transform.files", "transform.commit", "transform.record", "queries", "plan", "attempt")
POINTS = [f"{step}:{moment}" for step in (*STEPS, "publish", "savepoint") for moment in ("before", "after")]
NEW = {"A": (10, 100), "B": (1, 5)}
GROUPS = 8


def transformer(bank: BankPipeline, crash: Any = None) -> Transformer:
    """Writes two accounts in place of all others."""

    def write(uid: str, folder: str, number: int) -> WrittenRun:
        return bank.tables.write(folder, [_row(uid, key, number) for key in NEW])

    c = bank.coordinator
    return Transformer(coordinator=replace(c, listener=crash) if crash else c, tables=bank.tables, write=write)


def _row(uid: str, account: str, number: int) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(name for name, _ in run_columns(PIPELINE.schemas()[uid]))
    payments, total = NEW[account]
    row |= {"account": account, "payments": payments, "total": total, "_last_at": 0, "_changed": number}
    return row | {"_kind": "value", "_key_group": key_group((account,), GROUPS)}


def transforming(checkpoint: Checkpoint, *, origin: str = "transform 1", rows: bool = True) -> Transforming:
    uids = frozenset({"accounts"})
    return Transforming(
        restore_point=RestorePoint(checkpoint=checkpoint, replaced=ReplacedStates(uids, uids, GROUPS)),
        pipeline=PIPELINE,
        timeline="rewritten",
        savepoint=SavepointRequest(name="rewritten", owner="me", origin=origin),
        uids=("accounts",) if rows else (),
    )


def test_a_transform_replaces_the_whole_state_on_a_fork() -> None:
    bank, source = grown()
    objects = {key: bank.store.get(key) for key in bank.store.list("")}
    done, pin = transformer(bank).transform(transforming(source))
    assert (done.plan.parent, str(done.plan.slot), done.id) == (source.id, "rewritten/2.1", 4)
    assert (pin.name, pin.checkpoint, pin.timeline) == ("rewritten", done.id, "rewritten")
    assert accounts(bank, done) == NEW
    (segment,) = done.handles["accounts"]
    assert (segment.after, segment.through, segment.rows) == (0, 4, 2)
    schema = done.plan.schemas["accounts"]
    assert (schema.key_groups, schema.patched, schema.older) == (GROUPS, 0, ())
    assert (done.plan.ranges.ends, done.now) == (source.plan.ranges.ends, source.now)
    assert {key: bank.store.get(key) for key in objects} == objects, "no object of before has changed"
    assert bank.coordinator.timelines.live() == "t1"
    genesis = bank.coordinator.objects.slot("rewritten", 1)
    assert isinstance(genesis, Genesis)
    assert genesis.handles == source.handles, "it pins what was read"


def test_the_fork_goes_on_with_the_new_state_in_its_key_groups() -> None:
    bank, source = grown()
    done, _ = transformer(bank).transform(transforming(source))
    loop = replace(bank.loop, timeline="rewritten")
    bank.send(2, account="A")
    (ran,) = loop.run_once(ASK).checkpoints
    third = {"a": (1, 1), "b": (1, 1), "c": (1, 1)}
    assert accounts(bank, ran) == {**third, "A": (12, 102), "B": (1, 5)}
    assert ran.plan.schemas["accounts"].key_groups == GROUPS
    rows = bank.tables.rows(ran.handles["accounts"])
    assert all(row["_key_group"] == key_group((row["account"],), GROUPS) for row in rows)
    assert len(rows) == len(NEW) + 4
    bank.compact(ran, "accounts", ran.handles["accounts"])
    bank.send(1, account="B")
    (last,) = loop.run_once(ASK).checkpoints
    assert list(last.plan.adopted) == ["accounts"]
    assert accounts(bank, last)["B"] == (2, 6)
    assert accounts(bank, bank.complete()) == {"a": (3, 3), "b": (3, 3), "c": (3, 3), "A": (2, 2), "B": (1, 1)}


def test_a_state_without_a_row_is_empty() -> None:
    bank, source = grown()
    done, _ = transformer(bank).transform(transforming(source, rows=False))
    assert not done.handles["accounts"]
    bank.send(1, account="a")
    (ran,) = replace(bank.loop, timeline="rewritten").run_once(ASK).checkpoints
    assert accounts(bank, ran) == {"a": (2, 2), "b": (1, 1), "c": (1, 1)}


def test_every_step_of_a_transform_is_swept() -> None:
    bank, source = grown()
    crash = Crash()
    transformer(bank, crash).transform(transforming(source))
    assert set(crash.passed) == set(POINTS)


@pytest.mark.parametrize("point", POINTS)
def test_a_transform_that_died_is_finished_by_the_same_one(point: str) -> None:
    bank, source = grown()
    with pytest.raises(Killed):
        transformer(bank, Crash(point)).transform(transforming(source))
    done, pin = transformer(bank).transform(transforming(source))
    assert (pin.checkpoint, done.plan.slot.timeline) == (done.id, "rewritten")
    assert accounts(bank, done) == NEW
    assert accounts(bank, source) == {"a": (2, 2), "b": (2, 2), "c": (2, 2)}
    assert transformer(bank).transform(transforming(source)) == (done, pin), "it finds its own work"
    bank.send(1, account="a")
    assert accounts(bank, bank.complete())["a"] == (4, 4), "the live timeline continues"
    objects = bank.coordinator.objects
    for key in objects.list("jobs/"):
        if not key.endswith(".end.json"):
            found, end = objects.read(JobRecord, key), objects.read(JobEnd, key.replace(".json", ".end.json"))
            assert found is not None and found.kind == "transform" and end is not None


def test_another_transform_of_the_same_name_is_refused() -> None:
    bank, source = grown()
    transformer(bank).transform(transforming(source))
    before = bank.store.list("")
    with pytest.raises(ConflictError, match="savepoint rewritten exists already"):
        transformer(bank).transform(transforming(source, origin="transform 2"))
    assert bank.store.list("") == before


def test_a_run_before_the_plan_goes_on_without_the_transform_and_it_says_so() -> None:
    bank, source = grown()
    with pytest.raises(Killed):
        transformer(bank, Crash("ids:before")).transform(transforming(source))
    (ran,) = replace(bank.loop, timeline="rewritten").run_once(ASK).checkpoints
    assert accounts(bank, ran) == {"a": (3, 3), "b": (3, 3), "c": (3, 3)}
    with pytest.raises(ConflictError, match="has continued without the transform"):
        transformer(bank).transform(transforming(source))


def test_only_what_is_replaced_may_be_declared_in_another_way() -> None:
    bank, source = grown()
    declared = PIPELINE.schemas()
    other = replace(declared["accounts"], keys=(KeyColumn("who", "account", FieldType("str")),))
    genesis = bank.recovery.genesis(RestorePoint(checkpoint=source))
    parent = parent_of(replace(genesis, timeline="rewritten"))
    with pytest.raises(IncompatibleStateError, match="accounts.key"):
        carried_over(parent, {"accounts": other}, {}, allow_removed=False)
    uids = frozenset({"accounts"})
    found = carried_over(parent, {"accounts": other}, {}, allow_removed=False, replaced=ReplacedStates(uids))
    assert (found.state("accounts").segments, found.folder("accounts"), found.left_behind) == ((), None, {})
    assert found.schema("accounts", found.state("accounts")).keys == other.keys
    moved = {"others": replace(other, uid="others")}
    with pytest.raises(IncompatibleStateError, match="accounts: is no longer declared"):
        carried_over(parent, moved, {}, allow_removed=False, replaced=ReplacedStates(frozenset({"others"})))
    read = ReplacedStates(frozenset({"others"}), uids)
    assert carried_over(parent, moved, {}, allow_removed=False, replaced=read).left_behind == {}


def test_a_plan_takes_the_stored_number_of_key_groups_over() -> None:
    bank, source = grown()
    genesis = bank.recovery.genesis(RestorePoint(checkpoint=source))
    stored = {uid: replace(schema, key_groups=GROUPS) for uid, schema in genesis.schemas.items()}
    parent = parent_of(replace(genesis, timeline="rewritten", schemas=stored))
    planner = InputPlanner(objects=bank.coordinator.objects, files_exist=lambda handle: True)
    found = planner.plan(PIPELINE, Slot(timeline="rewritten", sequence=2), parent, allow_removed=False)
    assert found.schemas["accounts"].key_groups == GROUPS
