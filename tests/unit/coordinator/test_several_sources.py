"""One barrier over several sources: who owns a topic, where a new source starts, what is parked (J5, E3)."""

from dataclasses import dataclass

import pytest

from tests.support.memory import Payment, payment
from tidemark import Fold, KafkaSource, Pipeline, TopicPattern, state
from tidemark.coordinator.plans.cut import Bound
from tidemark.coordinator.plans.inputs import Parent
from tidemark.coordinator.plans.ranges import PlannedRanges, ReadLimit, plan_ranges
from tidemark.declare.pipeline import Broadcast
from tidemark.errors import DataLostError, DeclarationError
from tidemark.model.core.offsets import TopicPartition
from tidemark.ports import PlanRequest
from tidemark.testing.twin.memory import MemoryLog

ASK = PlanRequest(origin="test")
P0, P1, R0 = TopicPartition("payments", 0), TopicPartition("payments", 1), TopicPartition("refunds", 0)
L0 = TopicPartition("limits", 0)


@dataclass(frozen=True)
class Refund:
    """A record of the second source."""

    account: str
    cents: int


@dataclass(frozen=True)
class Limit:
    """A record that is broadcast."""

    account: str
    most: int


class Count(state.Keyed):
    """What is remembered."""

    n: int = state.count()


PAYMENTS, REFUNDS = KafkaSource("payments", Payment), KafkaSource("refunds", Refund)


def bank(**sources: KafkaSource) -> Pipeline:
    """A pipeline with one operator per source."""
    folds = [Fold(f"of_{name}", key_by="account", state=Count, input=name) for name in sources]
    return Pipeline(name="bank", sources=sources, operators=folds)


def filled(**records: int) -> MemoryLog:
    """A log with so many records in the first partition of each topic; payments have two partitions."""
    log = MemoryLog()
    for topic, count in records.items():
        log.create(topic, 2 if topic == "payments" else 1)
        for _ in range(count):
            log.append(TopicPartition(topic, 0), payment("a", 1))
    return log


def ranges(planned: PlannedRanges) -> dict[TopicPartition, tuple[int, int]]:
    """Planned ranges as pairs."""
    return {tp: (r.start, r.end) for tp, r in planned.ranges.items()}


def parent(**ends: int) -> Parent:
    """A parent that read the first partition of each topic up to an end, each as a source of the topic's name."""
    return Parent(
        id=1,
        ends={TopicPartition(topic, 0): end for topic, end in ends.items()},
        topic_ids={topic: f"{topic}/{n}" for n, topic in enumerate(ends, start=1)},
        sources={topic: (topic,) for topic in ends},
    )


def test_one_barrier_cuts_all_partitions_of_all_sources() -> None:
    log = filled(payments=3, refunds=2)
    planned = plan_ranges(bank(payments=PAYMENTS, refunds=REFUNDS), ASK, Parent(), log)
    assert ranges(planned) == {P0: (0, 3), P1: (0, 0), R0: (0, 2)}
    assert planned.sources == {"payments": ("payments",), "refunds": ("refunds",)}
    assert planned.topic_ids == {"payments": "payments/1", "refunds": "refunds/2"}


def test_topics_of_broadcast_states_are_cut_by_the_same_barrier() -> None:
    made = Pipeline(
        name="bank",
        source=PAYMENTS,
        operators=[Fold("accounts", key_by="account", state=Count)],
        broadcast=[Broadcast("limits", KafkaSource("limits", Limit), key_by="account")],
    )
    planned = plan_ranges(made, ASK, Parent(), filled(payments=1, limits=4))
    assert ranges(planned) == {P0: (0, 1), P1: (0, 0), L0: (0, 4)}
    assert planned.sources == {"records": ("payments",), "limits": ("limits",)}
    assert made.readers("records") == ("accounts",)
    assert made.readers("limits") == ("limits",)


def test_a_bound_holds_for_all_sources_together_but_never_cuts_a_broadcast_topic() -> None:
    limit = ReadLimit(bound=Bound(records=2), runs=None)
    log = filled(payments=3, refunds=1)
    planned = plan_ranges(bank(payments=PAYMENTS, refunds=REFUNDS), ASK, Parent(), log, limit=limit)
    assert sum(r.span for r in planned.ranges.values()) == 2
    assert not planned.covers
    made = Pipeline(
        name="bank",
        source=PAYMENTS,
        operators=[Fold("accounts", key_by="account", state=Count)],
        broadcast=[Broadcast("limits", KafkaSource("limits", Limit), key_by="account")],
    )
    planned = plan_ranges(made, ASK, Parent(), filled(payments=3, limits=4), limit=limit)
    assert ranges(planned) == {P0: (0, 2), P1: (0, 0), L0: (0, 4)}


def test_a_source_that_is_added_starts_where_it_says_and_the_others_go_on() -> None:
    log = filled(payments=3, refunds=5)
    late = KafkaSource("refunds", Refund, start="latest")
    planned = plan_ranges(bank(payments=PAYMENTS, refunds=late), ASK, parent(payments=2), log)
    assert ranges(planned) == {P0: (2, 3), P1: (0, 0), R0: (5, 5)}


def test_a_source_that_the_parent_had_reads_new_topics_from_earliest() -> None:
    log = filled(payments=3, refunds=5)
    both = KafkaSource(("payments", "refunds"), Payment, start="latest")
    planned = plan_ranges(bank(payments=both), ASK, parent(payments=2), log)
    assert ranges(planned) == {P0: (2, 3), P1: (0, 0), R0: (0, 5)}


def test_a_renamed_source_goes_on() -> None:
    log = filled(payments=3)
    planned = plan_ranges(bank(paid=KafkaSource("payments", Payment, start="latest")), ASK, parent(payments=2), log)
    assert ranges(planned)[P0] == (2, 3)
    assert planned.sources == {"paid": ("payments",)}


def test_a_source_that_is_taken_out_is_parked_and_read_for_nobody() -> None:
    log = filled(payments=3, refunds=5)
    before = parent(payments=2, refunds=4)
    planned = plan_ranges(bank(payments=PAYMENTS), ASK, before, log)
    assert ranges(planned) == {P0: (2, 3), P1: (0, 0), R0: (4, 4)}
    assert planned.sources == {"payments": ("payments",)}
    again = plan_ranges(bank(payments=PAYMENTS, refunds=REFUNDS), ASK, before, log)
    assert ranges(again)[R0] == (4, 5)


def test_losses_of_all_sources_are_told_at_once() -> None:
    log = filled(payments=5, refunds=5)
    log.trim(P0, 3)
    log.trim(R0, 4)
    with pytest.raises(DataLostError) as lost:
        plan_ranges(bank(payments=PAYMENTS, refunds=REFUNDS), ASK, parent(payments=1, refunds=2), log)
    assert "topic payments, partition 0, offsets [1, 3)" in lost.value.what
    assert "topic refunds, partition 0, offsets [2, 4)" in lost.value.what


Topics = str | tuple[str, ...] | TopicPattern | frozenset[TopicPartition]
"""The topics of a source."""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("payments", "payments"),
        ("payments", ("refunds", "payments")),
        ("payments", TopicPattern("pay.*")),
        (frozenset({P0}), frozenset({P1})),
    ],
)
def test_a_topic_of_two_sources_is_refused_where_it_is_declared(one: Topics, other: Topics) -> None:
    with pytest.raises(DeclarationError, match="topic payments belongs to"):
        bank(one=KafkaSource(one, Payment), other=KafkaSource(other, Payment))


def test_a_topic_of_two_patterns_is_refused_when_it_is_planned() -> None:
    made = bank(one=KafkaSource(TopicPattern("pay.*"), Payment), other=KafkaSource(TopicPattern(".*ments"), Payment))
    with pytest.raises(DeclarationError, match="topic payments belongs to one and to other"):
        plan_ranges(made, ASK, Parent(), filled(payments=1))


def test_a_broadcast_topic_belongs_to_no_source() -> None:
    with pytest.raises(DeclarationError, match="topic payments belongs to records and to limits"):
        Pipeline(
            name="bank",
            source=PAYMENTS,
            operators=[Fold("accounts", key_by="account", state=Count)],
            broadcast=[Broadcast("limits", KafkaSource("payments", Limit), key_by="account")],
        )


def test_all_inputs_are_read_with_one_isolation() -> None:
    with pytest.raises(DeclarationError, match="different isolation"):
        bank(payments=PAYMENTS, refunds=KafkaSource("refunds", Refund, isolation="read_uncommitted"))
