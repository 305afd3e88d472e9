"""Whether a warehouse that a power cut has left is as it was promised, and whether a plain re-run goes on from there.

Each expectation that does not hold is a `Violation`. Any other exception is a fault of the test, and no find.
"""

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from deltalake.exceptions import DeltaError

from tests.power_loss.scenario import ERASED, KEPT, PowerLossPipeline
from tests.support.disk import parse_parquet
from tests.support.retention import TOPIC
from tidemark.errors import TidemarkError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.state.row_compaction import RowPolicy

PARTITION = TopicPartition(TOPIC, 0)


class Violation(AssertionError):
    """A promise that was not kept."""


def _read(line: PowerLossPipeline, handle: StateHandle) -> Sequence[Mapping[str, Any]]:
    return [
        row
        for segment in handle
        for f in line.tables.files_of(segment)
        for row in parse_parquet((line.root / segment.path / f.path).read_bytes()).to_pylist()
    ]


Readers: TypeAlias = Mapping[str, Callable[[PowerLossPipeline, StateHandle], Sequence[Mapping[str, Any]]]]
BY_PRODUCT: Readers = {"the product": _read}
BY_ANYBODY: Readers = {"any reader of Delta": PowerLossPipeline.held}
"""deltalake by itself; nothing of the product's reading is used."""


@dataclass
class Reported:
    """What had been reported before the power was cut.

    Attributes:
        paid: accounts, by offset.
        completed: ids of checkpoints.
        erasing, erased: whether the erasure had begun, had been reported.
        now_ms: the clock.
    """

    paid: list[str] = field(default_factory=list)
    completed: list[int] = field(default_factory=list)
    erasing: bool = False
    erased: bool = False
    sweeping: bool = False
    now_ms: int = 0

    @classmethod
    def by(cls, told: Iterable[str]) -> "Reported":
        """The lines that the scenario wrote."""
        found = cls()
        for what, *facts in map(json.loads, told):
            if what == "paid":
                found.now_ms = facts[0]
                found.paid += facts[1:]
            elif what == "completed":
                found.completed.append(facts[0])
            elif what == "erase":
                found.erasing = True
            elif what == "erased":
                found.erased = True
            elif what in ("sweep", "swept"):
                found.sweeping = what == "sweep"
        return found

    @property
    def promised(self) -> list[int]:
        """Ids of the checkpoints that anybody may go back to: no sweep has released them, or begun to."""
        return self.completed[-2:]


def judge(root: Path, reported: Reported) -> None:
    """Looks at a warehouse, then goes on with it.

    Raises:
        Violation: a promise was not kept.
    """
    line = PowerLossPipeline(root, "c3")
    line.pay(*reported.paid)
    line.clock.ms = reported.now_ms + 3_600_000
    found = _visible(line, "after the power cut")
    lost = set(reported.promised) - set(found)
    if lost:
        raise Violation(f"reported as completed, and lost: {sorted(lost)}")
    for number in sorted(found):
        # Any reader of Delta opens what was promised; the product reads whatever its timeline shows.
        readers = {**BY_PRODUCT, **(BY_ANYBODY if number in reported.promised else {})}
        _compare(line, found[number], reported, readers)
    _go_on(line, reported)


def _go_on(line: PowerLossPipeline, reported: Reported) -> None:
    """What is run anyway, or would be repeated; nothing was done by hand before."""
    paid = [*reported.paid, "ann"]
    line.pay("ann")
    steps: list[tuple[str, Any]] = [
        ("checkpoint", line.completed),
        ("sweep", lambda: line.sweep(KEPT)),
        ("compaction", line.compacted),
        ("compaction of rows", lambda: line.compact_rows(RowPolicy.everything())),
        ("checkpoint", line.completed),
    ]
    if reported.erasing:
        steps.insert(1, ("erasure", lambda: line.erase("accounts", ERASED)))
    for name, step in steps:
        try:
            step()
        except (TidemarkError, DeltaError, OSError) as error:
            raise Violation(f"a plain {name} does not go on: {type(error).__name__}: {error}") from error
    now = Reported(paid=paid, erasing=reported.erasing, erased=reported.erasing)
    found = _visible(line, "after the re-run")
    for done in found.values():
        _compare(line, done, now, BY_ANYBODY)
    newest = found[max(found)]
    if newest.plan.ranges[PARTITION].end != len(paid):
        raise Violation("the re-run did not read to the end")


def _visible(line: PowerLossPipeline, when: str) -> dict[int, Checkpoint]:
    """Checkpoints of the timeline that were not released, by id; their ranges join."""
    try:
        entries = list(line.coordinator.checkpoints())
        released = line.coordinator.index.tombstones(line.coordinator.objects)
    except TidemarkError as error:
        raise Violation(f"the timeline cannot be read {when}: {error}") from error
    ranges = [c.plan.ranges[PARTITION] for c in entries]
    if any(not above.follows(below) for above, below in itertools.pairwise(ranges)):
        raise Violation(f"ranges do not join {when}")
    return {c.id: c for c in entries if f"chk-{c.id}" not in released}


def _compare(line: PowerLossPipeline, found: Checkpoint, reported: Reported, readers: Readers) -> None:
    paid = reported.paid[: found.plan.ranges[PARTITION].end]
    wanted = Counter(filter(None, paid))
    allowed = [wanted]
    if reported.erasing:
        without = Counter({account: n for account, n in wanted.items() if account != ERASED})
        allowed = [without] if reported.erased else [wanted, without]
    handle, ack = found.handles["accounts"], found.ack("accounts")
    assert ack is not None
    for name, read in readers.items():
        try:
            rows, letters = read(line, handle), read(line, ack.dead_letters)
        except (TidemarkError, DeltaError, OSError, pa.ArrowException) as error:
            raise Violation(f"{found.plan.name} is not readable by {name}: {error}") from error
        held = Counter[str]()
        for row in rows:
            held[row["account"]] += row["payments"]
        if held not in allowed:
            raise Violation(f"{found.plan.name} by {name}: {dict(held)}, wanted {[dict(a) for a in allowed]}")
        offsets = sorted(row["offset"] for row in letters)
        if offsets != [n for n, account in enumerate(paid) if not account]:
            raise Violation(f"{found.plan.name} by {name}: dead letters at {offsets}")
