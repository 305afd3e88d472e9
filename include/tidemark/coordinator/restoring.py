"""What a restore would come to, found out without writing anything (the dry run): what is left, read again, lost."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidemark.coordinator.beginnings import Beginning
from tidemark.coordinator.lineage import since_split
from tidemark.coordinator.losses import Loss, refuse
from tidemark.coordinator.parents import Parent
from tidemark.coordinator.ranges import plan_ranges
from tidemark.coordinator.recovery import Recovery
from tidemark.coordinator.timelines import Head
from tidemark.model.checkpoint import Checkpoint
from tidemark.model.offsets import OffsetRange, TopicPartition
from tidemark.model.plan import Gap
from tidemark.model.records import Genesis
from tidemark.model.sinks import SinkTable
from tidemark.pipeline import Pipeline
from tidemark.ports import PlanRequest

_ANYTHING = PlanRequest(origin="dry run", accept_loss=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """The dry run of a restore.

    Attributes:
        genesis: what would be put; its timeline has no name yet.
        checkpoint: where it begins.
        left: checkpoints of the live timeline that would be left on it, newest first; they stay readable.
        read_again: offsets that the live timeline has read and the restored one reads again, where there are any.
        gaps: what Kafka does not have any more of all that comes after the checkpoint.
    """

    genesis: Genesis
    checkpoint: Checkpoint
    left: tuple[Checkpoint, ...]
    read_again: Mapping[TopicPartition, OffsetRange]
    gaps: tuple[Gap, ...]

    @property
    def sinks(self) -> Mapping[str, str]:
        """What happens to every sink, by its name, in words."""
        return {table.name: _told(table, bool(self.read_again)) for table in self.genesis.sinks.values()}

    def refuse_gaps(self) -> None:
        """Raises where Kafka has lost what would be read.

        Raises:
            DataLostError: with the exact gaps.
        """
        refuse(Loss(gap=gap, resume_at=None) for gap in self.gaps)


def plan_restore(recovery: Recovery, beginning: Beginning, pipeline: Pipeline) -> RestorePlan:
    """Finds out what a restore would do; asks Kafka now what it still has.

    Raises:
        UsageError, IncompatibleStateError, CorruptObjectError: see `Recovery.draft`.
        DataLostError: a topic is gone altogether.
        NotFoundError, BrokerError: Kafka does not know the topic, or does not answer.
    """
    c = recovery.coordinator
    genesis, live = recovery.draft(beginning), c.head()
    ours = Parent.of(Head(timeline="", sequence=1, entry=genesis))
    found = plan_ranges(pipeline, _ANYTHING, ours, c.log)
    ends, timelines = Parent.of(live).ends, c.timelines
    again = {tp: OffsetRange(start, ends[tp]) for tp, start in ours.ends.items() if ends.get(tp, 0) > start}
    new = {tp: OffsetRange(0, end) for tp, end in ends.items() if tp not in ours.ends and end}
    left = since_split(timelines.chain(live.timeline), timelines.ancestry(beginning.checkpoint))
    return RestorePlan(
        genesis=replace(genesis, timeline=""),
        checkpoint=beginning.checkpoint,
        left=tuple(left),
        read_again=dict(sorted((again | new).items())),
        gaps=found.losses,
    )


def _told(table: SinkTable, reads_again: bool) -> str:
    if table.kind == "delta":
        if table.emitted_until:
            return "keeps its rows; what is emitted again for the same records is skipped"
        return (
            "goes back to its rows of then; what is read again emits anew" if reads_again else "goes on with its rows"
        )
    if not reads_again:
        return f"goes on: nothing is sent to topic {table.topic} again"
    if table.emitted_until:
        return f"what was sent to topic {table.topic} stays, and is not sent again"
    return f"what was sent to topic {table.topic} stays; what is read again is sent again, under other ids"
