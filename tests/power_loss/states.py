"""Crash states as folders: built quickly, because what does not differ is linked."""

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.power_loss.disk_model import Disk, Tree, crashes
from tests.power_loss.recording import Call, recorded
from tests.power_loss.scenario import TOLD

WAREHOUSE = "warehouse"


@dataclass(frozen=True, slots=True)
class Recording:
    """What the scenario did.

    Attributes:
        folder: where; as it was left.
        before: the warehouse beforehand.
        told_before: what had been reported beforehand.
        calls: all that it did below the folder.
    """

    folder: Path
    before: Tree
    told_before: str
    calls: Sequence[Call]

    @classmethod
    def made(cls, prepared: Path, folder: Path, planted: Sequence[str] = ("",)) -> "list[Recording]":
        """Runs the scenario's second half, once per planted bug, in copies of what its first half left.

        Args:
            prepared: what its first half left.
            folder: for the copies.
            planted: names of bugs; an empty one is none.
        """
        places = [folder / str(number) for number in range(len(planted))]
        for place in places:
            shutil.copytree(prepared, place)
        before, told = found(prepared / WAREHOUSE), (prepared / TOLD).read_text()
        calls = recorded([*_scenario(folder), *planted], folder, folder.with_suffix(".strace"))
        return [cls(place, before, told, _below(place, calls)) for place in places]

    @property
    def told(self) -> Path:
        """The file of what was reported; it is no part of the disk."""
        return self.folder / TOLD

    def begun(self) -> Disk:
        """The disk beforehand."""
        return Disk.holding(self.folder / WAREHOUSE, self.before)


def prepare(folder: Path) -> None:
    """Runs the scenario's first half."""
    subprocess.run(_scenario(folder), check=True)


def _below(place: Path, calls: Iterable[Call]) -> list[Call]:
    told = place / TOLD
    ours = [c for c in calls if place in c.paths[0].parents]
    return [c for c in ours if c.paths[0] != told or c.name == "write"]


def _scenario(folder: Path) -> list[str]:
    return [sys.executable, "-m", "tests.power_loss.scenario", str(folder)]


def found(root: Path) -> Tree:
    """A folder as it is."""
    return {p.relative_to(root).as_posix(): None if p.is_dir() else p.read_bytes() for p in sorted(root.rglob("*"))}


@dataclass(frozen=True, slots=True)
class State:
    """What a power cut may leave.

    Attributes:
        after: so many calls.
        what: survived.
        tree: of the warehouse.
        told: what had been reported by then.
    """

    after: int
    what: str
    tree: Tree
    told: str

    @property
    def last_told(self) -> str:
        """What was reported last, by its first word."""
        lines = self.told.splitlines()
        return str(json.loads(lines[-1])[0]) if lines else ""

    def __str__(self) -> str:
        return f"power cut after call {self.after}, {self.what}"


def states(recording: Recording, seed: int, per_call: int) -> Iterator[State]:
    """Crash states of a recording, each once, in the order of its calls.

    Args:
        recording: what is replayed.
        seed: of what is chosen.
        per_call: how many ways to lose what is pending are tried behind each call, of all that there are.
    """
    rng, seen, hashes = random.Random(seed), set[bytes](), dict[bytes, bytes]()
    disk, told = recording.begun(), recording.told_before
    for number, call in enumerate(recording.calls):
        if call.paths[0] == recording.told:
            told += call.data.decode()
        else:
            disk.do(call)
        following = recording.calls[number + 1] if number + 1 < len(recording.calls) else None
        if following is not None and following.name == call.name == "write" and following.paths == call.paths:
            continue  # a file that is half written is tried when it is whole
        ways = list(crashes(disk, rng))
        for what, survivors in rng.sample(ways, min(per_call, len(ways))):
            tree = disk.tree(survivors)
            mark = _digest(tree, told, hashes)
            if mark not in seen:
                seen.add(mark)
                yield State(number, what, tree, told)


def _digest(tree: Tree, told: str, hashes: dict[bytes, bytes]) -> bytes:
    made = hashlib.sha256(told.encode())
    for path, held in sorted(tree.items()):
        made.update(path.encode() + b"\0")
        if held is not None:
            if held not in hashes:
                hashes[held] = hashlib.sha256(held).digest()
            made.update(hashes[held])
    return made.digest()


@dataclass
class TreeFolder:
    """Builds trees; equal files are one, so nobody may write into a file that is there (the product never does)."""

    folder: Path
    _pool: dict[bytes, Path] = field(default_factory=dict)

    def build(self, tree: Tree) -> Path:
        """A tree, in place of the one before."""
        at = self.folder / WAREHOUSE
        shutil.rmtree(at, ignore_errors=True)
        at.mkdir(parents=True)
        for path, held in tree.items():
            if held is None:
                os.makedirs(f"{at}/{path}", exist_ok=True)
            else:
                os.makedirs(os.path.dirname(f"{at}/{path}"), exist_ok=True)
                os.link(self._pooled(held), f"{at}/{path}")
        return at

    def untouched(self) -> bool:
        """Whether every file that trees share is as it was."""
        return all(path.read_bytes() == held for held, path in self._pool.items())

    def _pooled(self, held: bytes) -> Path:
        if held not in self._pool:
            path = self.folder / "pool" / str(len(self._pool))
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(held)
            self._pool[held] = path
        return self._pool[held]
