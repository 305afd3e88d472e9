"""The retention calendar: what it says of each checkpoint against rules applied by brute force, and against a sweep."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.trips import TripsPipeline
from tidemark.answers.retention_facts import RetentionCalendar
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.coordinator.retention.stored_rule import Lines, kept_by
from tidemark.declare.retention import Retention
from tidemark.errors import DeclarationError, NotFoundError
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import retention, savepoints, timelines
from tidemark.web import retention_calendar
from tidemark.web.retention_calendar import HORIZON, WhatIf

HOUR = 3_600_000
RULES = (
    "keep_last(2)", "keep_last(4) | daily(2)", "keep_for(timedelta(hours=9))", "daily(3)", "hourly(5) | monthly(1)", "",
)  # fmt: skip


@dataclass
class Story:
    """Checkpoints, restores, forks and savepoints, with a record of its own of what belongs to which line."""

    world: TripsPipeline
    random: random.Random
    times: dict[int, int] = field(default_factory=dict)
    lines: dict[str, list[int]] = field(default_factory=lambda: {"t1": []})
    """The checkpoints of each timeline and of its ancestors, oldest first."""
    own: dict[str, list[int]] = field(default_factory=lambda: {"t1": []})
    begun: dict[str, int] = field(default_factory=dict)
    once_live: list[str] = field(default_factory=lambda: ["t1"])
    pins: dict[str, int] = field(default_factory=dict)

    def checkpoint(self, timeline: str | None = None, hours: int | None = None) -> None:
        name = timeline or self.once_live[-1]
        self.world.line.clock.advance((hours or self.random.randint(1, 14)) * HOUR)
        self.world.drive("a")
        made = self.world.line.checkpoint(timeline=timeline)
        self.times[made.id] = made.plan.logical_time_ms
        self.lines[name].append(made.id)
        self.own[name].append(made.id)

    def restore(self) -> None:
        at = self.random.choice(sorted(self.times))
        name = f"t{len([n for n in self.lines if n.startswith('t')]) + 1}"
        timelines.restore(self.world.pages, "trips", RestoreRequest(checkpoint=at, request=name))
        self._begin(name, at)
        self.once_live.append(name)

    def fork(self) -> None:
        at, name = self.random.choice(sorted(self.times)), f"fork-{len(self.lines)}"
        timelines.fork(self.world.pages, "trips", name, RestoreRequest(checkpoint=at))
        self._begin(name, at)
        for _ in range(self.random.randint(0, 3)):
            self.checkpoint(name)

    def pin(self) -> None:
        name, at = f"pin-{len(self.pins)}", self.random.choice(sorted(self.times))
        request = SavepointRequest(name=name, owner="me", origin="test", checkpoint=at, note="")
        savepoints.open_savepoints(self.world.pages, "trips").create(request)
        self.pins[name] = at

    def _begin(self, name: str, at: int) -> None:
        of = next(n for n, own in self.own.items() if at in own)
        self.lines[name] = [c for c in self.lines[of] if c <= at]
        self.own[name], self.begun[name] = [], at

    def released(self, rule: str, without: str | None = None) -> set[int]:
        """What no rule keeps and nothing pins, by definition."""
        if not rule:
            return set()
        pinned = {at for name, at in self.pins.items() if name != without}
        is_open = {*(n for n in self.lines if n not in self.once_live), self.once_live[-1]}
        pinned |= {at for name, at in self.begun.items() if name in is_open and not self.own[name]}
        live = self.lines[self.once_live[-1]]
        together = sorted((c for n in self.once_live for c in self.own[n]), key=lambda c: (self.times[c], c))
        forks = [own for name, own in self.own.items() if name not in self.once_live]
        kept = {c for line in (live, together, *forks) for part in rule.split(" | ") for c in self._kept(part, line)}
        return set(self.times) - kept - pinned

    def _kept(self, part: str, line: list[int]) -> Iterable[int]:
        newest_first = line[::-1]
        verb, number = part.split("(")[0], "".join(ch for ch in part if ch.isdigit())
        yield from newest_first[:1]
        if verb == "keep_last":
            yield from newest_first[: int(number)]
        elif verb == "keep_for":
            yield from (c for c in line if self.times[c] >= self.times[line[-1]] - int(number) * HOUR)
        else:
            shape = {"hourly": "%Y-%m-%d %H", "daily": "%Y-%m-%d", "monthly": "%Y-%m"}[verb]
            last: dict[str, int] = {}
            for c in line:  # the end of a period belongs to it
                at = datetime.fromtimestamp((self.times[c] - 1) / 1000, tz=UTC)
                last[at.strftime(shape)] = c
            yield from (last[period] for period in sorted(last)[-int(number) :])


@pytest.fixture
def story(world: TripsPipeline) -> Story:
    return Story(world=world, random=random.Random(0))


def calendar(world: TripsPipeline, keep: str | None = None, without: str | None = None) -> RetentionCalendar:
    return retention_calendar.get_calendar(world.pages, "trips", WhatIf(keep=keep, without=without))


def numbers(names: Iterable[str]) -> set[int]:
    return {int(name.removeprefix("chk-")) for name in names}


@pytest.mark.parametrize("seed", range(6))
def test_the_calendar_is_what_the_rules_say_by_brute_force(world: TripsPipeline, seed: int) -> None:
    story = Story(world=world, random=random.Random(seed))
    for _ in range(3):
        story.checkpoint()
    for _ in range(7):
        story.random.choice([story.checkpoint, story.checkpoint, story.restore, story.fork, story.pin])()
    for rule in RULES:
        found = calendar(world, rule)
        assert numbers(found.released) == story.released(rule), rule
        assert {c.id for c in found.checkpoints if c.released} == story.released(rule)
        assert {c.id for c in found.checkpoints} == set(story.times)
        assert all(bool(c.rules or c.pins) is not c.released for c in found.checkpoints)
        for name in story.pins:
            assert numbers(calendar(world, rule, name).released) == story.released(rule, name), (rule, name)


def test_the_declared_rule_is_that_of_the_next_sweep(story: Story) -> None:
    world = story.world
    for n in range(6):
        story.checkpoint()
        assert n != 3 or world.line.compact("buses", full=True), "the runs so far are free once chk-1 to 4 are gone"
    request = SavepointRequest(name="pin", owner="me", origin="test", checkpoint=6, note="")
    savepoints.open_savepoints(world.pages, "trips").create(request)
    retention.declare_rule(world.pages, "trips", Retention.keep_last(2))
    found = calendar(world)
    planned = retention.plan_sweep(world.pages, "trips")
    assert found.is_declared and found.rule == "keep_last(2)"
    assert list(found.released) == list(planned.released) and found.released
    sized = retention_calendar.get_calendar(world.pages, "trips", WhatIf(), sizes=True)
    assert sized.freed_bytes == planned.bytes > 0, "nothing else is free"
    assert not calendar(world, "keep_last(3)").is_declared
    swept = retention.sweep(world.pages, "trips")
    assert swept.released == tuple(found.released)
    after = calendar(world)
    assert after.released == [] and after.total == len(story.times) - len(found.released)
    assert (after.waiting_files, after.last_sweep is not None) == (len(swept.waiting), True)


@pytest.mark.parametrize("rule", ["keep_last(3)", "keep_for(timedelta(hours=9))", "keep_last(1) | daily(2)"])
def test_a_checkpoint_goes_when_the_calendar_said_so(story: Story, rule: str) -> None:
    for _ in range(6):
        story.checkpoint(hours=4)
    first = {c.id: c.goes_after for c in calendar(story.world, rule).checkpoints if not c.released}
    due = {number: after for number, after in first.items() if after is not None}
    assert due and max(due.values()) <= 12
    gone_after: dict[int, int] = {}
    for more in range(1, max(due.values()) + 1):
        story.checkpoint(hours=4)
        for number in numbers(calendar(story.world, rule).released) & due.keys() - gone_after.keys():
            gone_after[number] = more
    assert gone_after == due


def test_what_no_rule_keeps_says_until_when_it_is_pinned(story: Story) -> None:
    world = story.world
    for _ in range(4):
        story.checkpoint()
    expires = world.line.clock.now_ms() + 5 * HOUR
    request = SavepointRequest(name="kept", owner="me", origin="test", checkpoint=1, note="", expires_at_ms=expires)
    savepoints.open_savepoints(world.pages, "trips").create(request)
    (line,) = [c for c in calendar(world, "keep_last(1)").checkpoints if c.id == 1]
    (pin,) = line.pins
    assert (line.rules, pin.why) == ([], "savepoint kept")
    assert pin.until == datetime.fromtimestamp(expires / 1000, tz=UTC).isoformat().replace("+00:00", "Z")
    assert calendar(world, "keep_last(1)", "kept").released == ["chk-1", "chk-2", "chk-3"]
    assert [c.goes_after for c in calendar(world, "").checkpoints] == [None] * 4
    assert [c.goes_after for c in calendar(world, f"keep_last({HORIZON + 5})").checkpoints] == [None] * 4


def test_a_text_that_is_no_rule_and_a_savepoint_that_is_gone_are_refused(story: Story) -> None:
    story.checkpoint()
    with pytest.raises(DeclarationError, match="not a retention rule"):
        calendar(story.world, "drop table")
    with pytest.raises(NotFoundError):
        calendar(story.world, None, "nothing")


@pytest.mark.parametrize(
    ("rule", "keeps", "releases"),
    [
        (Retention.keep_last(6), "one of the last 6", "older than the last 6"),
        (Retention.keep_for(timedelta(days=1, hours=12)), "not older than 1 d 12 h", "older than 1 d 12 h"),
        (Retention.daily(30), "the last of its day, for 30 days (UTC)", "not the last of one of the last 30 days"),
    ],
    ids=str,
)
def test_rules_are_told_in_words(story: Story, rule: Retention, keeps: str, releases: str) -> None:
    story.checkpoint()
    found = calendar(story.world, str(rule))
    assert (found.keeps, found.lets_go) == ([keeps], [releases])
    assert found.checkpoints[0].rules == ["the newest of its timeline", keeps]


def test_the_brute_force_finds_a_planted_bug(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(5):
        story.checkpoint()

    def mistaken(rule: Retention | None, lines: Lines) -> dict[int, tuple[str, ...]]:
        return {**kept_by(rule, lines), 1: ("by mistake",)}

    monkeypatch.setattr("tidemark.web.retention_calendar.kept_by", mistaken)
    assert numbers(calendar(story.world, "keep_last(2)").released) != story.released("keep_last(2)")


def test_a_calendar_has_no_lines_before_all_manifests_are_read_and_then_all_at_once(
    world: TripsPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(7):
        world.checkpoint("a")
    timelines.restore(world.pages, "trips", RestoreRequest(checkpoint=5, request="r"))
    damaged = world.folder / "timelines/t1/000000000002.json"
    damaged.write_bytes(damaged.read_bytes().replace(b'"records":1', b'"records":7'))
    whole = retention_calendar.get_calendar(world.context(), "trips", WhatIf(keep="keep_last(2)"))
    assert (whole.indexed.read, whole.indexed.of, whole.total) == (9, 9, 6), "with a genesis and a closing"
    monkeypatch.setattr(retention_calendar, "PORTION", 4)
    fresh = world.context(home=str(world.root / "another host"))
    for read in (1, 5):
        part = retention_calendar.get_calendar(fresh, "trips", WhatIf(keep="keep_last(2)"))
        assert (part.indexed.read, part.indexed.of) == (read, 9)
        assert (part.rule, part.lets_go, part.checkpoints, part.released) == (whole.rule, whole.lets_go, [], [])
    assert retention_calendar.get_calendar(fresh, "trips", WhatIf(keep="keep_last(2)")) == whole


def test_a_first_answer_reads_few_manifests_and_all_new_ones_once_the_rest_is_read(
    world: TripsPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(9):
        world.checkpoint("a")
    monkeypatch.setattr(retention_calendar, "FEW", 2)
    fresh = world.context(home=str(world.root / "another host"))

    def read(*, more: bool) -> tuple[int, int]:
        found = retention_calendar.get_calendar(fresh, "trips", WhatIf(), more=more).indexed
        return found.read, found.of

    assert [read(more=False) for _ in range(2)] == [(1, 9), (3, 9)]
    assert read(more=True) == (9, 9)
    world.checkpoint("a")
    assert read(more=False) == (10, 10)
