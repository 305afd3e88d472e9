"""Bugs that the walks must find: each undoes one rule of ADR 0022."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from tidemark.coordinator.checkpoints import coordinator, loop
from tidemark.coordinator.plans import planner, ranges
from tidemark.coordinator.plans import replay_ranges as recorded
from tidemark.coordinator.plans import sink_inputs as sent
from tidemark.coordinator.plans import sink_inputs as sinks
from tidemark.coordinator.plans.sink_inputs import SentRecords, Undelivered
from tidemark.coordinator.recovery import promotion
from tidemark.coordinator.recovery import restore as recovery
from tidemark.coordinator.retention import root_set as survey
from tidemark.model.checkpoint.object_keys import delivery_key, greatest
from tidemark.model.checkpoint.store_objects import DeliveryRecord
from tidemark.model.core.offsets import OffsetCoverage
from tidemark.model.retention.erasure import ErasureRecord


@contextmanager
def count_by_name() -> Iterator[None]:
    """Coverage is kept by the names of topics, as watermarks were."""
    of, covers = OffsetCoverage.of.__func__, OffsetCoverage.covers  # type: ignore[attr-defined]

    def by_name(cls: Any, found: Any, topic_ids: Any) -> Any:
        return of(cls, found, {topic: topic for topic in topic_ids})

    def covered(self: Any, tp: Any, offset: int, topic_ids: Any) -> Any:
        return covers(self, tp, offset, {tp.topic: tp.topic})

    with (
        patch.object(OffsetCoverage, "of", classmethod(by_name)),
        patch.object(OffsetCoverage, "covers", covered),
        patch.object(ErasureRecord, "ends_of", lambda self, topic_ids: None if self.forever else self.ends),
    ):
        yield


@contextmanager
def go_by_the_greatest_id() -> Iterator[None]:
    """What was sent is what the delivery with the greatest id says, on whichever line that is."""

    def newest(self: SentRecords, name: str, after: int, through: int) -> Any:
        number = greatest(self.timelines.objects.list(f"deliveries/{name}/"))
        record = self.timelines.objects.read(DeliveryRecord, delivery_key(name, number)) if number else None
        checkpoint = self.timelines.find(number) if number else None
        return (None if record is None else replace(record, sent=None)), checkpoint

    with patch.object(SentRecords, "_newest", newest):
        yield


@contextmanager
def ignore_what_is_withheld() -> Iterator[None]:
    """A promote sends what the fork emitted, asked or not."""
    with patch.object(sent, "_withheld", lambda closing, name, checkpoint: OffsetCoverage()):
        yield


@contextmanager
def withhold_by_timeline() -> Iterator[None]:
    """A promote withholds what the fork itself emitted, not what the fork did that it began on."""

    def is_beside(self: SentRecords, closing: Any, checkpoint: Any) -> bool:
        return bool(closing.successor == checkpoint.plan.slot.timeline)

    with patch.object(SentRecords, "_is_beside", is_beside):
        yield


@contextmanager
def forget_removed_sinks() -> Iterator[None]:
    """What waits in the outbox of a sink that is taken out is forgotten."""
    with patch.object(planner, "planned_outboxes", lambda parent, sinks: {}):
        yield


@contextmanager
def forget_rows_of_a_sink_that_is_removed_twice() -> Iterator[None]:
    """An outbox without rows takes the place of one that has some."""
    with patch.object(sinks, "_with_rows_of", lambda old, table: table):
        yield


@contextmanager
def keep_forks_mute() -> Iterator[None]:
    """Attempts of a fork send nothing and write nothing, and a plan of a promoted fork is adopted."""
    fitting = sinks.fitting_sinks

    def mute(pipeline: Any, timeline: str, parent: Any, *, is_live: bool) -> Any:
        found = fitting(pipeline, timeline, parent, is_live=True)
        if is_live:
            return found
        quiet = {uid: replace(s.declared, topic=None) for uid, s in found.items() if s.declared.kind == "topic"}
        return {uid: replace(s, declared=quiet.get(uid, s.declared)) for uid, s in found.items()}

    with (
        patch.object(sinks, "fitting_sinks", mute),
        patch.object(coordinator, "sends_otherwise", lambda pipeline, plan: False),
    ):
        yield


@contextmanager
def drop_sinks_that_were_added_later() -> Iterator[None]:
    """A restore takes over the sinks of its checkpoint only."""
    restored = sinks.restored_sinks

    def without(found: Any, *given: Any, **asked: Any) -> Any:
        done = restored(found, *given, **asked)
        return replace(done, sinks={uid: table for uid, table in done.sinks.items() if uid in found.sinks})

    with patch.object(recovery, "restored_sinks", without):
        yield


@contextmanager
def forget_sinks_without_a_table() -> Iterator[None]:
    """A restore hands over what was sent by the tables of its sinks alone."""
    restored = sinks.restored_sinks

    def without(*given: Any, **asked: Any) -> Any:
        return replace(restored(*given, **asked), sent={})

    with patch.object(recovery, "restored_sinks", without):
        yield


@contextmanager
def look_only_once() -> Iterator[None]:
    """What a closed timeline sent after its successor began is not looked at."""
    handed_over = SentRecords.handed_over

    def once(self: SentRecords, timeline: str) -> Any:
        with patch.object(SentRecords, "_own", lambda self, timeline: {}):
            return handed_over(self, timeline)

    with patch.object(SentRecords, "handed_over", once):
        yield


@contextmanager
def hand_nothing_over_at_a_promote() -> Iterator[None]:
    """A promoted fork does not know what the timeline has sent that it takes the place of."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(SentRecords, "handed_over", lambda self, timeline: {}))
        yield


@contextmanager
def record_what_one_checkpoint_sent() -> Iterator[None]:
    """A delivery record says what its checkpoint has sent, not what the line has."""
    due = SentRecords._due

    def alone(self: SentRecords, found: Any, sent: Any) -> Iterator[Undelivered]:
        for each in due(self, found, sent):
            plan = each.checkpoint.plan
            yield replace(each, sent=OffsetCoverage.of(plan.ranges, plan.topic_ids))

    with patch.object(SentRecords, "_due", alone):
        yield


@contextmanager
def send_for_a_closed_timeline() -> Iterator[None]:
    """A delivery goes on although its timeline was closed meanwhile."""
    with patch.object(loop, "is_live", lambda coordinator, due: True), _in_the_walk("is_live"):
        yield


@contextmanager
def wait_for_rows_that_are_gone() -> Iterator[None]:
    """Rows that retention has let go are due as any others."""
    with patch.object(sent, "read_release", lambda objects, name: None):
        yield


@contextmanager
def sweep_what_waits() -> Iterator[None]:
    """What is yet to be sent pins nothing."""
    with patch.object(survey, "pins_of_deliveries", lambda *_: ()):
        yield


@contextmanager
def park_in_a_topic_that_is_gone() -> Iterator[None]:
    """A parked partition keeps its place, whatever topic it was counted in."""

    def parked(found: Any, then: Any, now: Any) -> Any:
        return dict(found), []

    with patch.object(ranges, "still_parked", parked), patch.object(recorded, "still_parked", parked):
        yield


@contextmanager
def go_back_by_offset() -> Iterator[None]:
    """Sinks that go back forget what was sent of a topic that cannot be read again."""

    def below(given: Any, genesis: Any, topic_ids: Any) -> Any:
        until = OffsetCoverage.below(genesis.ranges.ends, genesis.topic_ids)
        return {name: covered & until for name, covered in given.items()}

    with patch.object(recovery, "gone_back", below):
        yield


@contextmanager
def withhold_up_to_the_end() -> Iterator[None]:
    """A promote withholds nothing of topics that the fork has read before they were recreated."""
    emitted = promotion._emitted

    def newest(found: Any) -> Any:
        mute = list(found)
        ids = {*mute[0].plan.topic_ids.values()} if mute else set()
        return {
            name: OffsetCoverage({tp: r for tp, r in covered.by_id.items() if tp.topic in ids})
            for name, covered in emitted(mute).items()
        }

    with patch.object(promotion, "_emitted", newest):
        yield


def _in_the_walk(name: str) -> AbstractContextManager[Any]:
    from tests.deliveries import delivery_walk

    return patch.object(delivery_walk, name, lambda coordinator, due: True)


BUGS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    f.__name__.replace("_", "-"): f
    for f in (
        count_by_name,
        go_by_the_greatest_id,
        ignore_what_is_withheld,
        withhold_by_timeline,
        forget_removed_sinks,
        forget_rows_of_a_sink_that_is_removed_twice,
        keep_forks_mute,
        drop_sinks_that_were_added_later,
        forget_sinks_without_a_table,
        look_only_once,
        hand_nothing_over_at_a_promote,
        record_what_one_checkpoint_sent,
        send_for_a_closed_timeline,
        wait_for_rows_that_are_gone,
        sweep_what_waits,
        park_in_a_topic_that_is_gone,
        go_back_by_offset,
        withhold_up_to_the_end,
    )
}
