"""The watermark of a source against a brute force that looks at the whole history every time (adr/0052)."""

from dataclasses import dataclass
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark import Watermark
from tidemark.declare.watermark import as_duration
from tidemark.errors import DeclarationError
from tidemark.model.checkpoint.codec import from_json, to_json
from tidemark.model.core.clocks import EventTimeClock, PlannedClock, WatermarkRule
from tidemark.model.core.offsets import TopicPartition

PARTS = tuple(TopicPartition("t", n) for n in range(3))


@dataclass(frozen=True)
class Batch:
    """One checkpoint: logical time, event times per partition, and the partitions that a bound cut."""

    logical: int
    times: dict[TopicPartition, list[int]]
    cut: frozenset[TopicPartition]


batches = st.builds(
    Batch,
    st.integers(0, 40),
    st.dictionaries(st.sampled_from(PARTS), st.lists(st.integers(0, 60), min_size=1, max_size=4)),
    st.frozensets(st.sampled_from(PARTS)),
)
rules = st.builds(
    WatermarkRule,
    delay_ms=st.integers(0, 10),
    idle_after_ms=st.none() | st.integers(1, 20),
    combine=st.sampled_from(["min", "max"]),
)


def in_order(found: list[Batch]) -> list[Batch]:
    """Logical time never falls on a timeline."""
    times = sorted(b.logical for b in found)
    return [Batch(at, b.times, b.cut) for at, b in zip(times, found, strict=True)]


def brute_force(rule: WatermarkRule, history: list[Batch]) -> int | None:
    """The greatest of what each checkpoint alone allows, with the whole history before it at hand."""
    allowed = []
    for n, last in enumerate(history):
        reads = [(b.logical, tp, min(t, b.logical)) for b in history[: n + 1] for tp, ts in b.times.items() for t in ts]
        greatest = {tp: max((t for _, p, t in reads if p == tp), default=None) for tp in PARTS}
        since = {tp: max((when for when, p, _ in reads if p == tp), default=None) for tp in PARTS}
        counts = []
        for tp in PARTS:
            ever = since[tp]
            quiet = ever is None or (rule.idle_after_ms is not None and last.logical >= ever + rule.idle_after_ms)
            if tp in last.cut or not quiet:
                counts.append(greatest[tp])
        if rule.combine == "max":
            allowed += [t - rule.delay_ms for t in greatest.values() if t is not None]
        elif counts and None not in counts:
            allowed.append(min(t for t in counts if t is not None) - rule.delay_ms)
    return max(allowed, default=None)


def folded(rule: WatermarkRule, history: list[Batch]) -> list[EventTimeClock]:
    """The clock after each checkpoint, written and read again as plans and manifests are."""
    found = [EventTimeClock()]
    for batch in history:
        planned = PlannedClock(rule=rule, before=found[-1], cut=tuple(batch.cut))
        planned = from_json(PlannedClock, to_json(planned), "plan")
        made = planned.after(PARTS, batch.logical, {tp: max(ts) for tp, ts in batch.times.items()})
        found.append(from_json(EventTimeClock, to_json(made), "manifest"))
    return found[1:]


@settings(max_examples=400, deadline=None)
@given(rules, st.lists(batches, min_size=1, max_size=7).map(in_order))
def test_the_watermark_is_what_the_whole_history_allows(rule: WatermarkRule, history: list[Batch]) -> None:
    for n, clock in enumerate(folded(rule, history), start=1):
        assert clock.watermark_ms == brute_force(rule, history[:n])


@settings(max_examples=200, deadline=None)
@given(rules, st.lists(batches, min_size=2, max_size=7).map(in_order))
def test_it_never_falls_and_never_passes_logical_time(rule: WatermarkRule, history: list[Batch]) -> None:
    marks = [c.watermark_ms for c in folded(rule, history)]
    known = [m for m in marks if m is not None]
    assert known == sorted(known) and marks[len(marks) - len(known) :] == known
    assert all(m is None or m <= b.logical for m, b in zip(marks, history, strict=True))


def test_a_source_is_idle_if_no_partition_has_a_say() -> None:
    rule = WatermarkRule(delay_ms=0, idle_after_ms=10, combine="min")

    def after(clock: EventTimeClock, logical: int, cut: tuple[TopicPartition, ...] = ()) -> EventTimeClock:
        return clock.after(rule, partitions=PARTS, cut=cut, logical_ms=logical, read={})

    fresh = EventTimeClock().after(rule, partitions=PARTS, cut=(), logical_ms=5, read={PARTS[0]: 3})
    assert (fresh.is_idle, after(fresh, 14).is_idle, after(fresh, 15).is_idle) == (False, False, True)
    assert not after(fresh, 15, cut=(PARTS[0],)).is_idle
    assert after(fresh, 15).watermark_ms == 3


def test_a_checkpoint_without_a_rule_moves_no_clock() -> None:
    before = EventTimeClock(watermark_ms=4, seen={PARTS[0]: 4}, moved={PARTS[0]: 4}, is_idle=False)
    assert PlannedClock(before=before).after(PARTS, 10**9, {PARTS[0]: 9}) == before


def test_parked_partitions_have_no_say() -> None:
    rule = WatermarkRule(delay_ms=0, idle_after_ms=None, combine="min")
    before = EventTimeClock(seen={PARTS[1]: 5}, moved={PARTS[1]: 5})
    planned = PlannedClock(rule=rule, before=before, parked=(PARTS[0],))
    assert planned.after(PARTS[:2], 9, {}).watermark_ms == 5


@pytest.mark.parametrize(
    ("text", "ms"),
    [("0s", 0), ("250ms", 250), ("90s", 90_000), ("5m", 300_000), ("1 h", 3_600_000), ("7d", 604_800_000)],
)
def test_durations_are_numbers_with_a_unit(text: str, ms: int) -> None:
    assert as_duration("delay", text) == timedelta(milliseconds=ms) == as_duration("delay", timedelta(milliseconds=ms))


@pytest.mark.parametrize(
    "given", ["5", "m", "-5m", "1h30m", "1.5h", "5 weeks", "", "999999d", timedelta(microseconds=1), 5]
)
def test_other_durations_are_refused(given: object) -> None:
    with pytest.raises(DeclarationError, match="delay=.* is not a duration"):
        Watermark(delay=given)  # type: ignore[arg-type]


def test_an_idle_time_of_zero_and_another_combination_are_refused() -> None:
    with pytest.raises(DeclarationError, match="idle_after='0s' is not a duration of at least 1 ms"):
        Watermark(idle_after="0s")
    with pytest.raises(DeclarationError, match="combine='mean'"):
        Watermark(combine="mean")  # type: ignore[arg-type]
    assert Watermark(idle_after=None).rule == WatermarkRule(delay_ms=0, idle_after_ms=None, combine="min")
