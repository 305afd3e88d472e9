"""A process operator in a file of its own, beside a file that it uses. `$topic` is replaced by a test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tidemark import DeltaSink, KafkaSource, Pipeline, Process, state

MOST = 3


@dataclass(frozen=True)
class Step:
    """One record."""

    who: str
    n: int


@dataclass(frozen=True)
class Far:
    """One emitted record."""

    who: str
    total: int
    last: Step | None = None


class Walker(state.Keyed):
    """What is remembered about a walker."""

    total: int = state.value(0)
    last: Step | None = state.value(None)
    steps: dict[int, int] = state.map()


def walk(who: str, steps: Iterator[Step], walker: Walker) -> Iterator[Far]:
    """Uses names of its module, which workers do not have."""
    for step in steps:
        walker.total += step.n
        walker.steps[step.n] = walker.steps.get(step.n, 0) + 1
        if step.n > MOST:
            yield _far(who, walker)
        walker.last = replace(step, n=-step.n)


def _far(who: str, walker: Walker) -> Far:
    return Far(who, walker.total, walker.last)


pipeline = Pipeline(
    name="walk",
    source=KafkaSource("$topic", Step),
    operators=[
        Process("walkers", key_by="who", state=Walker, function=walk, emits=Far, sink=DeltaSink("far")),
    ],
)
