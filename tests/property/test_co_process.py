"""Co-processes in the twin: one timeline per key over all inputs, equal to a brute force, for any crash."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.bug_finds import is_found
from tests.support.co_process_cases import (
    START,
    CoModel,
    agree_on_steps,
    closed_in,
    co_pipeline,
    random_co_rules,
    random_gots,
)
from tests.support.scale import cases
from tidemark import CoProcess
from tidemark.processing import processor, timer_merge
from tidemark.testing import BARRIER, CRASH, replay
from tidemark.testing.twin import compute, process

seeds = st.integers(0, 2**32 - 1)


def check(seed: int) -> None:
    """One random case."""
    chance = random.Random(seed)
    rules = random_co_rules(chance)
    batches = random_gots(chance)
    script = list[Any]()
    for batch in batches:
        script += [[got.record for got in batch], *([CRASH] if chance.random() < 0.3 else []), BARRIER]
    done, model = replay(co_pipeline(rules), script, partitions=2), CoModel(rules)
    refused = 0
    for batch, checkpoint in zip(batches, done.checkpoints, strict=True):
        model.checkpoint(batch)
        emitted = done.emitted("steps", checkpoint)
        agree_on_steps(model, [*done.rows("steps", checkpoint).values()], emitted)
        counts = done.counts("steps", checkpoint)
        refused += model.refused
        assert (counts.dead_lettered, len(done.dead_letters("steps", checkpoint))) == (model.refused, refused)
        assert done.counts("counts", checkpoint).late == model.late, "the frontier is that of the slower input"
        assert closed_in(done.emitted("counts", checkpoint)) == model.closed
        frontier = checkpoint.now.frontiers.get("steps")
        start = int(START.timestamp() * 1000)
        assert frontier == (None if model.frontier is None else start + model.frontier * 60_000)


@settings(max_examples=cases(50), deadline=None)
@given(seeds)
def test_a_co_process_passes_the_records_of_all_inputs_by_event_time(seed: int) -> None:
    check(seed)


def _without_number(real: Any) -> Any:
    return lambda operator, plan, inputs, outputs: real(operator, plan, inputs, ())


def _first_key_for_all(real: Any) -> Any:
    def united(operator: Any, plan: Any, inputs: Any, outputs: Any) -> Any:
        first = dict.fromkeys(("id", "region"))
        found = real(operator, plan, inputs, outputs)
        return [r if r.fields["input0"] else replace(r, fields={**r.fields, "key": first}) for r in found]

    return united


def _all_are_orders(real: Any) -> Any:
    def named(inputs: Any, united: Any) -> Iterator[Any]:
        return (("orders" if n == "split" else n, r) for n, r in real(inputs, united))

    return named


def _ordered(*by: str) -> Callable[[Any], Any]:
    return lambda real: lambda operator: attrgetter(*by) if isinstance(operator, CoProcess) else real(operator)


def _only_sources(real: Any) -> Any:
    return lambda operator, plan, inputs, outputs: [
        r for r in real(operator, plan, inputs, outputs) if not any(r.fields[f"input{n}"] for n in (2, 3))
    ]


def _fires_last(real: Any) -> Any:
    return lambda self, event_time_us=None: None if event_time_us is not None else real(self)


PLANTED: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "two outputs share their paths": (compute, "united_records", _without_number),
    "only the first input has a key": (compute, "united_records", _first_key_for_all),
    "records of outputs are left out": (compute, "united_records", _only_sources),
    "an input has the name of another": (processor, "named_records", _all_are_orders),
    "ties go by position alone": (process, "_order", _ordered("event_time", "position")),
    "records come by position": (process, "_order", _ordered("position")),
    "all timers fire behind the records": (timer_merge.TimerQueue, "next_due", _fires_last),
    "its frontier follows logical time": (CoProcess, "clock_of_frontier", lambda _: "logical_time"),
}
"""What is wrong: where, and what takes the place of the real function."""


@pytest.mark.parametrize("wrong", PLANTED)
def test_a_planted_fault_is_found(wrong: str) -> None:
    where, name, planted = PLANTED[wrong]
    with patch.object(where, name, planted(getattr(where, name))):
        assert is_found(check, range(400)), "no seed finds it"
