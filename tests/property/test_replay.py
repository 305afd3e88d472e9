"""For any cut of a record list into checkpoints, with crashes anywhere, the state equals one fold over all records."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.fold_oracle import DAY, PIPELINE, Reading, fold, scripts
from tests.support.scale import cases
from tidemark.errors import DeadLettersExceededError, UsageError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.testing import BARRIER, CRASH, Script, replay


@settings(max_examples=cases(100), deadline=None)
@given(scripts(), st.integers(1, 3))
def test_state_is_one_fold_however_it_is_cut_and_wherever_it_crashes(
    script: tuple[Script, list[list[object]]], partitions: int
) -> None:
    parts, cuts = script
    done = replay(PIPELINE, parts, partitions=partitions)
    assert len(done.checkpoints) == len(cuts)
    seen: list[object] = []
    for checkpoint, records in zip(done.checkpoints, cuts, strict=True):
        seen += records
        wanted = fold(seen, partitions)
        assert {key: vars(kept) for key, kept in done.state("sensors", checkpoint).items()} == wanted
        rooms = Counter((r.room, r.sensor) for r in seen if isinstance(r, Reading) and r.sensor is not None)
        assert {key: kept.n for key, kept in done.state("rooms", checkpoint).items()} == rooms
        dead = sum(not isinstance(r, Reading) or r.sensor is None for r in seen)
        assert len(done.dead_letters("sensors", checkpoint)) == dead
        assert checkpoint.sealed.facts.records == len(records)
    _assert_chain(done.checkpoints)


def _assert_chain(checkpoints: tuple[Checkpoint, ...]) -> None:
    for parent, child in zip(checkpoints, checkpoints[1:], strict=False):
        assert child.plan.ranges.breaks_from(parent.plan.ranges) == []
        assert child.id > parent.id
        assert child.plan.parent == parent.id
        assert child.plan.slot.sequence == parent.plan.slot.sequence + 1
        assert set(child.handles) == {"sensors", "rooms"}


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    "step",
    ["ids", "queries", "plan", "attempt", "read", "fold.sensors", "runs.sensors", "fold.rooms", "runs.rooms"]
    + ["dead_letters.rooms", "sinks.rooms", "commit.runs.rooms", "commit.sinks.rooms"]
    + ["gate", "fsync", "seal", "publish"],
)
def test_a_crash_at_every_step_in_first_attempt_and_retry_is_repaired(step: str, moment: str) -> None:
    crash = CRASH.at(step, moment)
    records = [b'{"sensor":"a","room":1,"value":2,"at":"2020"}', _reading("a", 5), _reading("b", 7)]
    # A step that is durable once is not passed again by the retry.
    repeats = 1 if moment == "after" and step in ("plan", "seal", "publish") else 2
    done = replay(PIPELINE, [records, *[crash] * repeats, BARRIER, [_reading("a", 1), b"{"], crash, BARRIER])
    assert done.crashes == repeats + 1
    assert done.state("sensors")["a"].total == 6
    assert done.state("sensors")["b"].total == 7
    _assert_chain(done.checkpoints)


def _reading(sensor: str | None, value: int) -> Reading:
    return Reading(sensor=sensor, room=1, value=value, at=DAY)


def test_dead_letters_say_where_and_why() -> None:
    done = replay(PIPELINE, [[b"\xff", _reading(None, 1), _reading("a", 1)], BARRIER])
    assert [(x["offset"], x["reason"], x["uid"]) for x in done.dead_letters("sensors")] == [
        (0, "invalid_utf8", "sensors"),
        (1, "null_key", "sensors"),
    ]
    assert done.dead_letters("sensors")[0]["value"] == b"\xff"


def test_too_many_dead_letters_fail_the_checkpoint() -> None:
    with pytest.raises(DeadLettersExceededError, match="sensors: 1 of 2 records"):
        replay(replace(PIPELINE, max_dead_letters=0.1), [[b"\xff", _reading("a", 1)], BARRIER])


def test_scripts_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="CRASH follows the last BARRIER"):
        replay(PIPELINE, [[_reading("a", 1)], BARRIER, CRASH])
    with pytest.raises(UsageError, match=r"fold\.sensors:before was never reached"):
        replay(PIPELINE, [[], CRASH.at("fold.sensors"), BARRIER])
