"""Several outputs of a Process and of a FlatMap in the twin, against plain lists."""

import random
from dataclasses import replace
from typing import Any

from hypothesis import given, note, settings
from hypothesis import strategies as st

from tests.support.several_outputs import Alarm, OutputsOracle, beats, only_alarms, pipeline, watcher
from tests.support.spark import TwinPipeline
from tidemark import DeltaSink


@settings(max_examples=60, deadline=None, print_blob=True)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 5), min_size=1, max_size=3), st.integers(1, 2))
def test_every_output_has_its_rows_in_order_with_numbers_of_its_own(
    seed: int, batches: list[int], partitions: int
) -> None:
    note(f"seed {seed}")
    chance, oracle = random.Random(seed), OutputsOracle(partitions)
    world = TwinPipeline(pipeline(), partitions=partitions)
    for count in batches:
        records = beats(chance, count)
        oracle.checkpoint(records)
        made = world.checkpoint(records)
    for uid in ("alarm_sizes", "parted_alarm_sizes"):
        assert world.state(uid, made) == oracle.sizes(late=False)
    for uid in ("late_sizes", "parted_late_sizes"):
        assert world.state(uid, made) == oracle.sizes(late=True)
    for uid, rows in (("watch", oracle.alarms), ("watch.late", oracle.late), ("part.late", oracle.late)):
        found = world.emitted(uid, made)
        assert {r["_uid"] for r in found} <= {uid}
        assert sorted(map(row_id, found)) == sorted(r[2:5] for r in rows)
        assert sorted((r["who"], r["size"]) for r in found) == sorted((r[5], r[6]) for r in rows)


def row_id(row: dict[str, Any]) -> tuple[int, int, int]:  # one operator emits, so a path is one number
    (number,) = row["_path"]
    return row["_partition"], row["_offset"], number


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_ids_do_not_change_when_an_output_is_added(seed: int) -> None:
    note(f"seed {seed}")
    chance = random.Random(seed)
    first, second = beats(chance, 4), beats(chance, 4)
    single = watcher(function=only_alarms, emits=Alarm, sink=DeltaSink("alarms"), sinks={})
    one, two = (replace(pipeline(), operators=[operator]) for operator in (single, watcher()))
    grown, always, never = TwinPipeline(one), TwinPipeline(two), TwinPipeline(one)
    for world in (grown, always, never):
        world.checkpoint(first)
    grown.pipeline = two
    made = [world.checkpoint(second) for world in (grown, always, never)]
    emitted = [world.emitted("watch", found) for world, found in zip((grown, always, never), made, strict=True)]
    assert emitted[0] == emitted[1] == emitted[2]
    assert [r for r in always.emitted("watch.late", made[1]) if r["_offset"] >= 2] == grown.emitted(
        "watch.late", made[0]
    )
