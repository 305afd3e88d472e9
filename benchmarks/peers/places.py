"""The interface of a peer: a topic to read, a folder for its state, and the rows of the state at the end."""

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
"""The maximum number of topics in a run; each has a pipeline of the same name in `pipelines`."""
COLUMNS = ("key", "updates", "amount", "last_at")
PARTITIONS = 4


def topic_of(n: int) -> str:
    """The name of the n-th topic, and of its pipeline."""
    return f"peers-{n}"


@dataclass(frozen=True)
class Place:
    """Where a peer reads and writes.

    Attributes:
        bootstrap: the address of the broker.
        topic: the topic of the updates; message keys are keys of the state, and a record without a value deletes.
        folder: the folder for everything that the peer keeps between two runs; only the peer writes there.
        classes: the folder of the compiled Java peers.
    """

    bootstrap: str
    topic: str
    folder: str
    classes: str

    def as_json(self) -> dict[str, Any]:
        """The fields of the place, to pass to another process as JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Stack:
    """The services and folders that all cases share.

    Attributes:
        bootstrap: the address of the broker.
        spark: the address of a warm Connect server.
        home: the folder for all files.
        classes: the folder of the compiled Java peers.
    """

    bootstrap: str
    spark: str
    home: Path
    classes: Path


def place_of(kind: str, topic: int, stack: Stack) -> Place:
    """The place of a peer of one kind, for the n-th topic."""
    name = topic_of(topic)
    return Place(stack.bootstrap, name, str(stack.home / name / kind), str(stack.classes))


def in_turn(kinds: Sequence[str], n: int) -> tuple[str, ...]:
    """The order of the peers in the n-th round; each round begins with a different peer."""
    turn = n % len(kinds) if kinds else 0
    return (*kinds[turn:], *kinds[:turn])


class Peer(Protocol):
    """One system with one topic."""

    def take(self) -> None:
        """Performs one scheduled run: processes every record in the topic and makes the new state durable."""

    def upkeep(self) -> None:
        """Does the maintenance that the system needs between two runs, timed separately; most systems need none."""

    def rows(self) -> pa.Table:
        """Returns the live state: one row per key, with the columns of `COLUMNS`."""

    def close(self) -> None:
        """Stops the processes that the peer keeps running."""


class RestorablePeer(Peer, Protocol):
    """A system whose state can be saved, restored and forked, by one command or in several steps."""

    def savepoint(self, name: str) -> None:
        """Saves the current state under a name."""

    def restore(self, name: str) -> None:
        """Restores a savepoint, with the offsets where the next run begins."""

    def forked(self, name: str, place: Place) -> Peer:
        """Returns another peer that continues from the savepoint, in a separate folder if the system needs one."""


class RetainingPeer(Peer, Protocol):
    """A system whose runs leave points that can be restored, until `drop` removes them.

    Attributes:
        least: the minimum number of points that the system keeps; `drop` cannot go below it.
    """

    least: int

    def mark(self) -> Any:
        """Returns the point that the last run has left."""

    def needed(self, marks: Sequence[Any]) -> Mapping[Path, str]:
        """Returns the files that the points need, each labelled `state` or `results`."""

    def keep(self, marks: Sequence[Any]) -> None:
        """Configures the system to keep these points, if it has such a setting; they are the newest, oldest first."""

    def drop(self, marks: Sequence[Any]) -> None:
        """Removes every other point."""

    def back_to(self, mark: Any) -> None:
        """Restores a point, with the offsets where the next run begins."""


class WrongStateError(AssertionError):
    """The state of a system differs from the oracle's: the whole run is void."""


def check(name: str, found: pa.Table, wanted: State) -> int:
    """Compares every row with the oracle's.

    Returns:
        The number of rows.

    Raises:
        WrongStateError: a row is missing, wrong, duplicated or unexpected.
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


def child_environment(root: Path = ROOT) -> dict[str, str]:
    """The environment for a Python that imports a checkout, without the Spark variables of this process."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return kept | {"PYTHONPATH": os.pathsep.join([str(root / "include"), str(root)])}


@dataclass(frozen=True)
class Listing:
    """The files below a folder at one moment, by path, with their size and modification time."""

    files: dict[str, tuple[int, int]]

    @classmethod
    def of(cls, folder: str) -> "Listing":
        """Lists the files below a folder, and skips those that disappear meanwhile."""
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
        """The bytes of the files that are new or have changed since another listing."""
        return sum(size for path, (size, at) in self.files.items() if before.files.get(path) != (size, at))

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return sum(size for size, _ in self.files.values())
