"""When unread records start a DAG run: examples, and a simulation of a topic, a scheduler and restarts."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tidemark.airflow.lag_events import LagMemory, LagRule, SeenLag, decide_event, repeat_ms

SECOND, MINUTE = 1000, 60_000
Decide = Callable[[LagRule, SeenLag, LagMemory, int], tuple[bool, LagMemory]]


@dataclass(frozen=True)
class Seen:
    """A lag as a poller sees it."""

    position: str = "p0"
    unread: int = 0
    is_overdue: bool = False
    stopped: bool = False


def event_times(rule: LagRule, looks: list[tuple[int, Seen]]) -> list[int]:
    """The times at which a poller that looks at these times sends an event."""
    memory, found = LagMemory(), []
    for now_ms, lag in looks:
        fires, memory = decide_event(rule, lag, memory, now_ms)
        found += [now_ms] if fires else []
    return found


def every(seconds: int, until: int, lag: Seen) -> list[tuple[int, Seen]]:
    return [(at * SECOND, lag) for at in range(0, until, seconds)]


def test_enough_records_start_a_run_and_fewer_do_not() -> None:
    rule = LagRule(min_records=10)
    assert event_times(rule, every(5, 3600, Seen(unread=9))) == []
    assert event_times(rule, [(0, Seen(unread=9)), (5000, Seen(unread=10))]) == [5000]
    assert event_times(LagRule(min_records=1), [(0, Seen(unread=0))]) == []


def test_one_record_starts_a_run_when_it_has_waited() -> None:
    rule = LagRule(min_records=10, max_wait_ms=MINUTE)
    assert event_times(rule, every(5, 90, Seen(unread=1)))[0] == MINUTE, "since the poller has seen it"
    assert event_times(rule, [(0, Seen(unread=1, is_overdue=True))]) == [0], "by its timestamp"
    assert event_times(rule, every(5, 90, Seen(unread=0, is_overdue=True))) == []
    gone = [(0, Seen(unread=1)), (30_000, Seen(unread=0)), (40_000, Seen(unread=1)), (MINUTE + 1, Seen(unread=1))]
    assert event_times(rule, gone) == [], "another record has not waited"


def test_an_event_is_not_repeated_at_once_nor_because_more_records_arrive() -> None:
    looks = [(at * SECOND, Seen(unread=10 + at)) for at in range(30)]
    assert event_times(LagRule(min_records=10), looks) == [0]


def test_a_lost_event_is_repeated_ever_less_often() -> None:
    """Airflow drops the events of a paused DAG; a run that fails moves nothing."""
    times = event_times(LagRule(min_records=1), every(1, 3600, Seen(unread=1)))
    gaps = [(b - a) // SECOND for a, b in zip(times, times[1:], strict=False)]
    assert gaps[:6] == [30, 60, 120, 240, 480, 600]
    assert set(gaps[5:]) == {600}


def test_a_checkpoint_or_a_restore_begins_again() -> None:
    rule = LagRule(min_records=5)
    assert event_times(rule, [(0, Seen("p0", 5)), (1000, Seen("p1", 4)), (2000, Seen("p1", 5))]) == [0, 2000]
    assert event_times(rule, [(0, Seen("p1", 5)), (1000, Seen("p0", 500))]) == [0, 1000], (
        "restored to an earlier checkpoint"
    )


def test_a_stopped_pipeline_starts_nothing_until_it_is_resumed() -> None:
    rule = LagRule(min_records=1, max_wait_ms=1)
    stopped = Seen(unread=0, stopped=True)
    assert event_times(rule, [*every(1, 60, stopped), (60_000, Seen(unread=3))]) == [60_000]
    assert event_times(rule, [(0, replace(stopped, unread=5, is_overdue=True))]) == []


def test_a_clock_that_is_set_back_delays_nothing_for_long() -> None:
    day = 86_400_000
    looks = [(day, Seen(unread=1)), *((at * SECOND, Seen(unread=1)) for at in range(0, 120, 5))]
    assert event_times(LagRule(min_records=1), looks) == [day, 30_000, 90_000]
    young = [(day, Seen(unread=1)), *((at * SECOND, Seen(unread=1)) for at in range(0, 65, 5))]
    assert event_times(LagRule(max_wait_ms=MINUTE), young) == [MINUTE]


Steps = list[tuple[str, int]]
HAPPENS = ["read", "restore", "restart", "stop", "resume", "pause", "unpause", "fail"]
STEPS: st.SearchStrategy[Steps] = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.integers(1, 5)),
        st.tuples(st.just("wait"), st.one_of(st.integers(1, 3), st.integers(1, 130))),  # looks, ten seconds apart
        st.tuples(st.sampled_from(HAPPENS), st.just(0)),
    ),
    max_size=25,
)
RULES = st.builds(
    LagRule,
    min_records=st.one_of(st.none(), st.integers(1, 7)),
    max_wait_ms=st.one_of(st.none(), st.one_of(st.integers(1, MINUTE), st.integers(1, 20 * MINUTE))),
).filter(lambda rule: rule.min_records is not None or rule.max_wait_ms is not None)


class Simulation:
    """A topic, a DAG that may be paused or fail, and a poller whose process may be restarted.

    It counts for itself since when records wait at a place, and the events that this place has had.
    """

    def __init__(self, rule: LagRule, decide: Decide) -> None:
        self.rule, self.decide, self.memory = rule, decide, LagMemory()
        self.now_ms, self.end, self.start, self.place = 1_000_000, 0, 0, 0
        self.stopped = self.paused = self.fails = False
        self.since_ms: int | None = None
        self.events: list[int] = []

    def take(self, step: str, amount: int) -> None:
        match step:
            case "arrive":
                self.end += amount
            case "read":
                self._move(self.end)
            case "restore":
                self._move(0)
            case "restart":
                self.memory = LagMemory(**json.loads(json.dumps(asdict(self.memory))))
            case "stop" | "resume":
                self.stopped = step == "stop"
            case "pause" | "unpause":
                self.paused = step == "pause"
            case "fail":
                self.fails = not self.fails
            case _:
                for _ in range(amount):
                    self.now_ms += 10 * SECOND
                    self._look()

    def _move(self, start: int) -> None:
        if start != self.start:
            self.start, self.place, self.since_ms, self.events = start, self.place + 1, None, []

    def _look(self) -> None:
        unread = 0 if self.stopped else self.end - self.start
        if not unread:
            self.since_ms, self.events = None, []
        elif self.since_ms is None:
            self.since_ms = self.now_ms
        lag = Seen(f"p{self.place}", unread, stopped=self.stopped)
        fires, self.memory = self.decide(self.rule, lag, self.memory, self.now_ms)
        self._judge(fires, unread)
        if fires:
            self.events.append(self.now_ms)
            if not self.paused and not self.fails:
                self._move(self.end)

    def _judge(self, fires: bool, unread: int) -> None:
        enough = self.rule.min_records is not None and unread >= self.rule.min_records
        waited = self.now_ms - (self.now_ms if self.since_ms is None else self.since_ms)
        due = unread > 0 and (enough or (self.rule.max_wait_ms is not None and waited >= self.rule.max_wait_ms))
        if not due:
            assert not fires, "an event without a reason"
        elif not self.events:
            assert fires, "records wait, and nothing is started"
        else:
            quiet = self.now_ms - self.events[-1] < min(600, 30 * 2 ** (len(self.events) - 1)) * SECOND
            assert fires is not quiet, "a storm of events" if fires else "a lost event is not repeated"


def simulate(rule: LagRule, steps: Steps, decide: Decide = decide_event) -> None:
    run = Simulation(rule, decide)
    for step, amount in steps:
        run.take(step, amount)


@given(RULES, STEPS)
@settings(max_examples=200, deadline=None)
def test_no_storm_no_event_without_reason_and_none_forgotten(rule: LagRule, steps: Steps) -> None:
    simulate(rule, steps)


def ignores_the_position(rule: LagRule, lag: SeenLag, memory: LagMemory, now_ms: int) -> tuple[bool, LagMemory]:
    return decide_event(rule, Seen("same", lag.unread, lag.is_overdue, lag.stopped), memory, now_ms)


def never_repeats(rule: LagRule, lag: SeenLag, memory: LagMemory, now_ms: int) -> tuple[bool, LagMemory]:
    fires, after = decide_event(rule, lag, memory, now_ms)
    return fires and after.events == 1, after


def forgets_its_events(rule: LagRule, lag: SeenLag, memory: LagMemory, now_ms: int) -> tuple[bool, LagMemory]:
    return decide_event(rule, lag, replace(memory, events=0), now_ms)


def asks_for_one_more(rule: LagRule, lag: SeenLag, memory: LagMemory, now_ms: int) -> tuple[bool, LagMemory]:
    more = replace(rule, min_records=None if rule.min_records is None else rule.min_records + 1)
    return decide_event(more, lag, memory, now_ms)


def starts_though_nothing_waits(rule: LagRule, lag: SeenLag, memory: LagMemory, now_ms: int) -> tuple[bool, LagMemory]:
    fires, after = decide_event(rule, lag, memory, now_ms)
    return fires or lag.stopped, after


@pytest.mark.parametrize(
    "broken",
    [ignores_the_position, never_repeats, forgets_its_events, asks_for_one_more, starts_though_nothing_waits],
)
def test_the_simulation_finds_planted_faults(broken: Decide) -> None:
    @given(RULES, STEPS)
    @settings(max_examples=1500, deadline=None, derandomize=True, phases=[Phase.generate])
    def attempt(rule: LagRule, steps: Steps) -> None:
        simulate(rule, steps, broken)

    with pytest.raises(AssertionError):
        attempt()


def test_the_pause_between_repetitions_has_an_end() -> None:
    assert [repeat_ms(n) // SECOND for n in (1, 2, 5, 6, 17, 10_000)] == [30, 60, 480, 600, 600, 600]
