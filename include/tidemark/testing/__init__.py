"""Tests pipelines without Kafka, Spark or Airflow: `replay(pipeline, [records, BARRIER, records, CRASH, BARRIER])`.

Only the outside world is simulated: the coordinator, the order of a checkpoint's steps, plans, attempts, manifests and
restores are the real ones. Folds compute the same as in Spark. A gate runs with Great Expectations on pandas.
"""

from collections.abc import Iterable

from tidemark.declare.pipeline import Gate, Pipeline
from tidemark.errors import UsageError
from tidemark.testing.harness import Harness
from tidemark.testing.results import Replayed
from tidemark.testing.script import BARRIER, CRASH, Barrier, Crash, Overwrite, Restore, Script
from tidemark.testing.twin.memory import Record

__all__ = [
    "BARRIER",
    "CRASH",
    "Barrier",
    "Crash",
    "Harness",
    "Overwrite",
    "Record",
    "Replayed",
    "Restore",
    "Script",
    "replay",
]


def replay(
    pipeline: Pipeline, script: Script, *, partitions: int = 1, parallelism: int = 1, gate: Gate | bool = True
) -> Replayed:
    """Feeds records to a pipeline in memory, and makes checkpoints, crashes and restores where the script says so.

    >>> from dataclasses import dataclass
    >>> from tidemark import Fold, KafkaSource, Pipeline, state
    >>> @dataclass(frozen=True)
    ... class Sale:
    ...     shop: str
    ...     cents: int
    >>> class Shop(state.Keyed):
    ...     cents: int = state.sum("cents")
    >>> shops = Fold("shops", key_by="shop", state=Shop)
    >>> sales = Pipeline(name="sales", source=KafkaSource("sales", Sale), operators=[shops])
    >>> done = replay(sales, [[Sale("north", 5)], BARRIER, [Sale("north", 1)], CRASH, BARRIER])
    >>> done.state("shops"), done.crashes
    ({'north': Shop(cents=6)}, 1)
    >>> done.state("shops", done.checkpoints[0])
    {'north': Shop(cents=5)}
    >>> replay(sales, [[Sale("north", 5)]]).counts("shops").applied
    1

    Args:
        pipeline: the declaration.
        script: lists of records, with `BARRIER` where a checkpoint ends, and `CRASH` before a barrier whose first
            attempt dies; records after the last barrier belong to a last checkpoint. A record is an instance of the
            source's dataclass, a dict that JSON can encode, or raw bytes, which become a dead letter if they cannot be
            decoded; None is a null value. With several inputs (sources, and topics of broadcast states), a record is an
            instance of the dataclass of one of them, or a pair (name, record); with a message key, it is a triple
            (name, record, key). A `Record` also names timestamp and partition. Further parts are `Overwrite`,
            `Restore`, and a `Pipeline`: the declaration from there on.
        partitions: partitions per topic; records are distributed over them in turn.
        parallelism: tasks of an operator with operator state; keys are divided over them as in Spark.
        gate: True = evaluate the pipeline's gate with Great Expectations on pandas; False = no gate; or a function that
            takes its place.

    Raises:
        UsageError: a crash follows the last record and barrier, or its point is never reached; times go back; an
            expectation of the gate cannot be evaluated in memory.
        TidemarkError: an error of a checkpoint or a restore, such as DeadLettersExceededError.
    """
    harness = Harness(pipeline, partitions=partitions, parallelism=parallelism, gate=gate)
    crashes: list[Crash] = []
    is_open = False
    for part in script:
        if isinstance(part, Crash):
            crashes.append(part)
        elif isinstance(part, Barrier):
            harness.checkpoint(part, crashes)
            crashes, is_open = [], False
        else:
            is_open = _apply(harness, part) or is_open
    if is_open:
        harness.checkpoint(BARRIER, crashes)
    elif crashes:
        raise UsageError("a CRASH follows the last BARRIER", next="end the script with BARRIER.")
    return harness.results


def _apply(harness: Harness, part: Iterable[object] | Overwrite | Restore | Pipeline) -> bool:
    """Applies a part of a script that ends no checkpoint; returns whether it brings records."""
    if isinstance(part, Overwrite):
        harness.overwrite(part.path, part.records)
    elif isinstance(part, Pipeline):
        harness.declare(part)
    elif isinstance(part, Restore):
        harness.restore(part)
    else:
        records = list(part)
        harness.send(*records)
        return bool(records)
    return False
