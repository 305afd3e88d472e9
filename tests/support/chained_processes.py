"""Folds behind one, two and three processes that fan out records, and an oracle that computes the same on plain lists.

Each output has a path: one number per process that it passed. Its content is a hash of the path, so an engine that
orders by value, or by part of the path, gives a wrong result. The oracle shares no code with the product: it orders by
position, then by path.
"""

import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tidemark import DeltaSink, Fold, KafkaSource, Pipeline, Process, state

DAY = datetime(2020, 1, 1, tzinfo=UTC)
COLOURS = ("red", "green", "blue")
Path = tuple[int, ...]


@dataclass(frozen=True)
class Parcel:
    """A record; each process splits one into at most `width` parts."""

    who: str
    salt: int
    width: int
    at: datetime


@dataclass(frozen=True)
class Part:
    """The output of every process; the next process splits it again."""

    who: str
    salt: int
    width: int
    path: list[int]
    colour: str
    label: str | None


class Nothing(state.Keyed):
    """A state that stays empty."""

    n: int = state.value(0)


class Seen(state.Keyed):
    """Every kind of state that depends on order, and two that do not."""

    n: int = state.count()
    first: str | None = state.first("label")
    latest: str | None = state.latest("label")
    first_known: str | None = state.first("label", ignore_nulls=True)
    latest_known: str | None = state.latest("label", ignore_nulls=True)
    labels: list[str] = state.list("label", limit=100_000)
    different: list[str] = state.distinct("label", limit=100_000)


def part(who: str, salt: int, width: int, path: Path) -> Part:
    """The part at a path."""
    code = zlib.crc32(f"{salt}/{path}".encode())
    label = None if code % 7 == 0 else f"{code:08x}"
    return Part(who, salt, width, list(path), COLOURS[code // 7 % 3], label)


def count_at(salt: int, width: int, path: Path) -> int:
    """The number of parts that the part at a path is split into."""
    return zlib.crc32(f"{path}/{salt}".encode()) % (width + 1)


def split(_: str, parcels: Iterator[Parcel], kept: Nothing) -> Iterator[Part]:
    """Splits each record."""
    for p in parcels:
        for n in range(count_at(p.salt, p.width, ())):
            yield part(p.who, p.salt, p.width, (n,))


def split_again(_: str, parts: Iterator[Part], kept: Nothing) -> Iterator[Part]:
    """Splits each part."""
    for p in parts:
        path = tuple(p.path)
        for n in range(count_at(p.salt, p.width, path)):
            yield part(p.who, p.salt, p.width, (*path, n))


def pipeline() -> Pipeline:
    """Three processes in sequence, keyed alternately by `who` and `colour`, each with a sink and two folds after it."""
    ways: list[dict[str, Any]] = [
        {"key_by": "who", "function": split},
        {"key_by": "colour", "function": split_again, "input": "split_1"},
        {"key_by": "who", "function": split_again, "input": "split_2"},
    ]
    operators: list[Any] = []
    for n, way in enumerate(ways, 1):
        uid = f"split_{n}"
        operators.append(Process(uid, state=Nothing, emits=Part, sink=DeltaSink(f"parts_{n}"), **way))
        operators.append(Fold(f"by_who_{n}", key_by="who", state=Seen, input=uid))
        operators.append(Fold(f"by_colour_{n}", key_by="colour", state=Seen, input=uid))
    source = KafkaSource("parcels", Parcel, event_time="at")
    return Pipeline(name="chain", source=source, operators=operators)


def parcels(chance: random.Random, count: int, width: int) -> list[Parcel]:
    """Random records with few keys and few event times, so that ties are frequent."""
    moments = [DAY + timedelta(hours=n) for n in range(3)]
    return [
        Parcel(chance.choice(["ann", "bob"]), chance.randrange(2**32), width, chance.choice(moments))
        for _ in range(count)
    ]


@dataclass
class ChainOracle:
    """The expected state of the folds, computed in one pass over all emitted parts.

    Attributes:
        partitions: number of partitions, which records are assigned to in turn.
        sent: number of records so far.
        emitted: per process (checkpoint, event time, partition, offset, path) and the part, unordered.
    """

    partitions: int
    sent: int = 0
    checkpoints: int = 0
    emitted: dict[int, list[tuple[tuple[Any, ...], Part]]] = field(default_factory=lambda: {1: [], 2: [], 3: []})

    def checkpoint(self, records: Sequence[Parcel]) -> None:
        """Adds the records of one checkpoint."""
        self.checkpoints += 1
        for record in records:
            place = (self.checkpoints, record.at, self.sent % self.partitions, self.sent // self.partitions)
            self.sent += 1
            self._take_apart(record, place, ())

    def _take_apart(self, record: Parcel, place: tuple[Any, ...], path: Path) -> None:
        if len(path) == 3:
            return
        for n in range(count_at(record.salt, record.width, path)):
            made = (*path, n)
            self.emitted[len(made)].append(((*place, made), part(record.who, record.salt, record.width, made)))
            self._take_apart(record, place, made)

    def rows(self, process: int, key: str) -> list[dict[str, Any]]:
        """The state of the fold by `key` behind a process, ordered by key."""
        found = self.emitted[process]
        keys = sorted({getattr(p, key) for _, p in found})
        return [{key: k, **_folded([e for e in found if getattr(e[1], key) == k])} for k in keys]

    def labels(self, process: int) -> list[str | None]:
        """The labels that a process has emitted, ordered by checkpoint and position."""
        return [p.label for _, p in sorted(self.emitted[process], key=lambda e: _arrival(e[0]))]


def _folded(found: list[tuple[tuple[Any, ...], Part]]) -> dict[str, Any]:
    ordered = [p.label for place, p in sorted(found, key=lambda e: e[0][1:])]
    known = [label for label in ordered if label is not None]
    arrived = [p.label for _, p in sorted(found, key=lambda e: _arrival(e[0]))]
    return {
        "n": len(ordered),
        "first": ordered[0],
        "latest": ordered[-1],
        "first_known": known[0] if known else None,
        "latest_known": known[-1] if known else None,
        "labels": [label for label in arrived if label is not None],
        "different": sorted(set(known)),
        "_changed": max(checkpoint for (checkpoint, *_), _ in found),
    }


def _arrival(place: tuple[Any, ...]) -> tuple[Any, ...]:
    checkpoint, _, *position = place
    return (checkpoint, *position)
