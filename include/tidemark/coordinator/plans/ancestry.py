"""How the checkpoints of two timelines are related: where they diverge, and whether one has read all the other has."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tidemark.coordinator.plans.inputs import Parent
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.model.core.offsets import TopicPartition


class Numbered(Protocol):
    """A checkpoint, or a record of one."""

    @property
    def id(self) -> int:
        """The number in `chk-17`."""
        ...


N = TypeVar("N", bound=Numbered)


def since_split(one: Iterable[N], other: Iterable[Numbered]) -> Iterator[N]:
    """Checkpoints of one lineage, newest first, down to the first one that the other lineage has too.

    Args:
        one: a checkpoint and its ancestors, newest first.
        other: another checkpoint and its ancestors; read only as far as necessary.
    """
    rest = iter(other)
    beside = next(rest, None)
    for found in one:
        while beside is not None and beside.id > found.id:
            beside = next(rest, None)
        if beside is not None and beside.id == found.id:
            return
        yield found


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far a timeline has read: end offsets, and the ids of the topics that they are counted in."""

    ends: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]

    @classmethod
    def of_parent(cls, parent: Parent) -> "Reach":
        """The reach of the state that a plan would build on."""
        return cls(ends=parent.ends, topic_ids=parent.topic_ids)

    @classmethod
    def of(cls, entry: Checkpoint | Genesis) -> "Reach":
        """The reach of a timeline's newest checkpoint, or of the genesis that it began with."""
        if isinstance(entry, Genesis):
            return cls(ends=entry.ranges.ends, topic_ids=entry.topic_ids)
        return cls(ends=entry.plan.ranges.ends, topic_ids=entry.plan.topic_ids)

    def contains(self, other: "Reach") -> bool:
        """Whether this timeline has read everything that the other one has read."""
        return all(self._has(tp, end, other.topic_ids) for tp, end in other.ends.items())

    def _has(self, tp: TopicPartition, end: int, ids: Mapping[str, str]) -> bool:
        if end <= 0:
            return True
        return self.topic_ids.get(tp.topic) == ids.get(tp.topic) and self.ends.get(tp, 0) >= end
