"""Input handles: those of the parent, with compactions adopted only where they are an exact prefix (E16)."""

from dataclasses import replace

import pytest

from tests.unit.coordinator.house import ASK, P0, PIPELINE, Account, House, Wider
from tidemark import Fold
from tidemark.coordinator.inputs import adopt
from tidemark.errors import ConflictError
from tidemark.model import keys
from tidemark.model.records import CompactionRecord
from tidemark.model.segments import Segment, StateHandle

RUNS, BASE = "bank/state/accounts/t1-1/runs", "bank/state/accounts/t1-1/base"


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


def _house_with_runs() -> tuple[House, StateHandle]:
    house = House()
    for _ in range(3):
        house.send(1)
        house.complete()
    return house, house.coordinator.checkpoint(2).handles["accounts"]


def _put(house: House, made: CompactionRecord) -> str:
    key = keys.compaction_key("accounts", made.job)
    house.coordinator.objects.put(key, made)
    return key


def test_the_next_plan_adopts_the_newest_whose_files_are_there() -> None:
    house, read = _house_with_runs()
    _put(house, record(read, StateHandle((seg(BASE, 0, 2, version=7),)), job="j2"))  # version 7 does not exist
    older = house.coordinator.checkpoint(1).handles["accounts"]
    empty = seg(BASE, 0, 1, version=0)
    house.tables.tables[BASE] = [replace(house.tables.tables[RUNS][0], live={})]
    wanted = _put(house, record(older, StateHandle((empty,)), job="j1"))
    plan = house.plan()
    assert plan.adopted == {"accounts": wanted}
    assert plan.handles["accounts"].segments[0] == empty
    assert plan.handles["accounts"].segments[1].after == 1


def test_a_compaction_of_another_timeline_is_not_adopted() -> None:
    house, read = _house_with_runs()
    _put(house, record(read, BASE_2, timeline="t9"))
    assert house.plan().adopted == {}


def test_an_adopted_compaction_is_not_adopted_again() -> None:
    house, read = _house_with_runs()
    house.tables.tables[BASE] = [replace(house.tables.tables[RUNS][0], live={})]
    _put(house, record(read, StateHandle((seg(BASE, 0, 2),))))
    assert house.complete().plan.adopted != {}
    assert house.plan().adopted == {}


def test_tables_and_schemas_stay_with_their_uid() -> None:
    plan = House().plan()
    assert plan.tables == {"accounts": "bank/state/accounts/t1-1"}
    assert plan.schemas == PIPELINE.schemas()


def test_an_added_operator_starts_empty() -> None:
    house, _ = _house_with_runs()
    house.pipeline = replace(PIPELINE, operators=[*PIPELINE.operators, Fold("new", key_by="account", state=Account)])
    plan = house.plan()
    assert list(plan.handles) == ["accounts", "new"]
    assert not plan.handles["new"]


def test_a_changed_schema_is_refused_by_uid_and_field() -> None:
    house, _ = _house_with_runs()
    house.pipeline = replace(PIPELINE, operators=[Fold("accounts", key_by="amount", state=Wider)])
    with pytest.raises(ConflictError) as caught:
        house.plan()
    assert caught.value.what == (
        "state schema changed: accounts: key (account STRING) became (amount BIGINT),"
        " field total: sum BIGINT became max BIGINT, field least added"
    )


def test_a_removed_operator_is_refused_unless_it_is_let_go() -> None:
    house, _ = _house_with_runs()
    house.pipeline = replace(PIPELINE, operators=[Fold("others", key_by="account", state=Account)])
    with pytest.raises(ConflictError, match="have state: accounts"):
        house.plan()
    assert list(house.plan(replace(ASK, allow_non_restored_state=True)).handles) == ["others"]


def test_the_watermark_is_that_of_the_parent() -> None:
    house = House()
    house.send(1, P0, timestamp_ms=77)
    house.complete()
    assert house.plan().watermark_ms == 77
