"""A function that raises, state that is too large, dead letters of a function: the same in memory and in Spark."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.spark import SparkPipeline, TwinPipeline
from tidemark import DeltaSink, Fold, KafkaSource, Pipeline, Process, state
from tidemark.coordinator.checkpoints.failure_policy import classify, failure_of
from tidemark.errors import DeadLettersExceededError, ProcessFunctionError, StateOverflowError
from tidemark.model.checkpoint.failure import FailureReason


@dataclass(frozen=True)
class Step:
    """One record."""

    who: str
    n: int


@dataclass(frozen=True)
class Done:
    """One emitted record."""

    n: int


class Memory(state.Keyed):
    """One of each kind."""

    n: int = state.value(0)
    text: str | None = state.value(None)
    steps: list[int] = state.list(limit=3)
    seen: dict[int, str] = state.map(limit=3)


def fails_on_thirteen(who: str, steps: Iterator[Step], memory: Memory) -> Iterator[Done]:
    """Changes state before it fails."""
    for step in steps:
        memory.n += 1
        yield Done(step.n)
        if step.n == 13:
            raise ValueError("thirteen is out of luck")


def wrong_type(who: str, steps: Iterator[Step], memory: Any) -> None:
    """Assigns what does not fit."""
    for step in steps:
        memory.n = str(step.n)


def unknown_field(who: str, steps: Iterator[Step], memory: Any) -> None:
    """Assigns what is not declared."""
    for step in steps:
        memory.nn = step.n


def wrong_record(who: str, steps: Iterator[Step], memory: Memory) -> Iterator[Any]:
    """Yields what it does not emit."""
    yield from steps


def wide(who: str, steps: Iterator[Step], memory: Memory) -> None:
    """Passes 64 bits."""
    for _ in steps:
        memory.n = 2**63


def long(who: str, steps: Iterator[Step], memory: Memory) -> None:
    """Passes the limit of the list."""
    memory.steps.extend(s.n for s in steps)


def many(who: str, steps: Iterator[Step], memory: Memory) -> None:
    """Passes the limit of the map."""
    memory.seen.update({s.n: "x" for s in steps})


def large(who: str, steps: Iterator[Step], memory: Memory) -> None:
    """Passes the bound in bytes."""
    memory.text = "x" * 2000
    list(steps)


def pipeline_of(function: Callable[..., Any], **options: Any) -> Pipeline:
    """A pipeline of one operator with a sink, and a fold behind it."""
    process = Process(
        "walk",
        key_by="who",
        state=Memory,
        function=function,
        emits=Done,
        sink=DeltaSink("done"),
        max_state_bytes=1000,
        **options,
    )

    class Count(state.Keyed):
        times: int = state.count()

    fold = Fold("count", key_by="n", state=Count, input="walk")
    return Pipeline(name="steps", source=KafkaSource("steps", Step), operators=[process, fold], max_dead_letters=0.5)


STEPS = [Step("a", 1), Step("b", 13), Step("a", 2), Step("a", 13), Step("b", 5)]
RAISED: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "an exception": (fails_on_thirteen, ProcessFunctionError, "ValueError: thirteen is out of luck"),
    "a value of another type": (wrong_type, ProcessFunctionError, "n: '1' is not of type int"),
    "an unknown field": (unknown_field, ProcessFunctionError, "Memory has no field 'nn'"),
    "a record of another class": (wrong_record, ProcessFunctionError, "yielded Step(who='a', n=1), not Done"),
    "a number of 65 bits": (wide, StateOverflowError, "key (a): n: 9223372036854775808 does not fit 64 bits"),
    "a list beyond its limit": (long, StateOverflowError, "steps of key (a) has 4 elements, its limit is 3"),
    "a map beyond its limit": (many, StateOverflowError, "seen of key (a) has 4 elements, its limit is 3"),
    "a state beyond its bytes": (large, StateOverflowError, "key (a) has about 2,000 bytes"),
}


@pytest.mark.parametrize("case", RAISED)
def test_what_a_function_does_wrong_fails_the_checkpoint_by_key(case: str) -> None:
    function, kind, words = RAISED[case]
    world = TwinPipeline(pipeline_of(function), partitions=1)
    with pytest.raises(kind) as failed:
        world.checkpoint([Step("a", n) for n in (1, 2, 3, 13)])
    assert words in str(failed.value)
    assert "(a)" in str(failed.value)
    assert len(str(failed.value).splitlines()) == 3
    wanted = FailureReason.PROCESS_FAILED if kind is ProcessFunctionError else FailureReason.STATE_OVERFLOW
    assert classify(failed.value) is wanted


def test_an_exception_names_key_position_and_line_and_carries_its_traceback() -> None:
    world = TwinPipeline(pipeline_of(fails_on_thirteen), partitions=1)
    with pytest.raises(ProcessFunctionError) as failed:
        world.checkpoint(STEPS)
    error = failed.value
    assert (error.key, error.place, error.kind) == ("a", ("steps", 0, 3, ()), "ValueError")
    assert "(fails_on_thirteen, line " in error.what
    assert 'raise ValueError("thirteen is out of luck")' in error.trace
    assert "processing" not in error.trace
    assert error.trace in failure_of(error).message + "\n"


def test_a_record_that_fails_is_a_dead_letter_and_leaves_no_trace() -> None:
    world = TwinPipeline(pipeline_of(fails_on_thirteen, on_error="dead_letter"), partitions=1)
    done = world.checkpoint(STEPS)
    assert [(r["who"], r["n"]) for r in world.state("walk", done)] == [("a", 2), ("b", 1)]
    assert [r["n"] for r in world.emitted("walk", done)] == [1, 2, 5]
    assert [(r["n"], r["times"]) for r in world.state("count", done)] == [(1, 1), (2, 1), (5, 1)]
    letters = world.letters("walk", done)
    assert [(r["offset"], r["reason"]) for r in letters] == [(1, "process_failed: ValueError")] + [
        (3, "process_failed: ValueError")
    ]
    assert letters[0]["value"] == b'{"who": "b", "n": 13}'
    ack = done.ack("walk")
    assert ack is not None
    assert (ack.read, ack.applied, ack.dead_lettered, ack.emitted) == (5, 3, 2, 3)


def test_too_many_failures_of_a_function_stop_the_checkpoint() -> None:
    world = TwinPipeline(
        replace(pipeline_of(fails_on_thirteen, on_error="dead_letter"), max_dead_letters=0.3), partitions=1
    )
    with pytest.raises(DeadLettersExceededError, match="walk: 2 of 5 records"):
        world.checkpoint(STEPS)


def test_spark_says_the_same(spark: SparkSession, tmp_path: Path) -> None:
    for case in ("an exception", "a list beyond its limit"):
        function, kind, _ = RAISED[case]
        said = []
        for world in (
            TwinPipeline(pipeline_of(function)),
            SparkPipeline(pipeline_of(function), spark=spark, root=tmp_path / case[:6]),
        ):
            with pytest.raises(kind) as failed:
                world.checkpoint([Step("a", n) for n in (1, 2, 3, 13)])
            said.append((str(failed.value), vars(failed.value)))
        assert said[0] == said[1]
