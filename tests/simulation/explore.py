"""Runs schedules: `python -m tests.simulation.explore --seed 17` repeats one and prints its trace."""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from tests.simulation.actors import populate
from tests.simulation.checker import violations
from tests.support import simulation_bugs
from tests.support.bug_finds import violations as finds
from tests.support.simulation import PIPELINE, SimulatedCluster
from tidemark.coordinator.checkpoints.loop import CheckpointLoop
from tidemark.coordinator.records import objects
from tidemark.ports import PlanRequest


@contextmanager
def _remembering_what_is_encoded() -> Iterator[None]:
    """Spares decoding what this very process has encoded; that the codec goes round is shown elsewhere."""
    known: dict[tuple[str, bytes], object] = {}
    encode, decode = objects.encode, objects.decode

    def encoded(value: object) -> bytes:
        raw = encode(value)
        if len(known) > 4096:
            known.clear()
        known[objects.KINDS[type(value)], raw] = value
        return raw

    def decoded(kind: str, key: str, raw: bytes) -> object:
        return known.get((kind, raw)) or decode(kind, key, raw)

    with patch.object(objects, "encode", encoded), patch.object(objects, "decode", decoded):
        yield


def explore(seed: int) -> tuple[SimulatedCluster, list[str]]:
    """One schedule: the actors, then a plain re-run without faults (I10), then the checker."""
    return _explored(_populated(seed))


def _populated(seed: int) -> SimulatedCluster:
    world = SimulatedCluster(seed)
    populate(world)
    return world


def _explored(world: SimulatedCluster) -> tuple[SimulatedCluster, list[str]]:
    with _remembering_what_is_encoded():
        return _played(world)


def _played(world: SimulatedCluster) -> tuple[SimulatedCluster, list[str]]:
    try:
        world.scheduler.go(world.between)
    except Exception as error:  # whatever an actor lets escape is a find
        return world, [f"{type(error).__name__} escaped: {error!r}"]
    world.faulty = False
    # Objects are never edited, so what was broken before the re-run is broken after it.
    repaired = _repaired(world)
    return world, [*violations(world), *repaired]


def _repaired(world: SimulatedCluster) -> list[str]:
    ends = {}
    for _ in range(4):
        try:
            done = CheckpointLoop(coordinator=world.coordinator, pipeline=PIPELINE, execute=world.execute).run_once(
                PlanRequest(origin="re-run")
            )
        except Exception as error:
            return [f"I10: a plain re-run failed: {error!r}"]
        ends = {tp: r.end for tp, r in done.checkpoints[-1].plan.ranges.items()}
        if ends == {tp: b.end for tp, b in world.log.partitions("topic", "read_committed").items()}:
            return []
    return [f"I10: plain re-runs stop at {ends}"]


def first_violation(seeds: range, bug: str | None = None) -> tuple[int, list[str]] | None:
    """The first seed whose schedule breaks an invariant; a planted bug is a name of `simulation_bugs.BUGS`.

    Without a planted bug any exception that escapes is one more. With one, schedules that do not reach its code are not
    played: they are as they are without it.
    """
    with ExitStack() as stack:
        if bug is not None:
            stack.enter_context(simulation_bugs.BUGS[bug]())
        for seed in seeds:
            world = _populated(seed)
            if bug is not None and not _reaches(world, bug):
                continue
            found = _explored(world)[1]
            if finds(found) if bug else found:
                return seed, found
    return None


def _reaches(world: SimulatedCluster, bug: str) -> bool:
    """Whether the actors of a schedule can reach the code of a bug."""
    if bug in simulation_bugs.BETWEEN_TWO:
        return len(set(world.runs)) < len(world.runs)
    needed = simulation_bugs.ACTORS.get(bug)
    return needed is None or any(actor.name in needed for actor in world.scheduler.actors)


def repro(seed: int, bug: str | None = None) -> str:
    """The line that repeats a schedule."""
    return f"PYTHONPATH=include python -m tests.simulation.explore --seed {seed}" + (f" --bug {bug}" if bug else "")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="repeat one schedule and print its trace")
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--bug", choices=sorted(simulation_bugs.BUGS))
    asked = parser.parse_args()
    if asked.seed is not None:
        with simulation_bugs.BUGS[asked.bug]() if asked.bug else ExitStack():
            world, broken = explore(asked.seed)
        print(*world.scheduler.trace, *broken, sep="\n")
        return bool(broken)
    started = time.process_time()
    found = first_violation(range(asked.first, asked.first + asked.schedules), asked.bug)
    spent = time.process_time() - started
    if found is None:
        print(f"{asked.schedules} schedules, 0 violations, {spent:.1f} s of CPU")
        return 0
    print(*found[1], repro(found[0], asked.bug), sep="\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
