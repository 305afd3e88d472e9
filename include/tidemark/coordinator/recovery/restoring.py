"""What a restore would come to, found out without writing anything (the dry run): what is left, read again, lost."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidemark.coordinator.plans.beginnings import Beginning
from tidemark.coordinator.plans.lineage import since_split
from tidemark.coordinator.plans.losses import Loss, refuse
from tidemark.coordinator.plans.parents import Parent
from tidemark.coordinator.plans.ranges import plan_ranges
from tidemark.coordinator.records.timelines import Head
from tidemark.coordinator.recovery.recovery import Recovery
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
        sent: per sink that sends where the offsets end whose records the live timeline has sent.
    """

    genesis: Genesis
    checkpoint: Checkpoint
    left: tuple[Checkpoint, ...]
    read_again: Mapping[TopicPartition, OffsetRange]
    gaps: tuple[Gap, ...]
    sent: Mapping[str, Mapping[TopicPartition, int]]

    @property
    def sinks(self) -> Mapping[str, str]:
        """What happens to every sink, by its name, in words."""
        return {table.name: self._told(table) for table in self.genesis.sinks.values()}

    @property
    def sent_again(self) -> tuple[str, ...]:
        """Topics that would get records again whose ids they have not seen."""
        return tuple(t.topic or t.name for t in self.genesis.sinks.values() if self._sends_again(t))

    def refuse_gaps(self) -> None:
        """Raises where Kafka has lost what would be read.

        Raises:
            DataLostError: with the exact gaps.
        """
        refuse(Loss(gap=gap, resume_at=None) for gap in self.gaps)

    def _sends_again(self, table: SinkTable) -> bool:
        sent = self.sent.get(table.name, {}) if table.kind != "delta" else {}
        return any(
            min(again.end, sent.get(tp, 0)) > max(again.start, table.emitted_until.get(tp, 0))
            for tp, again in self.read_again.items()
        )

    def _told(self, table: SinkTable) -> str:
        if table.kind == "delta":
            if table.emitted_until:
                return "keeps its rows; what is emitted again for the same records is skipped"
            anew = "goes back to its rows of then; what is read again emits anew"
            return anew if self.read_again else "goes on with its rows"
        if not self.read_again:
            return f"goes on: nothing is sent to topic {table.topic} again"
        if self._sends_again(table):
            return f"what was sent to topic {table.topic} stays; what is read again is sent again, under other ids"
        return f"what was sent to topic {table.topic} stays, and is not sent again"


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
    attempts = {table.name: ends for table in genesis.sinks.values() if not table.keeps_rows}
    again = {tp: OffsetRange(start, ends[tp]) for tp, start in ours.ends.items() if ends.get(tp, 0) > start}
    new = {tp: OffsetRange(0, end) for tp, end in ends.items() if tp not in ours.ends and end}
    left = since_split(timelines.chain(live.timeline), timelines.ancestry(beginning.checkpoint))
    return RestorePlan(
        genesis=replace(genesis, timeline=""),
        checkpoint=beginning.checkpoint,
        left=tuple(left),
        read_again=dict(sorted((again | new).items())),
        gaps=found.losses,
        sent={**recovery.sent(Parent.of(live)), **attempts},
    )
