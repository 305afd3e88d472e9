"""Runs actors as greenlets that yield at each operation on the store or a table; a seeded scheduler picks the next one.

The scheduler may kill an actor at any operation, so that it never runs again. It may also freeze one until all others
have ended or are frozen too: a zombie.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from greenlet import getcurrent, greenlet

from tests.support.crashes import Killed


@dataclass
class Actor:
    """A simulated process: its code, and the numbers of operations after which it is killed or frozen."""

    name: str
    act: Callable[[], None]
    kill_at: int | None
    freeze_at: int | None
    steps: int = 0
    frozen: bool = False
    thread: greenlet | None = None

    @property
    def started(self) -> greenlet:
        """The greenlet of a started actor."""
        assert self.thread is not None, self.name
        return self.thread


class Scheduler:
    """Interleaves actors until all have ended."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.actors: list[Actor] = []
        self.hub = getcurrent()
        self.trace: list[str] = []

    def add(self, name: str, act: Callable[[], None], *, mortal: bool = True) -> None:
        rng = self.rng
        kill_at = int(rng.expovariate(1 / 40)) if mortal and rng.random() < 0.35 else None
        freeze_at = int(rng.expovariate(1 / 40)) if rng.random() < 0.4 else None
        self.actors.append(Actor(name, act, kill_at, freeze_at))

    def pause(self, what: str) -> None:
        """Yields to the scheduler. Called before every operation; does nothing in the hub itself."""
        current = getcurrent()
        if current is not self.hub:
            self.hub.switch(what)

    def go(self, between: Callable[[], None]) -> None:
        rng = self.rng
        for actor in self.actors:
            actor.thread = greenlet(actor.act, parent=self.hub)
        alive = list(self.actors)
        while alive:
            ready = [a for a in alive if not a.frozen]
            if not ready:
                for actor in alive:
                    actor.frozen, actor.freeze_at = False, None
                ready = alive
            actor = ready[rng.randrange(len(ready))]
            for _ in range(rng.choice((1, 1, 2, 4, 9, 25))):
                self._step(actor)
                if actor.started.dead:
                    alive.remove(actor)
                    break
                if actor.frozen:
                    break
            between()

    def _step(self, actor: Actor) -> None:
        thread = actor.started
        actor.steps += 1
        if actor.kill_at is not None and actor.steps > actor.kill_at:
            self.trace.append(f"{actor.name}: killed")
            try:
                thread.throw(Killed)
            except Killed:
                return
            raise AssertionError(f"{actor.name} survived its death")
        what = thread.switch()
        self.trace.append(f"{actor.name}: {what}")
        if actor.freeze_at is not None and actor.steps > actor.freeze_at:
            self.trace.append(f"{actor.name}: frozen")
            actor.frozen = True
