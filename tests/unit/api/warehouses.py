"""A warehouse of three months of flights on disk, made without Spark and Kafka, and copies of it to be written to."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext, commands_over
from tidemark.api import Warehouse
from tidemark.context import Context
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.settings import Settings

DECLARATION = Path(__file__).parent / "pipelines/flights.py"
Flown = tuple[str, str, str, int, float]
MONTHS: dict[str, tuple[Flown, ...]] = {
    "2013-02-01": (("N14228", "EWR", "IAH", 1400, 0.0), ("N24211", "LGA", "IAH", 1416, 12.0)),
    "2013-03-01": (
        ("N14228", "EWR", "ORD", 719, 45.0),
        ("N619AA", "JFK", "MIA", 1089, 0.0),
        ("N619AA", "MIA", "JFK", 1089, 5.0),
    ),
    "2013-04-01": (("N14228", "EWR", "IAH", 1400, 0.0), ("N24211", "IAH", "LGA", 1416, 31.0)),
}
"""Flights by the day after their month: tail number, origin, destination, miles, minutes late."""


class ClockedContext(DiskContext):
    """A context whose clock is the line's."""

    def __init__(self, line: DiskPipeline, settings: Settings) -> None:
        super().__init__(line, settings)
        self.clock = line.clock


@dataclass(frozen=True)
class Flights:
    """The warehouse, the line that made it, and the command line over it."""

    command: Command
    line: DiskPipeline

    @classmethod
    def made(cls, folder: Path) -> "Flights":
        """Three checkpoints, one a month; the savepoint `winter` pins the second."""
        command = Command(folder, "127.0.0.1:1", "sc://127.0.0.1:1")
        command.declare(DECLARATION, file="flights.py")
        line = DiskPipeline(command.warehouse, command.context.pipeline("flights"), "flights", partitions=1)
        for day, flown in MONTHS.items():
            line.clock.ms = _ms(day)
            line.send([(0, _record(n, day, f), line.clock.ms - 86_400_000 + n) for n, f in enumerate(flown)])
            made = line.checkpoint()
            if made.id == 2:
                request = SavepointRequest(name="winter", owner="ops", origin="test", note="January and February")
                Savepoints(line.coordinator).create(request)
        return cls(command, line)

    def copy(self, folder: Path) -> "Flights":
        """The same warehouse elsewhere, to be written to."""
        command = Command(folder, self.command.broker, self.command.spark)
        command.declare(DECLARATION, file="flights.py")
        shutil.copytree(self.command.warehouse, command.warehouse)
        return Flights(
            command,
            replace(self.line, root=command.warehouse, clock=replace(self.line.clock), log=deepcopy(self.line.log)),
        )

    def fly(self, tail_number: str, origin: str, destination: str, miles: int, late: float = 0.0) -> None:
        """Sends one more flight, a day later."""
        self.line.clock.advance(86_400_000)
        flown = (tail_number, origin, destination, miles, late)
        self.line.send([(0, _record(0, "2013-04-02", flown), self.line.clock.ms)])

    @property
    def context(self) -> Context:
        """The parts of Tidemark over it; Kafka and Spark are the twins."""
        return ClockedContext(self.line, self.command.settings)

    @property
    def warehouse(self) -> Warehouse:
        """The Python API over it."""
        return Warehouse(self.context)

    @contextmanager
    def commands(self) -> Iterator[Command]:
        """In the block, commands of this process work on it."""
        with commands_over(self.line), mock.patch("tests.support.disk_context.DiskContext", ClockedContext):
            yield self.command


def _ms(day: str) -> int:
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1000)


def _record(n: int, day: str, flown: Flown) -> bytes:
    tail_number, origin, destination, distance, delay = flown
    at = datetime.fromtimestamp(_ms(day) / 1000 - 86_400 + n * 60, tz=UTC)
    flight = {
        "tail_number": tail_number,
        "origin": origin,
        "destination": destination,
        "distance": distance,
        "scheduled_at": at.isoformat(),
        "departure_delay": delay,
    }
    return json.dumps(flight).encode()
