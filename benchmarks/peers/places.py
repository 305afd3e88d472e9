"""What every peer is given and what it answers: a topic to read, a folder to keep its state in, rows at the end."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from benchmarks.workload import State

ROOT = Path(__file__).resolve().parents[2]
JARS = ROOT / ".jars"
TOPICS = 16
"""Topics of one run at most; each has a pipeline of its name in `pipelines`."""
COLUMNS = ("key", "updates", "amount", "last_at")
PARTITIONS = 4


def topic_of(n: int) -> str:
    """The name of the n-th topic, and of its pipeline."""
    return f"peers-{n}"


@dataclass(frozen=True)
class Place:
    """Where a peer reads and writes.

    Attributes:
        bootstrap: the broker.
        topic: of the updates; message keys are keys of the state, a record without a value deletes.
        folder: of all that the peer keeps between two runs; nobody else writes there.
        classes: folder of the compiled Java peers.
    """

    bootstrap: str
    topic: str
    folder: str
    classes: str

    def as_json(self) -> dict[str, Any]:
        """For a process of its own."""
        return asdict(self)


@dataclass(frozen=True)
class Stack:
    """What all cases share.

    Attributes:
        bootstrap: the broker.
        spark: a warm Connect server.
        home: a folder for everything.
        classes: the compiled Java peers.
    """

    bootstrap: str
    spark: str
    home: Path
    classes: Path


def place_of(kind: str, topic: int, stack: Stack) -> Place:
    """Of a peer of one kind, for the n-th topic."""
    name = topic_of(topic)
    return Place(stack.bootstrap, name, str(stack.home / name / kind), str(stack.classes))


def in_turn(kinds: Sequence[str], n: int) -> tuple[str, ...]:
    """Who comes after whom in the n-th round: each begins with another one."""
    turn = n % len(kinds) if kinds else 0
    return (*kinds[turn:], *kinds[:turn])


class Peer(Protocol):
    """One system, for one topic."""

    def take(self) -> None:
        """One scheduled run: everything that the topic holds now goes into the state, durably."""

    def upkeep(self) -> None:
        """What the system wants done between two runs; timed apart. Most want nothing."""

    def rows(self) -> pa.Table:
        """The live state: one row per key with the columns of `COLUMNS`."""

    def close(self) -> None:
        """Ends whatever it keeps running."""


class RestorablePeer(Peer, Protocol):
    """A system whose state can be kept, gone back to, and forked: by a command, or by a procedure of several steps."""

    def savepoint(self, name: str) -> None:
        """Keeps what the state is now."""

    def restore(self, name: str) -> None:
        """Goes back to it: the next run begins where it ended."""

    def forked(self, name: str, place: Place) -> Peer:
        """Another peer that goes on from it, beside this one, in a folder of its own where it needs one."""


class RetainingPeer(Peer, Protocol):
    """A system whose runs leave points that can be gone back to, until it is told to let them go.

    Attributes:
        least: it keeps so many points whatever it is told.
    """

    least: int

    def mark(self) -> Any:
        """The point that the last run has made."""

    def needed(self, marks: Sequence[Any]) -> Mapping[Path, str]:
        """The files that points need, each with what it is: `state` or `results`."""

    def keep(self, marks: Sequence[Any]) -> None:
        """Sets what it keeps to these points, where that is a setting; they are the newest, oldest first."""

    def drop(self, marks: Sequence[Any]) -> None:
        """Lets every other point go."""

    def back_to(self, mark: Any) -> None:
        """Goes back to a point: the next run begins where it ended."""


class WrongStateError(AssertionError):
    """The state of a system differs from the oracle's: the whole run is void."""


def check(name: str, found: pa.Table, wanted: State) -> int:
    """Compares every row with the oracle's.

    Returns:
        How many there are.

    Raises:
        WrongStateError: a row is missing, wrong, twice there or should not be there.
    """
    table = found.select(COLUMNS).sort_by("key")
    last = table["last_at"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    columns = {"key": table["key"], "updates": table["updates"], "amount": table["amount"], "last_at": last}
    expected = dict(zip(COLUMNS, (wanted.keys, wanted.updates, wanted.amounts, wanted.last_at), strict=True))
    for column, values in columns.items():
        got = np.array(values.to_pylist()) if column == "key" else values.to_numpy()
        if not np.array_equal(got, expected[column]):
            raise WrongStateError(
                f"{name}: {column} differs from the oracle's ({table.num_rows} rows, {len(wanted.keys)} wanted):"
                " this run is void"
            )
    return int(table.num_rows)


def child_environment() -> dict[str, str]:
    """Of a Python that imports this checkout; whether this one talks to a Spark Connect server is its own affair."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return kept | {"PYTHONPATH": os.pathsep.join([str(ROOT / "include"), str(ROOT)])}


@dataclass(frozen=True)
class Listing:
    """The files below a folder at one moment, by path: size and time of the last change."""

    files: dict[str, tuple[int, int]]

    @classmethod
    def of(cls, folder: str) -> "Listing":
        """What is there now; a file that goes meanwhile is not there."""
        found = {}
        for base, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(base, name)
                try:
                    stat = os.stat(path)
                except FileNotFoundError:
                    continue
                found[path] = (stat.st_size, stat.st_mtime_ns)
        return cls(found)

    def added(self, before: "Listing") -> int:
        """Bytes of the files that are new or changed since another listing."""
        return sum(size for path, (size, at) in self.files.items() if before.files.get(path) != (size, at))

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(size for size, _ in self.files.values())
