"""The protocol holds over twelve thousand schedules, and the simulation finds what is planted.

`TIDEMARK_TEST_SCHEDULES` sets how many, `TIDEMARK_TEST_SEED` where they begin; a failure prints its seed
and how to repeat it.
"""

import os
from functools import cache

import pytest

from tests.simulation.explore import explore, first_violation, repro
from tests.support.interleaving import Scheduler
from tests.support.simulation_bugs import BUGS

SCHEDULES = int(os.environ.get("TIDEMARK_TEST_SCHEDULES", "12000"))
SEED = int(os.environ.get("TIDEMARK_TEST_SEED", "0"))
CHUNKS = 8
WITHIN = 12_000
"""Schedules within which every planted bug must be found."""
FROM = {"own-ends-in-any-case": 34_000}
"""Where the search begins for the bug of which one schedule in some thirty thousand shows the damage."""
REACHING = 1500
"""Schedules that show every kind of accident; a restore that loses its slot is one in two hundred."""
ACCIDENTS = (
    ": killed",
    ": frozen",
    "FencedError",
    "CheckpointExpiredError",
    "StoreError",
    "  Restored ",
    "  restore won",
    "  restore lost",
    "  Promoted(",
    "  PromotionBlocked(",
    "  DAG run completed ",
    "/base 0",
    "abort.json",
)


@cache
def _played(seed: int) -> tuple[list[str], frozenset[str]]:
    """What a schedule breaks, and its accidents. The tests of the product share each schedule."""
    world, broken = explore(seed)
    trace = "\n".join(world.scheduler.trace)
    return broken, frozenset(accident for accident in ACCIDENTS if accident in trace)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_schedule_breaks_an_invariant(chunk: int) -> None:
    size = -(-SCHEDULES // CHUNKS)
    seeds = range(SEED + chunk * size, SEED + (chunk + 1) * size)
    print(f"seeds {seeds.start} to {seeds.stop - 1}")
    for seed in seeds:
        broken, _ = _played(seed)
        assert not broken, _told(seed, broken)


@pytest.mark.slow
@pytest.mark.parametrize("bug", sorted(BUGS))
def test_a_planted_bug_is_found(bug: str) -> None:
    begin = SEED + FROM.get(bug, 0)
    found = first_violation(range(begin, begin + WITHIN), bug)
    assert found is not None, f"{WITHIN} schedules from seed {begin} on did not find {bug}"
    print(f"{bug}: seed {found[0]}: {found[1][0]}")
    print(repro(found[0], bug))


def test_a_seed_repeats_its_schedule_word_for_word() -> None:
    first, second = explore(7)[0].scheduler.trace, explore(7)[0].scheduler.trace
    assert first == second
    assert len(first) > 20


def test_schedules_reach_every_kind_of_accident() -> None:
    shown = frozenset[str]().union(*(_played(seed)[1] for seed in range(REACHING)))
    missing = [accident for accident in ACCIDENTS if accident not in shown]
    assert not missing, f"no schedule of {REACHING} shows {missing}"


def test_a_killed_actor_never_runs_again() -> None:
    from random import Random

    scheduler, seen = Scheduler(Random(0)), []

    def act() -> None:
        for n in range(10):
            scheduler.pause("step")
            seen.append(n)

    scheduler.add("doomed", act, mortal=False)
    scheduler.actors[0].kill_at = 3
    scheduler.go(lambda: None)
    assert seen == [0, 1]


def _told(seed: int, found: list[str]) -> str:
    return "\n".join([*found, f"seed {seed}; repeat it with:", repro(seed)])
