"""A process and a FlatMap with two outputs each, read by folds, with an oracle in plain Python."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tidemark import DeltaSink, FlatMap, Fold, KafkaSource, Pipeline, Process, state

DAY = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Beat:
    """A record; `sizes` decides which rows are made of it."""

    who: str
    sizes: list[int]
    at: datetime


@dataclass(frozen=True)
class Alarm:
    """A row of a first output: a size above 5."""

    who: str
    size: int


@dataclass(frozen=True)
class Belated:
    """A row of a second output: any other size."""

    who: str
    size: int
    place: int


class Heard(state.Keyed):
    """Sizes that a process has seen of a key."""

    n: int = state.value(0)


class Sizes(state.Keyed):
    """Sizes in order."""

    n: int = state.count()
    sizes: list[int] = state.list("size", limit=100_000)
    latest: int | None = state.latest("size")


def rows_of(beat: Beat) -> Iterator[Alarm | Belated]:
    """The rows of a record, of both classes mixed."""
    for place, size in enumerate(beat.sizes):
        yield Alarm(beat.who, size) if size > 5 else Belated(beat.who, size, place)


def watch(_: str, beats: Iterator[Beat], heard: Heard) -> Iterator[Alarm | Belated]:
    """Yields the rows of each record of a key."""
    for beat in beats:
        heard.n += 1
        yield from rows_of(beat)


def only_alarms(who: str, beats: Iterator[Beat], heard: Heard) -> Iterator[Alarm]:
    """The same process with its first output only."""
    yield from (row for row in watch(who, beats, heard) if isinstance(row, Alarm))


EMITS: dict[str, type] = {"alarms": Alarm, "late": Belated}


def watcher(**options: Any) -> Process:
    """The process with two outputs."""
    sinks = {"alarms": DeltaSink("alarms"), "late": DeltaSink("late")}
    declared = {"function": watch, "emits": EMITS, "sinks": sinks, **options}
    return Process("watch", key_by="who", state=Heard, **declared)


def pipeline() -> Pipeline:
    """Both operators, and a fold behind each output."""
    parted = FlatMap("part", function=rows_of, emits=EMITS, sinks={"late": DeltaSink("parted_late")})
    return Pipeline(
        name="beats",
        source=KafkaSource("beats", Beat, event_time="at"),
        operators=[
            Fold("late_sizes", input="watch.late", key_by="who", state=Sizes),
            Fold("alarm_sizes", input="watch", key_by="who", state=Sizes),
            Fold("parted_late_sizes", input="part.late", key_by="who", state=Sizes),
            Fold("parted_alarm_sizes", input="part", key_by="who", state=Sizes),
            watcher(),
            parted,
        ],
    )


def beats(chance: random.Random, count: int) -> list[Beat]:
    """Random records with few keys."""
    return [
        Beat(
            chance.choice("ab"),
            [chance.randrange(10) for _ in range(chance.randrange(4))],
            DAY + timedelta(hours=chance.randrange(3)),
        )
        for _ in range(count)
    ]


@dataclass
class OutputsOracle:
    """The rows of both outputs: (checkpoint, event time, partition, offset, number, who, size).

    Attributes:
        partitions: number of partitions, which records are assigned to in turn.
    """

    partitions: int
    sent: int = 0
    checkpoints: int = 0
    alarms: list[tuple[int, datetime, int, int, int, str, int]] = field(default_factory=list)
    late: list[tuple[int, datetime, int, int, int, str, int]] = field(default_factory=list)

    def checkpoint(self, records: Sequence[Beat]) -> None:
        """Adds the records of one checkpoint."""
        self.checkpoints += 1
        for beat in records:
            place = (self.checkpoints, beat.at, self.sent % self.partitions, self.sent // self.partitions)
            self.sent += 1
            large, small = [s for s in beat.sizes if s > 5], [s for s in beat.sizes if s <= 5]
            self.alarms += [(*place, n, beat.who, size) for n, size in enumerate(large)]
            self.late += [(*place, n, beat.who, size) for n, size in enumerate(small)]

    def sizes(self, *, late: bool) -> list[dict[str, Any]]:
        """The state of a fold behind an output."""
        rows = self.late if late else self.alarms
        found = []
        for who in sorted({r[5] for r in rows}):
            mine = [r for r in rows if r[5] == who]
            arrived = sorted(mine, key=lambda r: (r[0], *r[2:5]))
            found.append(
                {
                    "who": who,
                    "n": len(mine),
                    "sizes": [r[6] for r in arrived],
                    "latest": max(mine, key=lambda r: r[1:5])[6],
                    "_changed": max(r[0] for r in mine),
                }
            )
        return found
