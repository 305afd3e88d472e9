"""Input handles: those of the parent, with compactions adopted only where they are an exact prefix (E16)."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.bank import ASK, P0, PIPELINE, Account, BankPipeline, Wider
from tidemark import Fold, state
from tidemark.coordinator.plans.inputs import adopt
from tidemark.errors import IncompatibleStateError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.segments import Segment, StateHandle
from tidemark.model.checkpoint.store_objects import CompactionRecord

RUNS, BASE = "bank/state/accounts/t1-1/runs", "bank/state/accounts/t1-1/base"


class More(state.Keyed):
    """An account with another field."""

    payments: int = state.count()
    total: int | None = state.sum("amount")
    least: int | None = state.min("amount")


class Bounded(state.Keyed):
    """An account that forgets."""

    payments: int | None = state.count(ttl=timedelta(days=1))
    total: int | None = state.sum("amount")


class Longer(state.Keyed):
    """The same, later."""

    payments: int | None = state.count(ttl=timedelta(days=2))
    total: int | None = state.sum("amount")


def seg(path: str, after: int, through: int, rows: int = 1, version: int = 0) -> Segment:
    return Segment(after=after, through=through, path=path, version=version, rows=rows, bytes=10 * rows, files=rows)


def record(read: StateHandle, made: StateHandle, job: str = "j1", timeline: str = "t1") -> CompactionRecord:
    return CompactionRecord(
        uid="accounts",
        job=job,
        checkpoint=read.through,
        timeline=timeline,
        input=read,
        output=made,
        commits=(),
        write_id=job,
    )


BASE_2 = StateHandle((seg(BASE, 0, 2, rows=4),))


def test_the_rest_of_the_runs_keeps_its_version_and_loses_what_was_compacted() -> None:
    parent = StateHandle((seg(RUNS, 0, 5, rows=9, version=4),))
    found = adopt(parent, record(StateHandle((seg(RUNS, 0, 2, rows=6, version=1),)), BASE_2))
    assert found == StateHandle((*BASE_2.segments, seg(RUNS, 2, 5, rows=3, version=4)))


def test_a_compaction_of_everything_leaves_no_rest() -> None:
    parent = StateHandle((seg(RUNS, 0, 2, rows=6),))
    assert adopt(parent, record(parent, BASE_2)) == BASE_2


def test_a_second_compaction_absorbs_the_base() -> None:
    parent = StateHandle((*BASE_2.segments, seg(RUNS, 2, 7, rows=5)))
    read = StateHandle((*BASE_2.segments, seg(RUNS, 2, 4, rows=2)))
    made = StateHandle((seg(BASE, 0, 4, version=1),))
    assert adopt(parent, record(read, made)) == StateHandle((*made.segments, seg(RUNS, 4, 7, rows=3)))


@pytest.mark.parametrize(
    ("parent", "read"),
    [
        (StateHandle((seg(BASE, 0, 4), seg(RUNS, 4, 5))), StateHandle((seg(RUNS, 0, 2),))),  # cuts a base
        (StateHandle((seg(RUNS, 1, 5),)), StateHandle((seg(RUNS, 0, 2),))),  # begins elsewhere
        (StateHandle((seg(RUNS, 0, 1),)), StateHandle((seg(RUNS, 0, 2),))),  # reaches beyond
        (StateHandle((seg(BASE, 0, 1), seg(RUNS, 1, 5))), StateHandle((seg(RUNS, 0, 2),))),  # other lower bound
        (StateHandle(), StateHandle((seg(RUNS, 0, 2),))),
    ],
)
def test_what_is_no_exact_prefix_is_not_adopted(parent: StateHandle, read: StateHandle) -> None:
    assert adopt(parent, record(read, StateHandle((seg(BASE, 0, 2),)))) is None


def test_an_output_of_another_range_is_not_adopted() -> None:
    parent = StateHandle((seg(RUNS, 0, 5),))
    assert adopt(parent, record(StateHandle((seg(RUNS, 0, 2),)), StateHandle((seg(BASE, 0, 3),)))) is None


def _house_with_runs() -> tuple[BankPipeline, StateHandle]:
    bank = BankPipeline()
    for _ in range(3):
        bank.send(1)
        bank.complete()
    return bank, bank.coordinator.checkpoint(2).handles["accounts"]


def _put(bank: BankPipeline, made: CompactionRecord) -> str:
    key = keys.compaction_key("accounts", made.job)
    bank.coordinator.objects.put(key, made)
    return key


def test_the_next_plan_adopts_the_newest_whose_files_are_there() -> None:
    bank, read = _house_with_runs()
    _put(bank, record(read, StateHandle((seg(BASE, 0, 2, version=7),)), job="j2"))  # version 7 does not exist
    older = bank.coordinator.checkpoint(1).handles["accounts"]
    empty = seg(BASE, 0, 1, rows=0, version=0)
    bank.tables.tables[BASE] = [replace(bank.tables.tables[RUNS][0], live={})]
    wanted = _put(bank, record(older, StateHandle((empty,)), job="j1"))
    plan = bank.plan()
    assert plan.adopted == {"accounts": wanted}
    assert plan.handles["accounts"].segments[0] == empty
    assert plan.handles["accounts"].segments[1].after == 1


@pytest.mark.parametrize(("timeline", "adopted"), [("t1", ["accounts"]), ("t9", [])])
def test_a_compaction_of_another_timeline_is_not_adopted(timeline: str, adopted: list[str]) -> None:
    bank, read = _house_with_runs()
    bank.tables.tables[BASE] = [replace(bank.tables.tables[RUNS][0], live={})]
    _put(bank, record(read, StateHandle((seg(BASE, 0, 2, rows=0),)), timeline=timeline))
    assert list(bank.plan().adopted) == adopted, "all its files are there"


def test_an_adopted_compaction_is_not_adopted_again() -> None:
    bank, read = _house_with_runs()
    bank.tables.tables[BASE] = [replace(bank.tables.tables[RUNS][0], live={})]
    _put(bank, record(read, StateHandle((seg(BASE, 0, 2, rows=0),))))
    assert bank.complete().plan.adopted != {}
    assert bank.plan().adopted == {}


def test_tables_and_schemas_stay_with_their_uid() -> None:
    plan = BankPipeline().plan()
    assert plan.tables == {"accounts": "bank/state/accounts/t1-1"}
    assert plan.schemas == PIPELINE.schemas()


def test_an_added_operator_starts_empty() -> None:
    bank, _ = _house_with_runs()
    bank.pipeline = replace(PIPELINE, operators=[*PIPELINE.operators, Fold("new", key_by="account", state=Account)])
    plan = bank.plan()
    assert list(plan.handles) == ["accounts", "new"]
    assert not plan.handles["new"]


def test_all_that_does_not_fit_is_said_at_once_by_uid_and_field() -> None:
    bank, _ = _house_with_runs()
    accounts = Fold("accounts", key_by="amount", state=Wider)
    others = Fold("others", key_by="account", state=Account, was="nobody")
    bank.pipeline = replace(PIPELINE, operators=[accounts, others])
    with pytest.raises(IncompatibleStateError) as caught:
        bank.plan()
    assert caught.value.what == (
        "the pipeline does not fit its state:"
        " others: was='nobody' names no operator with state; there are accounts (correct was=, or omit it);"
        " accounts.key: (account STRING) became (amount BIGINT) (give the operator a new uid);"
        " accounts.total: sum('amount') became max('amount') (declare it under a new name)"
    )
    assert len(bank.coordinator.objects.list("ids/")) == 3, "a refused plan takes no id"


def test_a_changed_schema_starts_new_tables_and_an_equal_one_goes_on() -> None:
    bank, _ = _house_with_runs()
    assert bank.plan().tables == {"accounts": "bank/state/accounts/t1-1"}
    more = replace(PIPELINE, operators=[Fold("accounts", key_by="account", state=More)])
    bank.pipeline = more
    bank.send(1)
    made = bank.complete()  # the open plan of the other declaration is given up: 4
    assert made.plan.tables == {"accounts": "bank/state/accounts/t1-5"}
    (older,) = made.plan.schemas["accounts"].older
    assert (older.folder, set(older.fields)) == ("bank/state/accounts/t1-1", {"payments", "total"})
    assert bank.complete().plan.tables == made.plan.tables


def test_a_ttl_and_a_limit_change_in_the_tables_that_are_there() -> None:
    bank, _ = _house_with_runs()
    bank.pipeline = replace(PIPELINE, operators=[Fold("accounts", key_by="account", state=Bounded)])
    first = bank.complete().plan
    bank.pipeline = replace(PIPELINE, operators=[Fold("accounts", key_by="account", state=Longer)])
    assert bank.complete().plan.tables == first.tables


def test_a_removed_operator_is_refused_unless_it_is_let_go() -> None:
    bank, _ = _house_with_runs()
    bank.pipeline = replace(PIPELINE, operators=[Fold("others", key_by="account", state=Account)])
    with pytest.raises(IncompatibleStateError, match=r"accounts: is no longer declared, but has state \(declare"):
        bank.plan()
    left = bank.coordinator.checkpoint(3).handles
    plan = bank.complete(replace(ASK, allow_non_restored_state=True)).plan
    assert (list(plan.handles), plan.left_behind) == (["others"], left)
    assert bank.complete().plan.left_behind == {}


def test_a_uid_that_comes_back_starts_empty_in_new_tables() -> None:
    bank, _ = _house_with_runs()
    bank.pipeline = replace(PIPELINE, operators=[Fold("others", key_by="account", state=Account)])
    bank.complete(replace(ASK, allow_non_restored_state=True))
    bank.pipeline = replace(PIPELINE, operators=[*bank.pipeline.operators, *PIPELINE.operators])
    bank.send(1)
    made = bank.complete().plan
    assert not made.handles["accounts"]
    assert made.tables["accounts"] == f"bank/state/accounts/t1-{made.id}"
    assert bank.state("accounts") == {("a",): (1, 1)}


def test_a_renamed_operator_goes_on_with_its_state_and_its_old_name_is_free() -> None:
    bank, _ = _house_with_runs()
    renamed = Fold("customers", key_by="account", state=Account, was="accounts")
    bank.pipeline = replace(PIPELINE, operators=[renamed])
    bank.send(1)
    bank.complete()
    assert bank.state("customers") == {("a",): (4, 4)}
    bank.pipeline = replace(PIPELINE, operators=[renamed, *PIPELINE.operators])
    bank.send(1)
    bank.complete()
    assert (bank.state("customers"), bank.state("accounts")) == ({("a",): (5, 5)}, {("a",): (1, 1)})


def test_a_rename_is_refused_while_the_old_name_is_declared_too() -> None:
    bank, _ = _house_with_runs()
    one, two = (Fold(uid, key_by="account", state=Account, was="accounts") for uid in ("one", "two"))
    bank.pipeline = replace(PIPELINE, operators=[one, *PIPELINE.operators])
    with pytest.raises(IncompatibleStateError, match="one: was='accounts' is declared too"):
        bank.plan()
    bank.pipeline = replace(PIPELINE, operators=[one, two])
    with pytest.raises(IncompatibleStateError, match="two: was='accounts' is given for two operators"):
        bank.plan()


def test_an_operator_without_stored_rows_may_become_anything() -> None:
    bank = BankPipeline()
    bank.complete()
    bank.pipeline = replace(PIPELINE, operators=[Fold("accounts", key_by="amount", state=Wider)])
    assert bank.complete().plan.tables == {"accounts": "bank/state/accounts/t1-2"}


def test_a_compaction_into_tables_that_nothing_names_any_more_is_not_adopted() -> None:
    bank, read = _house_with_runs()
    bank.tables.tables[BASE] = [replace(bank.tables.tables[RUNS][0], live={})]
    elsewhere = BASE.replace("t1-1", "t1-9")
    bank.tables.tables[elsewhere] = bank.tables.tables[BASE]
    _put(bank, record(read, StateHandle((seg(elsewhere, 0, 2),))))
    assert bank.plan().adopted == {}


def test_the_watermark_is_that_of_the_parent() -> None:
    bank = BankPipeline()
    bank.send(1, P0, timestamp_ms=77)
    bank.complete()
    assert bank.plan().watermark_ms == 77
