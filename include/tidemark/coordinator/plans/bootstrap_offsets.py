"""The offsets at which a bootstrapped pipeline begins to read: explicit offsets, earliest or latest."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tidemark.declare.pipeline import Pipeline
from tidemark.errors import NotFoundError, UsageError
from tidemark.model.core.offsets import BarrierOffsets, OffsetRanges, TopicPartition
from tidemark.ports import Log

Starts = Literal["earliest", "latest"] | Mapping[TopicPartition, int]
"""The start offsets as the caller gives them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenStarts:
    """Empty ranges at the start offset of every partition, topic ids, and topics per input."""

    ranges: OffsetRanges
    topic_ids: Mapping[str, str]
    sources: Mapping[str, tuple[str, ...]]


def given_starts(pipeline: Pipeline, starts: Starts, log: Log) -> GivenStarts:
    """Resolves start offsets once, to numbers.

    Raises:
        UsageError: explicit offsets omit a partition, name one that is not read, or lie outside the log.
        NotFoundError: a topic does not exist.
        BrokerError: Kafka did not answer.
    """
    bounds = {name: log.partitions(source.topics, source.isolation) for name, source in pipeline.inputs.items()}
    every = {tp: b for found in bounds.values() for tp, b in found.items()}
    if isinstance(starts, str):
        at = {tp: b.earliest if starts == "earliest" else b.end for tp, b in every.items()}
    else:
        at = dict(starts)
        wrong = [f"{tp} is not named" for tp in sorted(set(every) - set(at))]
        wrong += [f"{tp} is not read" for tp in sorted(set(at) - set(every))]
        outside = [(tp, b) for tp, b in sorted(every.items()) if tp in at and not b.earliest <= at[tp] <= b.end]
        wrong += [f"{tp} holds [{b.earliest}, {b.end}), not {at[tp]}" for tp, b in outside]
        if wrong:
            raise UsageError(
                f"these starts do not fit: {'; '.join(wrong)}", next="give a start for every partition that is read."
            )
    topics = sorted({tp.topic for tp in every})
    ids = dict(log.topic_ids(topics))
    if set(topics) - set(ids):
        raise NotFoundError(f"no topic {', '.join(sorted(set(topics) - set(ids)))}", next="create it, then try again.")
    sources = {name: tuple(sorted({tp.topic for tp in found})) for name, found in bounds.items()}
    return GivenStarts(ranges=OffsetRanges.between(at, BarrierOffsets(at)), topic_ids=ids, sources=sources)
