"""What a rule keeps over timelines, where it is written down, and its text (D7, E11)."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.bank import BankPipeline
from tests.support.retention import ONE_FOLD, MemoryRetentionPipeline
from tidemark.coordinator.recovery.stop_and_resume import Stopping
from tidemark.coordinator.retention.legal_holds import Holding
from tidemark.coordinator.retention.stored_rule import Rules
from tidemark.declare.retention import Retention
from tidemark.declare.retention_text import parse_retention
from tidemark.errors import ConflictError, DeclarationError, NotFoundError
from tidemark.model.retention.deletion import spans
from tidemark.model.retention.savepoint import TombstoneKind


@pytest.fixture
def retained() -> MemoryRetentionPipeline:
    return MemoryRetentionPipeline(pipeline=ONE_FOLD)


def released(retained: MemoryRetentionPipeline, rule: Retention) -> list[str]:
    return list(retained.plan(rule).released)


def test_what_a_restore_has_left_goes_as_newer_checkpoints_arrive(retained: MemoryRetentionPipeline) -> None:
    for _ in range(4):
        retained.checkpoint("a")
    retained.restore(2)
    assert released(retained, Retention.keep_last(2)) == [], (
        "chk-3 and chk-4 are the newest, chk-2 and chk-1 the live line"
    )
    retained.checkpoint("a")
    assert released(retained, Retention.keep_last(2)) == ["chk-1", "chk-3"]
    retained.checkpoint("a")
    assert released(retained, Retention.keep_last(2)) == ["chk-1", "chk-2", "chk-3", "chk-4"]


def test_a_fork_is_counted_by_itself(retained: MemoryRetentionPipeline) -> None:
    for _ in range(3):
        retained.checkpoint("a")
    retained.fork("trial", 1)
    assert released(retained, Retention.keep_last(1)) == ["chk-2"], "the fork began at chk-1 and has none of its own"
    for _ in range(2):
        retained.checkpoint("b", timeline="trial")
    assert released(retained, Retention.keep_last(1)) == ["chk-1", "chk-2", "chk-4"]
    assert released(retained, Retention.keep_last(2)) == ["chk-1"]


def test_after_a_promote_both_lines_are_one(retained: MemoryRetentionPipeline) -> None:
    for _ in range(2):
        retained.checkpoint("a")
    retained.fork("trial", 1)
    retained.checkpoint(timeline="trial")
    retained.promote("trial")
    assert released(retained, Retention.keep_last(1)) == ["chk-1", "chk-2"]


def test_a_stop_takes_everything_but_the_newest_and_what_is_pinned_where_it_was_asked_for(
    retained: MemoryRetentionPipeline,
) -> None:
    for _ in range(4):
        retained.checkpoint("a")
    retained.save("june", 2)
    kept, gone = Retention.keep_last(3), Retention.keep_last(3) | Retention.delete_on_stop()
    assert released(retained, gone) == released(retained, kept) == ["chk-1"]
    assert released(retained, Retention.delete_on_stop()) == []
    stopping = Stopping(retained.coordinator)
    stopping.stop("over")
    assert released(retained, kept) == ["chk-1"], "a stop alone changes nothing"
    assert released(retained, gone) == released(retained, Retention.delete_on_stop()) == ["chk-1", "chk-3"]
    stopping.resume("after all")
    assert released(retained, gone) == ["chk-1"]
    stopping.stop("over")
    retained.sweep(gone)
    assert not any(f.path.endswith("/3.1/part-0.parquet") for f in retained.plan(gone).free)
    stopping.resume("after all")
    retained.checkpoint("a")
    assert next(retained.coordinator.checkpoints()).id == 5


def test_a_resume_in_the_middle_of_a_sweep_keeps_what_was_about_to_go(retained: MemoryRetentionPipeline) -> None:
    for _ in range(3):
        retained.checkpoint("a")
    stopping, rule = Stopping(retained.coordinator), Retention.keep_last(3) | Retention.delete_on_stop()
    stopping.stop("over")

    def resumed(step: str, moment: str) -> None:
        if (step, moment) == ("sweep.tombstones", "after"):
            stopping.resume("after all")

    assert released(retained, rule) == ["chk-1", "chk-2"]
    assert retained.sweep(rule, crash=resumed).released == ()


def test_every_reason_is_told(retained: MemoryRetentionPipeline) -> None:
    for _ in range(2):
        retained.checkpoint("a")
    retained.save("june", 1)
    whys = {k.why: k.checkpoints for k in retained.plan(Retention.keep_last(1)).kept}
    assert whys == {"newest": ("chk-2",), "keep_last(1)": ("chk-2",), "savepoint june": ("chk-1",)}


def test_a_rule_is_written_down_where_it_differs(retained: MemoryRetentionPipeline) -> None:
    rules = Rules(retained.coordinator)
    assert rules.current() is None
    assert not rules.record(None)
    assert rules.record(Retention.keep_last(2))
    assert not rules.record(Retention.keep_last(2))
    assert rules.record(Retention.keep_last(2) | Retention.daily(30, timezone="Europe/Berlin"))
    assert str(rules.current()) == "keep_last(2) | daily(30, timezone='Europe/Berlin')"
    assert rules.record(None)
    assert rules.current() is None
    assert len(retained.coordinator.objects.list("retention/")) == 3


COUNTS = st.integers(1, 10**6)
MEMBERS = st.one_of(
    st.builds(Retention.keep_last, COUNTS),
    st.builds(Retention.hourly, COUNTS),
    st.builds(Retention.daily, COUNTS, timezone=st.sampled_from(("UTC", "Europe/Berlin", "America/New_York"))),
    st.builds(Retention.monthly, COUNTS),
    st.builds(Retention.delete_on_stop),
    st.builds(lambda ms: Retention.keep_for(timedelta(milliseconds=ms)), st.integers(1, 10**13)),
)


@given(st.lists(MEMBERS, min_size=1, max_size=6))
def test_the_text_of_a_rule_reads_back_to_the_rule(members: list[Retention]) -> None:
    rule = members[0]
    for member in members[1:]:
        rule = rule | member
    assert parse_retention(str(rule)) == rule
    assert parse_retention(repr(rule)) == rule


@pytest.mark.parametrize(
    "text",
    [
        "keep_last", "keep_last()", "keep_last(1, 2)", "keep_last(True)", "keep_last(2) & daily(3)", "keep_last(2) |",
        "keep_for(7)", "keep_for(timedelta(7))", "keep_for(timedelta(days=1.5))", "keep_for(timedelta(fortnights=1))",
        "__import__('os').system('true')", "(lambda: keep_last(2))()", "Retention", "open('x')", "keep_last(*[2])",
        "keep_last(**{'n': 2})", "daily(2, timezone=open('x'))", "keep_last(2); keep_last(3)", "(" * 5000, "x" * 5000,
    ],
)  # fmt: skip
def test_what_is_no_rule_is_refused_and_never_evaluated(text: str) -> None:
    with pytest.raises(DeclarationError):
        parse_retention(text)


def test_a_hold_stands_until_it_is_released_and_may_be_repeated() -> None:
    bank = BankPipeline()
    bank.send(1)
    bank.complete()
    with pytest.raises(NotFoundError):
        Holding(bank.coordinator).hold("sp", why="x", owner="me")
    retained = MemoryRetentionPipeline(pipeline=ONE_FOLD)
    retained.checkpoint("a")
    retained.save("sp", 1)
    holding = Holding(retained.coordinator)
    assert holding.hold("sp", why="case 7", owner="me") == holding.hold("sp", why="again", owner="you")
    with pytest.raises(ConflictError, match="case 7"):
        retained.savepoints.dispose("sp")
    holding.release("sp")
    assert holding.hold("sp", why="case 8", owner="me").revision == 3
    holding.release("sp")
    assert retained.savepoints.dispose("sp").disposed


def test_a_hold_that_meets_a_disposal_gives_way() -> None:
    retained = MemoryRetentionPipeline(pipeline=ONE_FOLD)
    retained.checkpoint("a")
    retained.save("sp", 1)
    retained.savepoints.tombstones.raise_for(TombstoneKind.SAVEPOINT, "sp", "disposed")
    with pytest.raises(ConflictError, match="about to be deleted"):
        Holding(retained.coordinator).hold("sp", why="late", owner="me")
    assert retained.savepoints.needed_by("sp") == ()


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ((), "none"),
        (("chk-3",), "chk-3"),
        (("chk-10", "chk-9", "chk-8", "chk-11"), "chk-8 to chk-11"),
        (("chk-1", "chk-2", "chk-4"), "chk-1 to chk-2, chk-4"),
        (("plan chk-5", "chk-4", "timeline t2"), "chk-4, plan chk-5, timeline t2"),
    ],
)
def test_names_are_told_in_spans(names: tuple[str, ...], told: str) -> None:
    assert spans(names) == told
