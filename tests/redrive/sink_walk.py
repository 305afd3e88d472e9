"""The walk over redrives with sinks behind the operator, and an oracle that knows which rows a sink should have.

A row belongs to a unit: a record that was read, or a record that was redriven. The oracle keeps plain sets of units. A
Delta sink is compared row by row after each checkpoint. Of a topic, no unit may arrive twice unless a restore took the
sinks back, and none may be missing once everything was delivered.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace

from tests.redrive.redrive_walk import Lenient, Record, RedriveWalk, Seen, Strict
from tidemark import DeltaSink, Fold, KafkaSink, KafkaSource, Pipeline, Process, state
from tidemark.coordinator.checkpoints.loop import list_undelivered, record_delivery
from tidemark.coordinator.plans.sink_inputs import Undelivered
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.model.checkpoint.manifest import Checkpoint

Unit = tuple[str, Record]
"""`read` or `again`, and the record."""


@dataclass(frozen=True)
class Told:
    """What is emitted."""

    account: str
    amount: int


class Echoed(state.Keyed):
    """What the second process remembers."""

    records: int = state.value(0)


class Totals(state.Keyed):
    """What is folded beside."""

    records: int = state.count()


def tell(key: str, records: Iterable[Strict | Lenient], kept: Seen) -> Iterator[Told]:
    """Emits one row per record."""
    for record in records:
        kept.records += 1
        kept.total += record.amount
        yield Told(key, record.amount)


def echo(key: str, records: Iterable[Told], kept: Echoed) -> Iterator[Told]:
    """Emits what it gets."""
    for record in records:
        kept.records += 1
        yield record


def telling(record: type) -> Pipeline:
    """A release of the pipeline."""
    return Pipeline(
        name="sums",
        source=KafkaSource("payments", record),
        operators=[
            Fold("mirror", key_by="account", state=Totals),
            Process("seen", key_by="account", state=Seen, function=tell, emits=Told, sink=DeltaSink("told")),
            Process(
                "echo",
                input="seen",
                key_by="account",
                state=Echoed,
                function=echo,
                emits=Told,
                sink=KafkaSink("echo", topic="out", guarantee="exactly_once_by_id"),
            ),
        ],
        max_dead_letters=1.0,
    )


@dataclass(frozen=True)
class Echo:
    """A row of a second output."""

    account: str
    amount: int


def tell_twice(key: str, records: Iterable[Strict | Lenient], kept: Seen) -> Iterator[Told | Echo]:
    """Emits one row per record to each output."""
    for told in tell(key, records, kept):
        yield Echo(told.account, told.amount)
        yield told


def telling_twice(record: type) -> Pipeline:
    """A release whose operator has a second output with a sink."""
    made = telling(record)
    twice = Process(
        "seen",
        key_by="account",
        state=Seen,
        function=tell_twice,
        emits={"told": Told, "copied": Echo},
        sinks={"told": DeltaSink("told"), "copied": DeltaSink("copied")},
    )
    return replace(made, operators=[twice if o.uid == "seen" else o for o in made.operators])


@dataclass
class PlainTable:
    """A Delta sink as plain collections.

    Attributes:
        rows: the records of its rows.
        units: what it has.
    """

    rows: Counter[Record]
    units: set[Unit]


class SinkWalk(RedriveWalk):
    """A walk whose operator emits to a table, and through another operator to a topic."""

    releases = {"strict": telling(Strict), "lenient": telling(Lenient)}

    def __init__(self, seed: int) -> None:
        super().__init__(seed, "seen")
        self.table = PlainTable(Counter(), set())
        self.tables: dict[int, PlainTable] = {}
        self.emits: dict[int, set[Unit]] = {}
        self.arrived: set[Unit] = set()
        self.ever_arrived: set[Unit] = set()
        self.withheld: set[tuple[int, Unit]] = set()
        self.ever_refused: set[Record] = set()
        self.skipped = 0

    def more_steps(self) -> list[tuple[Callable[[], None], int]]:
        """Some deliveries."""
        return [(self.deliver, 3)]

    def emitted(self, made: Checkpoint, new: set[Record], again: set[Record], refused: set[Record]) -> None:
        """Adds the rows of a checkpoint to the oracle's table, and compares."""
        self.ever_refused |= refused
        applied = {("read", r) for r in new - refused} | {("again", r) for r in again - refused}
        fresh = applied - self.table.units
        self.skipped += len({u for u in applied - fresh if u[0] == "again"})
        self.table.rows.update(record for _, record in fresh)
        self.table.units |= applied | {("read", r) for r in new}
        self.tables[made.id] = deepcopy(self.table)
        self.emits[made.id] = applied
        have = Counter(self._place(row) for row in self.world.tables.rows(made.sinks["seen"].handle))
        assert have == self.table.rows, f"{made.plan.name}: {have - self.table.rows} too many"

    def deliver(self) -> None:
        """Sends what is due, or the first of it."""
        for due in list_undelivered(self.world.coordinator)[: self.chance.choice([1, 2, None])]:
            for unit in self._units(due):
                self.trace.append(f"  {due.checkpoint.plan.name} sends {unit}")
                assert unit not in self.arrived, f"{unit} arrives twice"
                assert (due.checkpoint.id, unit) not in self.withheld, f"{unit} was withheld"
                self.arrived.add(unit)
                self.ever_arrived.add(unit)
            record_delivery(self.world.coordinator, due)

    def drain(self) -> None:
        """Sends everything: then every record that was redriven on the live line has arrived, and nearly all others."""
        while list_undelivered(self.world.coordinator):
            self.deliver()
        for number in (step[0] for step in self.line.steps):
            for unit in self.emits[number] - self.ever_arrived:
                # A record that was a letter on a closed timeline counts as sent there, whatever becomes of it later.
                was_refused = unit[0] == "read" and unit[1] in self.ever_refused
                assert was_refused or (number, unit) in self.withheld, f"{unit} is missing"

    def restore(self) -> None:
        """Goes back to any checkpoint of the live timeline; sinks stay, or go back too."""
        if not self.line.steps:
            return
        number, back = self.chance.choice(self.line.steps)[0], self.chance.random() < 0.3
        asked = RestoreRequest(checkpoint=number, restore_sinks=back)
        self.world.recovery.restore(
            asked.find_restore_point(self.world.coordinator), request=f"restore-{len(self.trace)}"
        )
        self.trace.append(f"  to chk-{number}, back={back}")
        line = deepcopy(self.snapshots[number])
        if back:
            self.table = deepcopy(self.tables[number])
            self.arrived &= set().union(*(self.emits[step[0]] for step in line.steps))
        self._settle(line)

    def backfill(self) -> None:
        """A fork begins with the rows of its checkpoint. A promote withholds what the fork alone has emitted."""
        if len(self.line.steps) < 2:
            return
        before = {step[0] for step in self.line.steps}
        super().backfill()
        for number in (step[0] for step in self.line.steps if step[0] not in before):
            self.withheld |= {(number, unit) for unit in self.emits[number] - self.arrived}

    def begins(self, number: int) -> None:
        """A fork starts at a checkpoint."""
        self.table = deepcopy(self.tables[number])

    def _units(self, due: Undelivered) -> list[Unit]:
        plan, table = due.checkpoint.plan, due.table
        rows = [row for at, row in self.world.tables.placed_rows(table.handle) if at == plan.id and due.is_due(row)]
        starts = {tp.partition: within.start for tp, within in plan.ranges.items()}
        places = [self._place(row) for row in rows]
        return [("read" if place[1] >= starts[place[0]] else "again", place) for place in places]

    @staticmethod
    def _place(row: object) -> Record:
        return (row["_partition"], row["_offset"])  # type: ignore[index]


class OutputsWalk(SinkWalk):
    """The same walk; the sink of a second output must have the same rows."""

    releases = {"strict": telling_twice(Strict), "lenient": telling_twice(Lenient)}

    def emitted(self, made: Checkpoint, new: set[Record], again: set[Record], refused: set[Record]) -> None:
        """Compares the second sink, too."""
        super().emitted(made, new, again, refused)
        have = Counter(self._place(row) for row in self.world.tables.rows(made.sinks["seen.copied"].handle))
        assert have == self.table.rows, f"{made.plan.name}: {have - self.table.rows} too many"
