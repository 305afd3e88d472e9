"""A damaged manifest stops only what it may name, is named itself, and can be given up (I5, I10, fault 32)."""

import os
from ast import literal_eval
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tests.retention.damages import damaged, giving_up, key_of, torn
from tests.support.retention import ASK, ONE_FOLD, MemoryRetentionPipeline
from tidemark.coordinator.checkpoints.loop import CheckpointLoop
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.tombstones import of_checkpoints
from tidemark.coordinator.retention.legal_holds import Holding
from tidemark.declare.retention import Retention
from tidemark.errors import ConflictError, CorruptObjectError, ReleasedError, UsageError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.core.offsets import OffsetRange, TopicPartition
from tidemark.model.retention.file_paths import place_of

KEEP = Retention.keep_last(1)
SEEDS = range(int(os.environ.get("TIDEMARK_TEST_DAMAGES", "60")))
P0 = TopicPartition("payments", 0)


class Died(Exception):
    """The process is gone."""


def shelved(count: int = 4) -> tuple[MemoryRetentionPipeline, list[Checkpoint]]:
    retained = MemoryRetentionPipeline()
    return retained, [retained.checkpoint("a", f"b{n}") for n in range(count)]


def damage(retained: MemoryRetentionPipeline, checkpoint: Checkpoint, seed: int = 0) -> None:
    objects = retained.store.objects
    objects[key_of(checkpoint)] = torn(objects[key_of(checkpoint)], Random(seed))


def payments(retained: MemoryRetentionPipeline, found: Checkpoint) -> Counter[str]:
    """Per account, as the fold has them."""
    counts = Counter[str]()
    for row in map(literal_eval, retained.rows(found)["accounts state"]):
        counts[row["account"]] += row["payments"]
    return counts


def test_nothing_of_its_line_goes_and_it_is_named() -> None:
    retained, made = shelved()
    before = retained.data()
    damage(retained, made[1])
    plan = retained.plan(KEEP)
    (bad,) = plan.damaged
    assert (bad.name, bad.key, bad.blocks) == ("chk-2", key_of(made[1]), ("t1",))
    assert "damaged" in bad.why
    assert (plan.released, plan.free, plan.logs) == ((), (), ())
    assert retained.sweep(KEEP).released == ()
    assert retained.data() == before
    assert {k.why for k in plan.kept} >= {"chk-2, whose manifest is damaged"}


def test_other_lines_are_swept() -> None:
    retained, made = shelved(2)
    retained.fork("trial", made[0].id)
    of_fork = [retained.checkpoint("x", timeline="trial") for _ in range(3)]
    retained.checkpoint("c")
    damage(retained, of_fork[1])
    assert retained.sweep(KEEP).released == (), "the fork came from t1, and may name its files"
    whole = MemoryRetentionPipeline()
    first = whole.checkpoint("a")
    whole.fork("trial", first.id)
    mine = [whole.checkpoint("x", timeline="trial") for _ in range(3)]
    live = [whole.checkpoint("c") for _ in range(3)]
    damage(whole, live[1])
    done = whole.sweep(KEEP)
    assert done.released == (mine[0].plan.name, mine[1].plan.name), "what t1 may name is not of the fork"
    assert all(place_of(f.path).timeline == "trial" for f in done.deleted)  # type: ignore[union-attr]
    assert whole.readable(live[2]) and whole.readable(mine[2])


def test_put_back_it_is_as_if_nothing_had_been() -> None:
    retained, made = shelved()
    rows = [retained.rows(c) for c in made]
    with damaged(retained, made[1]):
        retained.sweep(KEEP)
        with pytest.raises(CorruptObjectError):
            retained.coordinator.checkpoint(2)
    assert [retained.rows(c) for c in made] == rows
    assert retained.sweep(KEEP).released == ("chk-1", "chk-2", "chk-3")


def test_what_may_be_a_genesis_or_a_closing_stops_everything() -> None:
    retained, made = shelved(2)
    retained.fork("trial", made[0].id)
    retained.store.objects["timelines/trial/000000000001.json"] = b"{"
    with pytest.raises(CorruptObjectError, match="trial"):
        retained.plan(KEEP)
    other, made = shelved(3)
    closing = other.restore(2)
    other.store.objects[f"timelines/t1/{closing.sequence:012d}.json"] = b"{"
    with pytest.raises(CorruptObjectError, match="timelines/t1"):
        other.plan(KEEP)


def test_what_is_given_up_is_read_by_nobody_and_what_it_alone_named_goes() -> None:
    retained, made = shelved()
    rows = {c.id: retained.rows(c) for c in made}
    retained.save("june", 2)
    damage(retained, made[1])
    found = giving_up(retained).outlook(2)
    assert (found.done, found.is_newest, found.goes_on_from, dict(found.read_again)) == (False, False, None, {})
    assert found.savepoints == ("june",)
    assert retained.plan(KEEP).damaged, "a dry run writes nothing"
    assert giving_up(retained).give_up(2).done
    with pytest.raises(ReleasedError, match="chk-2 was given up: object damaged"):
        retained.coordinator.checkpoint(2)
    assert [c.id for c in retained.coordinator.checkpoints()] == [4, 3, 1]
    assert [c.id for c in retained.coordinator.timelines.all()] == [1, 3, 4]
    plan = retained.plan(None)
    assert (plan.damaged, plan.disposed) == ((), ("june",))
    done = retained.sweep(KEEP)
    assert done.released == ("chk-1", "chk-3")
    assert retained.rows(made[3]) == rows[4]
    assert retained.sweep(KEEP).plan.unknown == ()
    with pytest.raises(UsageError, match="already"):
        giving_up(retained).give_up(2)


@pytest.mark.parametrize("count", [1, 3])
def test_a_timeline_that_ended_with_it_goes_on_from_the_one_before(count: int) -> None:
    retained, made = shelved(count)
    last = made[-1]
    damage(retained, last)
    with pytest.raises(CorruptObjectError):
        retained.checkpoint("c")
    found = giving_up(retained).give_up(last.id)
    assert found.is_newest
    assert found.goes_on_from == (None if count == 1 else "chk-2")
    assert found.read_again == {P0: last.plan.ranges[P0]}
    again = retained.checkpoint()
    assert again.plan.slot.sequence == last.plan.slot.sequence + 1
    # The payment of the checkpoint that failed to plan was sent, and is read now.
    assert again.plan.ranges[P0] == OffsetRange(last.plan.ranges[P0].start, last.plan.ranges[P0].end + 1)
    assert again.plan.parent == (None if count == 1 else 2)
    expected = MemoryRetentionPipeline()
    for n in range(count):
        expected.checkpoint("a", f"b{n}")
    assert payments(retained, again) == payments(expected, expected.checkpoint("c")), "each counts once"
    retained.sweep(KEEP)
    assert retained.readable(again)


def test_where_the_one_before_was_released_nothing_starts_anew_by_itself() -> None:
    retained, made = shelved(3)
    retained.save("june", 1)
    retained.sweep(KEEP)
    damage(retained, made[2])
    found = giving_up(retained).give_up(3)
    assert (found.goes_on_from, found.stops_at) == (None, "chk-2")
    with pytest.raises((ReleasedError, ConflictError)):
        retained.checkpoint("c")
    retained.recovery.restore(RestorePoint(checkpoint=retained.coordinator.checkpoint(1), restore_sinks=True))
    assert retained.readable(retained.checkpoint("c"))


def test_an_open_plan_that_reads_it_goes_on(tmp_path: Any) -> None:
    retained, made = shelved(2)
    retained.pay("c")
    loop = CheckpointLoop(coordinator=retained.coordinator, pipeline=retained.pipeline, execute=dying)
    with pytest.raises(Died):
        loop.run_once(ASK)
    damage(retained, made[1])
    giving_up(retained).give_up(2)
    retained.sweep(KEEP)
    done = retained.checkpoint()
    assert retained.readable(done)
    assert [c.id for c in retained.coordinator.timelines.ancestry(done)][0] == done.id
    expected, _ = shelved(2)
    assert payments(retained, done) == payments(expected, expected.checkpoint("c"))


def dying(attempt: Any) -> Any:
    raise Died


def test_what_is_needed_is_not_given_up() -> None:
    retained, made = shelved(3)
    retained.save("june", 2)
    Holding(retained.coordinator).hold("june", why="case 4711", owner="test")
    damage(retained, made[1])
    with pytest.raises(ConflictError, match="legal hold"):
        giving_up(retained).give_up(2)
    other, made = shelved(3)
    other.fork("trial", 2)
    damage(other, made[1])
    with pytest.raises(ConflictError, match="timeline trial"):
        giving_up(other).give_up(2)
    assert other.plan(None).damaged, "the tombstone was taken back, or never raised"
    with pytest.raises(CorruptObjectError):
        other.checkpoint("x", timeline="trial")
    other.end("trial")
    assert giving_up(other).give_up(2).done


def test_what_is_whole_is_not_given_up() -> None:
    retained, _ = shelved(2)
    with pytest.raises(UsageError, match="is whole"):
        giving_up(retained).give_up(1)


@pytest.mark.parametrize("step", ["give_up.tombstone", "give_up.decision"])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", [2, 3])
def test_killed_anywhere_a_sweep_deletes_nothing_and_a_repetition_ends_it(step: str, moment: str, number: int) -> None:
    retained, made = shelved(3)
    damage(retained, made[number - 1])
    before = retained.data()

    wanted = (step, moment)

    def crash(step: str, moment: str) -> None:
        if (step, moment) == wanted:
            raise Died

    verb = giving_up(retained)
    with pytest.raises(Died):
        replace(verb, coordinator=replace(verb.coordinator, listener=crash)).give_up(number)
    decided = (step, moment) == ("give_up.decision", "after")
    retained.sweep(KEEP)
    assert decided or retained.data() == before
    if not decided:
        assert giving_up(retained).give_up(number).done
    retained.sweep(KEEP)
    assert retained.readable(retained.checkpoint("z"))


def random_history(rng: Random) -> tuple[MemoryRetentionPipeline, list[Checkpoint]]:
    """Checkpoints on a line and forks of it, compacted and restored now and then."""
    retained, made, lines = MemoryRetentionPipeline(pipeline=ONE_FOLD), list[Checkpoint](), [""]
    for n in range(rng.randrange(3, 9)):
        what = rng.random()
        if made and what < 0.15:
            lines.append(f"fork{n}")
            retained.fork(lines[-1], rng.choice(made).id)
        elif made and what < 0.25:
            retained.merge()
        elif made and what < 0.3:
            retained.restore(rng.choice(made).id)
            lines = [""]
        else:
            made.append(retained.checkpoint(rng.choice("abc"), timeline=rng.choice(lines) or None))
    return retained, made


@pytest.mark.parametrize("seed", SEEDS)
def test_no_file_goes_that_a_damaged_manifest_may_name(seed: int) -> None:
    print(f"seed {seed}")
    rng = Random(seed)
    retained, made = random_history(rng)
    rows, victim = {c.id: retained.rows(c) for c in made}, rng.choice(made)
    with damaged(retained, victim, rng):
        for _ in range(3):
            with suppress(CorruptObjectError):
                retained.sweep(KEEP)
            with suppress(CorruptObjectError):
                retained.checkpoint("d")
    assert retained.rows(victim) == rows[victim.id]
    damage(retained, victim, seed)
    with suppress(ConflictError, CorruptObjectError):
        assert giving_up(retained).give_up(victim.id).done
        retained.sweep(KEEP)
        gone = {name for name, t in of_checkpoints(retained.coordinator.objects).items() if t.confirmed}
        kept = [c for c in retained.coordinator.timelines.all() if c.plan.name not in gone]
        assert kept and all(retained.readable(c) for c in kept)


def test_most_random_damages_can_be_given_up() -> None:
    """The test above would say nothing if all of them were refused."""
    done = 0
    for seed in SEEDS:
        retained, made = random_history(Random(seed))
        victim = Random(seed).choice(made)
        damage(retained, victim, seed)
        with suppress(ConflictError, CorruptObjectError):
            done += giving_up(retained).give_up(victim.id).done
    assert done > len(SEEDS) / 3
