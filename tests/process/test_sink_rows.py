"""Rows of a sink: an id made from their input, each there once, and seen as of a manifest only (J1, J16)."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.spark import TwinPipeline
from tidemark import DeltaSink, KafkaSource, Pipeline, Process, state
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.job import CheckpointJob
from tidemark.coordinator.records.states import OpenPlan
from tidemark.ports import PlanRequest
from tidemark.testing import BARRIER, Crash, Replayed, replay


@dataclass(frozen=True)
class Order:
    """One record: so many pieces."""

    who: str
    pieces: int


@dataclass(frozen=True)
class Piece:
    """One emitted row."""

    who: str
    number: int


class Bought(state.Keyed):
    """How many so far."""

    pieces: int = state.value(0)


def buy(who: str, orders: Iterator[Order], bought: Bought) -> Iterator[Piece]:
    """A row per piece."""
    for order in orders:
        for _ in range(order.pieces):
            bought.pieces += 1
            yield Piece(who, bought.pieces)


PIPELINE = Pipeline(
    name="shop",
    source=KafkaSource("orders", Order),
    operators=[Process("buyers", key_by="who", state=Bought, function=buy, emits=Piece, sink=DeltaSink("pieces"))],
)
FIRST, SECOND = [Order("a", 2), Order("b", 1), Order("a", 0)], [Order("a", 1), Order("b", 2)]
ROWS = [("a", 1, 0, [0]), ("a", 2, 0, [1]), ("b", 1, 1, [0]), ("a", 3, 3, [0]), ("b", 2, 4, [0]), ("b", 3, 4, [1])]
"""Who, number, offset of the record, number of the row among those emitted for it."""
POINTS = [Crash(step, moment) for step in ("outputs.buyers", "seal", "publish") for moment in ("before", "after")]


def rows(done: Replayed, checkpoint: int) -> list[tuple[object, ...]]:
    """What a reader sees as of a checkpoint."""
    found = done.emitted("buyers", done.checkpoints[checkpoint - 1])
    assert {(r["_uid"], r["_topic"], r["_partition"]) for r in found} <= {("buyers", "orders", 0)}
    return [(r["who"], r["number"], r["_offset"], r["_path"]) for r in found]


def test_a_row_is_named_after_operator_record_and_number_and_each_checkpoint_sees_its_own() -> None:
    done = replay(PIPELINE, [FIRST, BARRIER, [], BARRIER, SECOND, BARRIER])
    assert [rows(done, n) for n in (1, 2, 3)] == [ROWS[:3], ROWS[:3], ROWS]


@pytest.mark.parametrize("crash", POINTS, ids=lambda c: f"{c.step}:{c.moment}")
def test_what_is_emitted_again_has_the_same_ids_and_takes_the_place_of_the_first(crash: Crash) -> None:
    done = replay(PIPELINE, [FIRST, BARRIER, SECOND, crash, BARRIER])
    assert rows(done, 2) == ROWS
    assert rows(done, 1) == ROWS[:3], "and nothing of the dead attempt reached the first checkpoint"
    table = done.checkpoints[-1].sinks["buyers"].path
    live = [f.file.rows for f in done._tables.tables[table][-1].live.values()]
    assert sum(live) == len(ROWS), "rows of the dead attempt are gone from the table's newest version, too"


class Killed(Exception):
    """The process is gone."""


def _dies(step: str, moment: str) -> None:
    if (step, moment) == ("outputs.buyers", "after"):
        raise Killed


def test_rows_of_a_dead_attempt_are_in_the_newest_version_and_no_reader_sees_them() -> None:
    world = TwinPipeline(PIPELINE, partitions=1)
    table = world.checkpoint(FIRST).sinks["buyers"]
    for order in SECOND:
        world._feed.send(order, 0)
    opened = world.coordinator.trigger(PIPELINE, PlanRequest(origin="test"))
    assert isinstance(opened, OpenPlan)
    owned = world.coordinator.begin(opened.plan)
    assert isinstance(owned, OwnedAttempt)
    job = CheckpointJob(
        compute=world.compute,
        tables=world.tables,
        clock=world.clock,
        write_ids=world.ids,
        listener=_dies,
        max_dead_letters=0.0,
    )
    with pytest.raises(Killed):
        job.execute(owned)
    newest = world.tables.tables[table.path][-1]
    assert sum(f.file.rows for f in newest.live.values()) == len(ROWS), "whoever reads the latest version sees them"
    (completed,) = world.coordinator.checkpoints()
    assert [(r["who"], r["number"]) for r in world.emitted("buyers", completed)] == [r[:2] for r in ROWS[:3]]
