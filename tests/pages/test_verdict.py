"""The verdict on a pipeline: a table of cases, properties over all inputs, and real pipelines."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.trips import TripsPipeline
from tidemark.answers.pipeline_verdict import ScheduleFacts
from tidemark.model.checkpoint.codec import body_of
from tidemark.model.checkpoint.metrics import DueRun
from tidemark.operations import checkpoints
from tidemark.operations import stop as stops
from tidemark.ports import PlanRequest
from tidemark.web import health, overview
from tidemark.web.health import RunSchedule
from tidemark.web.history_lines import HistoryQuery
from tidemark.web.verdict import HealthState, VerdictInputs, assess, span_text

MIN, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NOW = 1_700_000_000_000
NEXT = "2023-11-14T23:00:00Z"
HOURLY = ScheduleFacts(kind="time", text="Hourly", zone="UTC", is_paused=False, next_run=NEXT, end=None)
PAUSED = replace(HOURLY, is_paused=True)
MANUAL = replace(HOURLY, kind="manual", next_run=None)
ASSETS = replace(HOURLY, kind="assets", next_run=None)
ENDED = replace(HOURLY, next_run=None, end="2014-01-01T00:00:00Z")


def made(age: int, **more: Any) -> VerdictInputs:
    """A pipeline whose newest checkpoint, chk-7, was sealed `age` ago."""
    return VerdictInputs(now_ms=NOW, since_ms=NOW - age, checkpoint=7, age_ms=age, lag=0, **more)


def due(ago: int, every: int | None = HOUR, period: int = HOUR) -> DueRun:
    """A run that was due `ago`."""
    return DueRun(at_ms=NOW - ago, following_ms=NOW - ago + period, every_ms=every)


CASES: list[tuple[str, VerdictInputs, str, str]] = [
    ("on time", made(2 * MIN, schedule=HOURLY, due=due(-58 * MIN)), "HEALTHY",
     "last checkpoint 2 min ago, expected every 1 h"),
    ("a run is due, but has its time", made(100 * MIN, schedule=HOURLY, due=due(40 * MIN)), "HEALTHY",
     "last checkpoint 1 h 40 min ago, expected every 1 h"),
    ("the run after the due one has begun", made(130 * MIN, schedule=HOURLY, due=due(70 * MIN)), "LATE",
     "last checkpoint 2 h 10 min ago, a run has been due for 1 h 10 min"),
    ("as long as checkpoints usually take, it is not late",
     made(130 * MIN, schedule=HOURLY, due=due(70 * MIN), usual_ms=15 * MIN), "HEALTHY",
     "last checkpoint 2 h 10 min ago, expected every 1 h"),
    ("the span between two runs varies", made(DAY, schedule=HOURLY, due=due(-DAY, every=None)), "HEALTHY",
     "last checkpoint 1 d ago, on schedule"),
    ("no schedule", made(300 * DAY, schedule=MANUAL), "HEALTHY", "last checkpoint 300 d ago, runs on demand"),
    ("after assets", made(300 * DAY, schedule=ASSETS), "HEALTHY",
     "last checkpoint 300 d ago, runs when its events arrive"),
    ("the end date is over", made(7 * DAY, schedule=ENDED), "HEALTHY",
     "last checkpoint 7 d ago, no further run is scheduled"),
    ("Airflow has no DAG", made(7 * DAY), "HEALTHY", "last checkpoint 7 d ago, Airflow knows no DAG for it"),
    ("within the deadline", made(25 * HOUR, deadline_ms=26 * HOUR), "HEALTHY",
     "last checkpoint 25 h ago, expected within 26 h"),
    ("beyond the deadline", made(28 * HOUR, deadline_ms=26 * HOUR, schedule=MANUAL), "LATE",
     "last checkpoint 28 h ago, the deadline is 26 h"),
    ("the deadline goes before the schedule", made(5 * HOUR, deadline_ms=26 * HOUR, schedule=HOURLY, due=due(4 * HOUR)),
     "HEALTHY", "last checkpoint 5 h ago, expected within 26 h"),
    ("a deadline holds for a paused DAG", made(28 * HOUR, deadline_ms=26 * HOUR, schedule=PAUSED), "LATE",
     "last checkpoint 28 h ago, the deadline is 26 h, and the DAG is paused"),
    ("paused", made(5 * HOUR, schedule=PAUSED, due=due(4 * HOUR)), "PAUSED",
     "the DAG is paused, last checkpoint 5 h ago"),
    ("stopped", made(5 * HOUR, schedule=HOURLY, due=due(4 * HOUR), stopped_ms=NOW - 2 * HOUR, stopped_why="upgrade"),
     "STOPPED", "stopped 2 h ago: upgrade"),
    ("stopped after failures", made(5 * HOUR, failures=3, stopped_ms=NOW - HOUR), "STOPPED", "stopped 1 h ago"),
    ("one failure", made(5 * MIN, failures=1, failure="ENGINE_ERROR", schedule=HOURLY), "FAILING",
     "1 failure (ENGINE_ERROR), last checkpoint 5 min ago"),
    ("failing is worse than late", made(9 * HOUR, failures=3, failure="TIMEOUT", deadline_ms=HOUR), "FAILING",
     "3 failures in a row (TIMEOUT), last checkpoint 9 h ago"),
    ("only failures", VerdictInputs(now_ms=NOW, since_ms=NOW - HOUR, failures=2, failure="TIMEOUT"), "FAILING",
     "2 failures in a row (TIMEOUT), no checkpoint is completed yet"),
    ("a damaged checkpoint", made(5 * MIN, damaged=1, stopped_ms=NOW), "FAILING", "1 checkpoint is damaged"),
    ("damaged checkpoints", made(5 * MIN, damaged=2), "FAILING", "2 checkpoints are damaged"),
    ("a damaged timeline", VerdictInputs(now_ms=NOW, damage="timelines/t1/1.json is damaged"), "FAILING",
     "timelines/t1/1.json is damaged"),
    ("no answer", VerdictInputs(now_ms=NOW, unreadable="the bucket does not answer"), "UNKNOWN",
     "the bucket does not answer"),
    ("nothing yet", VerdictInputs(now_ms=NOW, schedule=HOURLY), "UNKNOWN", "no checkpoint yet"),
    ("nothing yet, and paused", VerdictInputs(now_ms=NOW, schedule=PAUSED), "UNKNOWN",
     "no checkpoint yet, and the DAG is paused"),
    ("the first one", VerdictInputs(now_ms=NOW, since_ms=NOW - MIN, is_open=True, schedule=HOURLY, due=due(-HOUR)),
     "UNKNOWN", "the first checkpoint is in progress"),
    ("the first one is late", VerdictInputs(now_ms=NOW, since_ms=NOW - DAY, is_open=True, deadline_ms=HOUR), "LATE",
     "no checkpoint is completed yet, the deadline is 1 h"),
]  # fmt: skip


@pytest.mark.parametrize(("found", "state", "reason"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_case_has_its_word_and_its_reason(found: VerdictInputs, state: str, reason: str) -> None:
    verdict = assess(found)
    assert (verdict.state, verdict.reason) == (state, reason)


def test_every_word_has_a_case() -> None:
    assert {case[2] for case in CASES} == {state.value for state in HealthState}


spans = st.integers(0, 400 * DAY)
inputs = st.builds(
    VerdictInputs,
    now_ms=st.just(NOW),
    since_ms=st.none() | spans.map(lambda ago: NOW - ago),
    checkpoint=st.none() | st.integers(1, 9),
    age_ms=spans,
    is_open=st.booleans(),
    failures=st.integers(0, 2),
    damaged=st.integers(0, 1),
    stopped_ms=st.none() | spans.map(lambda ago: NOW - ago),
    deadline_ms=st.none() | st.integers(1, 400 * DAY),
    schedule=st.none() | st.sampled_from([HOURLY, PAUSED, MANUAL, ASSETS, ENDED]),
    due=st.none() | st.builds(due, st.integers(-DAY, DAY), st.none() | st.just(HOUR), st.integers(1, DAY)),
    usual_ms=st.integers(0, DAY),
    records=st.integers(1, 1000),
    rejected=st.integers(0, 1),
)


@given(inputs)
def test_a_pipeline_is_late_only_after_the_time_that_the_verdict_names(found: VerdictInputs) -> None:
    verdict = assess(found)
    if verdict.state == "LATE":
        assert verdict.late_at is not None and verdict.late_at < NOW
    if verdict.state in ("HEALTHY", "PAUSED", "UNKNOWN"):
        assert verdict.late_at is None or verdict.late_at >= NOW
    if found.stopped_ms is not None:
        assert verdict.state in ("STOPPED", "FAILING") and verdict.late_at is None
    if found.deadline_ms is None and found.due is None:
        assert verdict.late_at is None, "without a setting and a due run nothing is ever late"


@given(inputs)
def test_a_later_look_at_the_same_facts_is_never_healthier(found: VerdictInputs) -> None:
    later = replace(found, now_ms=NOW + DAY)
    order = ["HEALTHY", "PAUSED", "UNKNOWN", "LATE", "FAILING"]
    if found.stopped_ms is None:
        assert order.index(assess(later).state) >= order.index(assess(found).state)


@given(inputs)
def test_a_reason_is_one_line_in_words(found: VerdictInputs) -> None:
    reason = assess(found).reason
    assert reason and "\n" not in reason and "None" not in reason and "0:00" not in reason and "-" not in reason[:1]


@given(st.integers(0, 4000 * DAY))
def test_a_span_is_told_within_its_last_unit(ms: int) -> None:
    units = {"ms": 1, "s": 1000, "min": MIN, "h": HOUR, "d": DAY}
    words = span_text(ms).split()
    shown = sum(float(number) * units[unit] for number, unit in zip(words[::2], words[1::2], strict=True))
    finest = (
        100
        if 1000 <= ms < MIN
        else next(unit for unit, limit in ((1, 1000), (1000, HOUR), (MIN, 2 * DAY), (HOUR, 1 << 62)) if ms < limit)
    )
    assert 0 <= ms - shown < finest + 1e-6
    assert len(words) <= 4 and "0" not in words[::2] or ms < 1


def test_spans_have_no_empty_unit() -> None:
    shown = [
        span_text(n) for n in (0, 850, 1000, 2500, MIN, 10 * MIN, 61_000, HOUR, 65 * MIN, 47 * HOUR, 2 * DAY, 76 * HOUR)
    ]
    assert shown == ["0 s", "850 ms", "1 s", "2.5 s", "1 min", "10 min", "1 min 1 s", "1 h", "1 h 5 min", "47 h", "2 d",
                    "3 d 4 h"]  # fmt: skip


def every_hour(world: TripsPipeline) -> RunSchedule:
    """Runs at each full hour of the clock."""

    def due_after(since: int) -> DueRun:
        at = (since // HOUR + 1) * HOUR
        return DueRun(at_ms=at, following_ms=at + HOUR, every_ms=HOUR)

    return RunSchedule(facts=HOURLY, due_after=due_after)


@pytest.fixture
def shown(world: TripsPipeline) -> Callable[..., Any]:
    """The verdict of the overview, which is that of a list of pipelines as well."""
    world.pages.clock = world.line.clock

    def answer(schedule: RunSchedule | None = None) -> Any:
        found = overview.get_overview(world.pages, "trips", HistoryQuery(limit=0), schedule=schedule)
        assert found.verdict == health.get_verdict(world.pages, "trips", schedule)
        return found.verdict

    return answer


def test_a_pipeline_is_late_two_hours_after_its_checkpoint_and_its_usual_duration(
    world: TripsPipeline, shown: Callable[..., Any]
) -> None:
    world.checkpoint("a", "b", None)
    schedule = every_hour(world)
    found = shown(schedule)
    assert (found.state, found.checkpoint, found.every, found.late_by) == ("HEALTHY", 1, HOUR, "schedule")
    assert (found.rejected_share, found.measured, found.next_run) == (1 / 3, 1, HOURLY.next_run)
    newest = overview.list_points(world.pages, "trips", 1).points[0]
    sealed = newest.trigger_timestamp + newest.end_to_end_duration
    assert found.late_at == (sealed // HOUR + 2) * HOUR + newest.end_to_end_duration
    world.line.clock.advance(found.late_at - found.now)
    assert shown(schedule).state == "HEALTHY"
    world.line.clock.advance(1)
    assert shown(schedule).state == "LATE"
    assert shown(None).state == "HEALTHY", "without a schedule it is never late"
    world.checkpoint("a")
    assert shown(schedule).state == "HEALTHY"


def test_failures_count_until_the_next_completed_checkpoint(world: TripsPipeline, shown: Callable[..., Any]) -> None:
    world.fail()
    assert (shown().state, shown().reason) == (
        "FAILING",
        "1 failure (ENGINE_ERROR), no checkpoint is completed yet",
    )
    world.checkpoint("a")
    assert shown().state == "HEALTHY"
    world.fail()
    world.fail()
    assert shown().state == "FAILING"
    assert shown().reason.startswith("2 failures in a row (ENGINE_ERROR), last checkpoint ")
    world.plan()
    assert shown().state == "FAILING", "the next one is in progress"


def test_the_first_plan_is_in_progress(world: TripsPipeline, shown: Callable[..., Any]) -> None:
    world.plan()
    assert (shown().state, shown().reason) == ("UNKNOWN", "the first checkpoint is in progress")


def test_a_stopped_pipeline_says_why_and_is_never_late(world: TripsPipeline, shown: Callable[..., Any]) -> None:
    world.checkpoint("a")
    stops.stop(world.pages, "trips", why="upgrade of the broker")
    world.line.clock.advance(30 * DAY)
    found = shown(every_hour(world))
    assert (found.state, found.late_at) == ("STOPPED", None)
    assert found.reason == "stopped 30 d ago: upgrade of the broker"


def test_damage_is_a_verdict_and_hides_no_other_pipeline(world: TripsPipeline, shown: Callable[..., Any]) -> None:
    world.checkpoint("a")
    world.checkpoint("b")
    (world.folder / "timelines/t1/000000000002.json").write_bytes(b"{}")
    found = shown()
    assert found.state == "FAILING" and "000000000002.json" in found.reason


def test_the_rate_of_dead_letters_is_that_of_the_last_ten_checkpoints_with_records(
    world: TripsPipeline, shown: Callable[..., Any]
) -> None:
    world.checkpoint(None, None)
    for n in range(10):
        world.checkpoint("a", *([None] if n == 9 else ["b"]))
    checkpoints.run_once(world.pages, "trips", PlanRequest(origin="empty"))
    assert (shown().rejected_share, shown().measured) == (1 / 20, 10)


def test_the_answer_is_json(world: TripsPipeline, shown: Callable[..., Any]) -> None:
    world.checkpoint("a")
    assert body_of(shown())["state"] == "HEALTHY"
    assert timedelta(milliseconds=body_of(shown())["age"]) >= timedelta(0)
