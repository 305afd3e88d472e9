"""Operator state against plain lists: any division over tasks, failing calls, renewed parallelism (A9, A10)."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.operator_lists import PIPELINE, OperatorListOracle, orders, told
from tests.support.spark import TwinPipeline
from tidemark.model.checkpoint.segments import OperatorList, OperatorState, Redistribution
from tidemark.model.core.types import FieldType


@settings(max_examples=150, deadline=None, print_blob=True)
@given(st.integers(0, 2**32), st.lists(st.tuples(st.integers(0, 25), st.integers(1, 9)), min_size=1, max_size=4))
def test_lists_and_what_functions_see_are_those_of_plain_lists(seed: int, batches: list[tuple[int, int]]) -> None:
    chance, world, oracle = random.Random(seed), TwinPipeline(PIPELINE, partitions=1), OperatorListOracle()
    for n, tasks in batches:
        world.parallelism = tasks
        records = orders(chance, n)
        made = world.checkpoint(records)
        oracle.checkpoint(records, tasks)
        assert told(made) == {"samples": oracle.samples, "rules": oracle.rules}
        rows = {r["key"]: (r["n"] or 0, r["samples"] or 0, r["rules"] or 0) for r in world.state("o", made)}
        assert rows == oracle.keys
        assert len(world.letters("o", made)) >= sum(r.verb == "fail" for r in records)


@given(st.lists(st.integers(), max_size=40), st.integers(1, 130))
def test_slices_are_even_contiguous_and_lose_nothing(elements: list[int], tasks: int) -> None:
    lists = [
        OperatorList(name=mode.value, mode=mode, element=FieldType("int"), elements=tuple(elements))
        for mode in Redistribution
    ]
    given_to = [OperatorState(lists=tuple(lists)).part_of_task(n, tasks) for n in range(tasks)]
    slices = [g["split"] for g in given_to]
    assert [e for s in slices for e in s] == elements
    assert [len(s) for s in slices] == sorted((len(s) for s in slices), reverse=True)
    assert len(slices[0]) - len(slices[-1]) <= 1
    assert all(g["union"] == tuple(elements) for g in given_to)
