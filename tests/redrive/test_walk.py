"""Hundreds of random steps over requests, restores, backfills and crashes; a failure prints its seed."""

from dataclasses import replace
from functools import cache
from itertools import accumulate
from typing import TypeVar

import pytest

from tests.redrive.fed_walk import FedWalk
from tests.redrive.redrive_walk import RedriveWalk
from tests.redrive.sink_walk import OutputsWalk, SinkWalk
from tidemark.coordinator.plans import sink_inputs
from tidemark.coordinator.plans.redrives import RedrivePlanner
from tidemark.coordinator.records.redrive_requests import RedriveHistory
from tidemark.errors import StoreError
from tidemark.model.checkpoint import emitted
from tidemark.model.checkpoint.redrive import LetterRow, Redrive
from tidemark.model.core.offsets import OffsetCoverage

SEEDS = range(8)
STEPS = 120
KINDS = {"SinkWalk": SinkWalk, "FedWalk": FedWalk}
Walk = TypeVar("Walk", bound=RedriveWalk)


def walked(seed: int, uid: str = "sums") -> RedriveWalk:
    return taken(RedriveWalk(seed, uid), seed)


def told(seed: int, kind: type[SinkWalk] = SinkWalk) -> SinkWalk:
    walk = taken(kind(seed), seed)
    walk.drain()
    return walk


@cache
def whole(seed: int, kind: str) -> SinkWalk:
    """A walk without a planted bug, which several tests look at."""
    return told(seed, KINDS[kind])


def taken(walk: Walk, seed: int) -> Walk:
    try:
        for _ in range(STEPS):
            walk.step()
            walk.compare_letters()
    except BaseException:
        print(f"seed {seed}", *walk.trace[-40:], sep="\n")
        raise
    return walk


@pytest.mark.parametrize("uid", ["sums", "seen"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_walk_over_redrives_is_what_plain_dicts_say(seed: int, uid: str) -> None:
    walk = walked(seed, uid)
    assert walk.redriven > 5
    assert walk.merged > 2
    assert len(walk.snapshots) > 20


def test_the_walks_repeat_redrives_in_backfills() -> None:
    assert sum(walked(seed).repeated for seed in SEEDS) > 10


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_walk_with_sinks_emits_for_each_record_once(seed: int, kind: str) -> None:
    walk = whole(seed, kind)
    assert walk.redriven > 5
    assert walk.merged > 2


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_a_walk_with_several_outputs_emits_to_each_sink_once(seed: int) -> None:
    assert told(seed, OutputsWalk).redriven > 5


@pytest.mark.parametrize("kind", KINDS)
def test_the_walks_with_sinks_meet_rows_that_a_kept_sink_has(kind: str) -> None:
    skipped = accumulate(whole(seed, kind).skipped for seed in range(30))
    assert any(count > 5 for count in skipped), "in thirty walks at most"


def test_the_walk_finds_emitted_records_that_are_taken_for_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LetterRow, "place", property(lambda row: (row.topic, row.partition, row.offset, (0,))))
    with pytest.raises((AssertionError, StoreError)):
        for seed in range(40):
            told(seed, FedWalk)


@pytest.mark.parametrize("bug", ["rows are forgotten", "refused ones count"])
def test_the_walk_finds_broken_sinks(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if bug == "rows are forgotten":
        monkeypatch.setattr(emitted, "redriving_checkpoints", lambda covered: ())
        monkeypatch.setattr(sink_inputs, "redriving_checkpoints", lambda covered: ())
    else:
        monkeypatch.setattr(Redrive, "coverage_at", lambda self, places: OffsetCoverage())
    with pytest.raises(AssertionError):
        for seed in range(40):
            told(seed)


def test_the_walk_finds_letters_that_are_redriven_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        RedriveHistory, "open_rows", lambda self, uid, rows: {r for r in rows if r.checkpoint in self.plans}
    )
    with pytest.raises(AssertionError):
        for seed in SEEDS:
            walked(seed)


def test_the_walk_finds_letters_of_another_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RedriveHistory, "open_rows", lambda self, uid, rows: rows - self.redriven.get(uid, set()))
    monkeypatch.setattr(RedrivePlanner, "_there", lambda self, draft, uid, rows: rows)
    with pytest.raises(Exception, match="dead letters were to be redriven|instead of"):
        for seed in SEEDS:
            walked(seed)


def test_the_walk_finds_a_request_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    take_up = RedrivePlanner.take_up
    monkeypatch.setattr(
        RedrivePlanner,
        "take_up",
        lambda self, draft: take_up(self, replace(draft, requests_seen=draft.requests_seen + 1)),
    )
    with pytest.raises(AssertionError):
        for seed in SEEDS:
            walked(seed)
