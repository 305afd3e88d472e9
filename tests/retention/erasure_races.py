"""Erasures beside everything that may bring a key back, interleaved at every operation on store, tables and disk.

The key is blocked for ever. Whatever happened beside it, and whoever died: once the erasure was repeated with nobody
beside it, the key is in no file that anything kept names, every other row is where it was, and all goes on.
"""

import argparse
import sys
from collections.abc import Callable

from tests.retention.races import EXPECTED, Explored, Races
from tidemark.coordinator.records.timelines import Erasures
from tidemark.coordinator.records.tombstones import of_checkpoints
from tidemark.declare.retention import Retention
from tidemark.errors import StoreError
from tidemark.model.checkpoint.manifest import Checkpoint

KEY = "a"


class ErasureRaces(Races):
    """One schedule, from a seed: of a fold."""

    uid = "accounts"
    takes_the_whole = False
    erases = True
    expected = (*EXPECTED, StoreError)
    """What one works on may be released, or erased, under its feet."""

    @property
    def lead(self) -> tuple[str, Callable[[], None]]:
        """Erasures."""
        return "erase", self._erase

    @property
    def others(self) -> dict[str, Callable[[], None]]:
        """Who they must meet."""
        return {
            "run": self._run,
            "merge": self._merge,
            "fork": self._fork,
            "restore": self._restore,
            "pin": self._pin,
            "sweep": self._sweep,
        }

    def go(self) -> list[str]:
        """What was broken, in words, after the world was left to itself."""
        self.scheduler.go(lambda: None)
        self._erase()
        broken = [*self._broken(), *self._found()]
        self.retained.sweep(Retention.keep_last(1))
        self.retained.sweep(Retention.keep_last(1))
        return [*broken, *self._broken(), *self._found(), *self._on_disk(), *self._goes_on(), *self._found()]

    def _erase(self) -> None:
        done = self.retained.erase(self.uid, KEY, forever=True)
        self.scheduler.trace.append(f"  erased {done}")

    def _broken(self) -> list[str]:
        """As of the races of sweeps; a row of the key is no row."""
        retained, found = self.retained, []
        for checkpoint in self._kept():
            try:
                rows = retained.rows(checkpoint)
            except StoreError as error:
                found.append(f"I5: {checkpoint.plan.name} is kept, and {error.what}")
                continue
            before = self.held.get(checkpoint.id, rows)
            if _without(rows) != _without(before):
                found.append(f"I4: {checkpoint.plan.name} holds something else than it did")
        return found

    def _found(self) -> list[str]:
        named = [f"{c.plan.name} holds the key" for c in self._kept() if self._with(self.retained.rows(c))]
        ended = Erasures(self.retained.coordinator.objects).open()
        return [*named, *(f"erasure {record.number} has not ended" for record in ended)]

    def _on_disk(self) -> list[str]:
        """Files that hold the key, after two sweeps: of nobody but compactions that died, which may still go on."""
        files = self.retained.tables.files
        reached = {p: rows for p, rows in files.items() if f"/state/{self.uid}/" in p or "/sinks/told/" in p}
        held = [p for p, rows in reached.items() if any(row["account"] == KEY for row in rows)]
        return [f"on the disk: {path}" for path in held]

    def _kept(self) -> list[Checkpoint]:
        c = self.retained.coordinator
        gone = {name for name, t in of_checkpoints(c.objects).items() if t.confirmed}
        return [x for x in c.timelines.all() if x.plan.name not in gone]

    def _with(self, rows: dict[str, list[str]]) -> list[str]:
        reached = [row for kind, of in rows.items() if kind.startswith(f"{self.uid} ") for row in of]
        return [row for row in reached if f"'account': '{KEY}'" in row]


class SinkErasureRaces(ErasureRaces):
    """One schedule, from an odd seed: of a process with a sink, which may be compacted."""

    uid = "teller"
    takes_the_whole = True


def _without(rows: dict[str, list[str]]) -> dict[str, list[str]]:
    return {kind: [row for row in of if f"'account': '{KEY}'" not in row] for kind, of in rows.items()}


def explore(seed: int) -> Explored:
    """Plays one schedule."""
    races = (SinkErasureRaces if seed % 2 else ErasureRaces)(seed).actors()
    try:
        found = races.go()
    except Exception as error:  # whatever an actor lets escape is a find
        found = [f"{type(error).__name__} escaped: {error!r}"]
    return Explored(found, races.scheduler.trace)


def main() -> int:
    """The command: `--seed N` prints a trace, `--schedules N` plays that many."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--schedules", type=int, default=1000)
    asked = parser.parse_args()
    if asked.seed is not None:
        played = explore(asked.seed)
        print(*played.trace, *played.found, sep="\n")
        return bool(played.found)
    for seed in range(asked.first, asked.first + asked.schedules):
        if found := explore(seed).found:
            print(*found, f"python -m tests.retention.erasure_races --seed {seed}", sep="\n")
            return 1
    print(f"{asked.schedules} schedules from seed {asked.first}, 0 violations")
    return 0


if __name__ == "__main__":
    sys.exit(main())
