"""Which checkpoint a plan finds expired: by bisection, as by a look at every checkpoint of the line."""

from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from tests.support.retention import ONE_FOLD, MemoryRetentionPipeline
from tidemark import DeltaSink
from tidemark.errors import DeclarationError


@pytest.mark.parametrize("seed", range(25))
def test_bisection_finds_what_a_look_at_every_checkpoint_finds(seed: int) -> None:
    print(f"seed {seed}")
    chance = Random(seed)
    retained = MemoryRetentionPipeline(pipeline=ONE_FOLD)
    times: dict[int, int] = {}
    parents: dict[int, int | None] = {}
    for number in range(chance.randrange(5, 30)):
        retained.clock.advance(chance.choice((0, 0, 5_000, 60_000)))
        found = retained.checkpoint("a")
        times[found.id], parents[found.id] = found.plan.logical_time_ms, found.plan.parent
        if number > 2 and chance.random() < 0.15:
            retained.restore(chance.choice(sorted(times)))
        elif chance.random() < 0.1:
            name = f"f{number}"
            retained.fork(name, chance.choice(sorted(times)))
            for _ in range(chance.randrange(3)):
                forked = retained.checkpoint("b", timeline=name)
                times[forked.id], parents[forked.id] = forked.plan.logical_time_ms, forked.plan.parent
    timelines = retained.coordinator.timelines
    for name in timelines.names():
        head = retained.coordinator.head(name)
        begin: Any = timelines.entry_at(name, head.sequence)
        line, at = [], getattr(begin, "parent", None) if not hasattr(begin, "plan") else begin.id
        while at is not None:
            line.append(at)
            at = parents[at]
        if not line:
            continue  # closed
        for when in {0, *times.values(), *(ms - 1 for ms in times.values()), 2**60}:
            wanted = max((n for n in line if times[n] <= when), default=0)
            for known in (0, *(n for n in line if times[n] <= when)):
                assert timelines.newest_until(name, head.sequence, when, known) == wanted, (name, when, known)


def test_few_manifests_are_read_once_something_has_expired() -> None:
    retained = MemoryRetentionPipeline(pipeline=ONE_FOLD)
    found = [retained.checkpoint("a") for _ in range(200)]
    reads: list[str] = []
    store = retained.coordinator.objects.store
    get = store.get

    def counted(key: str) -> bytes | None:
        reads.append(key)
        return get(key)

    retained.store.get = counted
    timelines = retained.coordinator.timelines
    assert timelines.newest_until("t1", 200, found[149].plan.logical_time_ms, found[148].id) == found[149].id
    assert len({key for key in reads if key.startswith("timelines/") and ".r1" not in key}) <= 4
    reads.clear()
    assert timelines.newest_until("t1", 200, found[149].plan.logical_time_ms) == found[149].id
    assert len({key for key in reads if key.startswith("timelines/") and ".r1" not in key}) <= 30


@pytest.mark.parametrize("given", [timedelta(0), timedelta(days=-1), timedelta(microseconds=1), 90])
def test_a_duration_that_is_none_is_refused(given: Any) -> None:
    with pytest.raises(DeclarationError, match="keep_for="):
        DeltaSink("told", keep_for=given)
    with pytest.raises(DeclarationError, match="keep_dead_letters_for="):
        replace(ONE_FOLD, keep_dead_letters_for=given)
