"""What a sink brings so that the suite of sinks can try it, and a line of checkpoints that dies anywhere."""

import io
import random
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from tests.process.test_deliveries import DAY, Alert, Last, Tick, alert
from tests.process.test_sending import SendingPipeline
from tests.support.crashes import Killed
from tidemark import KafkaSource, Pipeline, Process
from tidemark.coordinator.checkpoints.loop import list_undelivered, record_delivery
from tidemark.coordinator.plans.sink_inputs import Undelivered
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.messages import EmittedRow, commit_id, emitted_rows
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.model.kinds.base.python import Row
from tidemark.sinks import Outbox, Sink
from tidemark.sinks.known_sinks import SINKS, stored_sink
from tidemark.sinks.sink import Services

Arrived = list[tuple[str, dict[str, Any]]]
"""Ids and fields in the order in which they came; times and the like in their JSON form."""
STEPS = [
    "process.alerts", "fold.alerts", "runs.alerts", "emitted.alerts", "outputs.alerts", "fsync", "sent.alerts", "seal",
    "publish",
]  # fmt: skip
"""Where an attempt may die; a sink does not take all of them."""
MODULES = sorted({cls.__module__.rpartition(".")[2] for cls in SINKS.values()})


@dataclass
class SinkPipeline(SendingPipeline):
    """A line of checkpoints with one sink, and whatever that writes to.

    Attributes:
        screen: what was written to standard error.
        made: its checkpoints, in order.
    """

    screen: io.StringIO = field(default_factory=io.StringIO)
    made: list[Checkpoint] = field(default_factory=list)

    def complete(self, kills: list[tuple[str, str]]) -> None:
        """Makes one checkpoint; its attempts die at these points, one after the other, as far as they get there."""
        for step, moment in kills:
            self.meanwhile[f"{step}:{moment}"] = kill
            try:
                self._complete()
            except Killed:
                continue
            break
        self.meanwhile.clear()
        self._complete()

    def _complete(self) -> None:
        with redirect_stderr(self.screen):
            done = self.checkpoint()
        if not self.made or self.made[-1].id != done.id:
            self.made.append(done)

    def deliver(self, dies_at: int | None = None) -> None:
        """Writes what waits, as the product does; dies before row `dies_at`, or before the delivery is recorded."""
        with redirect_stderr(self.screen):
            for due in list_undelivered(self.coordinator):
                sink = stored_sink(due.table)
                assert sink is not None
                outbox = Outbox(sink=sink, rows=self._rows(due, dies_at), commit_id=commit_id(due.checkpoint.plan))
                records = outbox.deliver(Services(kafka=self.sender))
                if dies_at is not None:
                    raise Killed
                record_delivery(self.coordinator, replace(due, records=records))

    def _rows(self, due: Undelivered, dies_at: int | None) -> Callable[[], Iterator[EmittedRow]]:
        plan = due.checkpoint.plan
        held = [row for row in self.held(due.table, plan.id) if due.is_due(row)]

        def rows() -> Iterator[EmittedRow]:
            for number, row in enumerate(emitted_rows(plan, due.table, held)):
                if number == dies_at:
                    raise Killed
                yield row

        return rows

    def held(self, table: SinkTable, checkpoint: int) -> list[Row]:
        """The rows that a checkpoint left in the sink's table, in order."""
        found = [
            row
            for segment in table.handle
            for file in self.tables.files_of(segment)
            if file.checkpoint == checkpoint
            for row in self.tables.files[f"{segment.path}/{file.path}"]
        ]
        return sorted(found, key=lambda row: (row["_offset"], row["_path"]))

    def expected(self) -> Arrived:
        """What the sink is to have: two rows for each record, with the id of the checkpoint that read it."""
        seen: dict[str, int] = {}
        found: Arrived = []
        for done in self.made:
            for tp, r in done.plan.ranges.items():
                for offset in range(r.start, r.end):
                    who = self.names[offset]
                    seen[who] = seen.get(who, 0) + 1
                    place = f"ticks/t1/chk-{done.id}/alerts/{tp}-{offset}"
                    found.append((f"{place}-0", {"who": who, "at": "2020-01-02T00:00:00+00:00", "n": seen[who]}))
                    found.append((f"{place}-1", {"who": who, "at": DAY.isoformat(), "n": None}))
        return found

    names: list[str] = field(default_factory=list)

    def send(self, *names: str) -> None:
        """Records of the source."""
        self.names.extend(names)
        super().send(*names)


def kill() -> None:
    """Ends the process."""
    raise Killed


@dataclass(frozen=True, kw_only=True)
class SinkCase:
    """One way to declare a sink.

    Attributes:
        sink: the declaration.
        arrived: all that is outside, duplicates included.
    """

    sink: Sink
    arrived: Callable[[SinkPipeline], Arrived]

    @property
    def name(self) -> str:
        """For the test's id."""
        return self.sink.kind

    def line(self) -> SinkPipeline:
        """A fresh line."""
        process = Process("alerts", key_by="who", state=Last, function=alert, emits=Alert, sink=self.sink)
        return SinkPipeline(Pipeline(name="ticks", source=KafkaSource("ticks", Tick), operators=[process]))


def all_cases() -> list[SinkCase]:
    """`CASES` of every `test_<module>.py`."""
    return [case for name in MODULES for case in import_module(f"tests.unit.sinks.test_{name}").CASES]


def walk(line: SinkPipeline, chance: random.Random) -> None:
    """Checkpoints with kills, and deliveries with kills; at last everything is written."""
    for _ in range(chance.randrange(1, 5)):
        line.send(*(chance.choice("abc") for _ in range(chance.randrange(1, 4))))
        kills = [(chance.choice(STEPS), chance.choice(["before", "after"])) for _ in range(chance.randrange(3))]
        line.complete(kills)
        for _ in range(chance.randrange(3)):
            try:
                line.deliver(chance.choice([None, 0, 1, 2, 5]))
            except Killed:
                continue
    line.deliver()
