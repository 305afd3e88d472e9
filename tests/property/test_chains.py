"""Folds behind one, two and three processes against plain lists: in which order outputs of one record count."""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from tests.support.chained_processes import DAY, ChainOracle, Nothing, Parcel, Part, parcels, pipeline
from tests.support.scale import cases
from tests.support.spark import TwinPipeline
from tidemark import Fold, Pipeline, Process, state

BATCHES = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5)), min_size=1, max_size=3)


@settings(max_examples=cases(50), deadline=None, print_blob=True)
@given(st.integers(0, 2**32), BATCHES, st.integers(1, 3))
def test_the_twin_folds_a_chain_in_order_of_position_and_path(
    seed: int, batches: list[tuple[int, int]], partitions: int
) -> None:
    note(f"seed {seed}")
    chance = random.Random(seed)
    world, oracle = TwinPipeline(pipeline(), partitions=partitions), ChainOracle(partitions)
    for count, width in batches:
        records = parcels(chance, count, width)
        oracle.checkpoint(records)
        made = world.checkpoint(records)
    for n in (1, 2, 3):
        assert [r["label"] for r in world.emitted(f"split_{n}", made)] == sorted_by_position(oracle, n)
        for key in ("who", "colour"):
            assert world.state(f"by_{key}_{n}", made) == oracle.rows(n, key)


def sorted_by_position(oracle: ChainOracle, process: int) -> list[str | None]:
    """Labels of everything that a process has emitted, by position alone."""
    return [p.label for _, p in sorted(oracle.emitted[process], key=lambda e: e[0][2:])]


class Ends(state.Keyed):
    """Of the parts that a chain makes."""

    first: int | None = state.first("salt")
    latest: int | None = state.latest("salt")


def repeated(_: str, parcels: Any, kept: Nothing) -> Any:
    """As many parts as the record is wide; `salt` counts them."""
    for p in parcels:
        for n in range(p.width):
            yield Part(p.who, n, 1, [n], "red", None)


def passed(_: str, parts: Any, kept: Nothing) -> Any:
    """Hands on."""
    yield from parts


def chain(length: int, **options: Any) -> Pipeline:
    """So many processes, the first of which makes many of one, and a fold behind the last."""
    names = [f"p{n}" for n in range(length)]
    first = Process("p0", key_by="who", state=Nothing, emits=Part, function=repeated, **options)
    ways = zip(names, names[1:], strict=False)
    others = [
        Process(uid, key_by="who", state=Nothing, emits=Part, function=passed, input=before, **options)
        for before, uid in ways
    ]
    ends = Fold("ends", key_by="who", state=Ends, input=names[-1])
    return replace(pipeline(), operators=[first, *others, ends], max_dead_letters=1.0)


@pytest.mark.parametrize(("length", "kept"), [(1, (0, 2)), (2, (0, 0)), (3, (0, 0))])
def test_what_is_stored_of_a_place_is_what_release_0_1_stored(length: int, kept: tuple[int, int]) -> None:
    world = TwinPipeline(chain(length), partitions=1)
    world.checkpoint([Parcel("ann", 0, 1, DAY)])
    made = world.checkpoint([Parcel("ann", 0, 3, DAY)])
    (row,) = [r for r in world.tables.rows(made.handles["ends"]) if r["_changed"] == 2]
    place = {"at": DAY, "topic": "parcels", "partition": 0}
    assert row["first"] == {**place, "offset": 2**20 + kept[0], "value": 0}
    assert row["latest"] == {**place, "offset": 2**20 + kept[1], "value": 2}


def test_a_chain_of_any_length_keeps_the_order_in_which_records_were_emitted() -> None:
    world = TwinPipeline(chain(6), partitions=1)
    made = world.checkpoint([Parcel("ann", 0, 9, DAY)])
    assert [(r["first"], r["latest"]) for r in world.state("ends", made)] == [(0, 8)]
