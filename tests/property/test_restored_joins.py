"""Restores that keep the sink of an interval join, against DuckDB's join: no pair twice, and none missing."""

import json
import random
from collections import Counter
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.test_restored_windows import ASK, ShopWindows, Story, tell
from tests.support.interval_join_cases import (
    Arrival,
    JoinModel,
    JoinRules,
    agree_on_pairs,
    joined_pipeline,
    random_arrivals,
    random_join_rules,
    waiting_in,
)
from tests.support.scale import cases
from tidemark import Pipeline
from tidemark.coordinator.checkpoints.loop import CheckpointLoop
from tidemark.errors import DataLostError
from tidemark.model.checkpoint import emitted
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.core.offsets import TopicPartition

seeds = st.integers(0, 2**32 - 1)


@dataclass(eq=False)
class JoinedShops(ShopWindows):
    """Orders and shipments that are joined, in memory."""

    pipeline: Pipeline = field(default_factory=lambda: joined_pipeline(JoinRules()))

    def __post_init__(self) -> None:
        for topic in ("orders", "shipments"):
            self.log.create(topic, 2)

    def send(self, batch: list[Any]) -> None:
        """Appends records to both topics."""
        for arrival in batch:
            sent: Any = arrival.record.value
            value = json.dumps(asdict(sent), default=datetime.isoformat)
            self.log.append(TopicPartition(arrival.side, arrival.partition), value.encode())
        self.sent += batch


@dataclass
class JoinStory(Story):
    """A join next to DuckDB's."""

    def _compare(self, found: Checkpoint) -> None:
        shops, model, as_of = self.shops, self.model, self.models[found.id]
        agree_on_pairs(model, shops.emitted(found, "shipped"))
        assert waiting_in(shops.rows(found, "shipped")) == as_of.waiting
        assert sum(row["n"] for row in shops.rows(found, "ever")) == len(as_of.expected())


def check(seed: int) -> Counter[str]:
    """One random story; returns what happened in it."""
    chance = random.Random(seed)
    rules = random_join_rules(chance)
    story = JoinStory(JoinedShops(pipeline=joined_pipeline(rules)), JoinModel(rules))
    tell(chance, story, random_arrivals(chance, rules))
    return story.told


@settings(max_examples=cases(15), deadline=None)
@given(seeds)
def test_a_kept_sink_has_each_pair_once_as_if_nothing_had_happened(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("is_planted", [False, True])
def test_a_pair_ahead_of_the_frontier_comes_once(is_planted: bool) -> None:  # noqa: FBT001
    shops, made = JoinedShops(pipeline=joined_pipeline(JoinRules())), []
    slow = [Arrival(side, 1, 0, None, 1, 0) for side in ("orders", "shipments")]
    for number in range(2):
        shops.send([Arrival(side, 0, number, "a", 1, number * 50_000) for side in ("orders", "shipments")] + slow)
        made.append(shops.complete())
    assert len(shops.emitted(made[1], "shipped")) == 2
    assert made[1].now.frontiers["shipped"] == made[0].now.frontiers["shipped"]
    shops.restore(made[0])
    with patch.object(emitted, "_joined", lambda _: frozenset()) if is_planted else nullcontext():
        again = shops.complete()
    assert again.plan.sinks_are_ahead and again.plan.replays == (made[1].id,)
    assert len(shops.emitted(again, "shipped")) == (3 if is_planted else 2)


def test_lost_records_are_refused_while_the_sink_stays() -> None:
    rules = JoinRules()
    shops = JoinedShops(pipeline=joined_pipeline(rules))
    made = []
    for number in range(3):
        shops.send([Arrival(side, 0, number, "a", 1, number * 1000) for side in ("orders", "shipments")])
        made.append(shops.complete())
    shops.log.trim(TopicPartition("orders", 0), 2)
    shops.restore(made[0])
    loop = CheckpointLoop(coordinator=shops.coordinator, pipeline=shops.pipeline, execute=shops.execute)
    with pytest.raises(DataLostError, match="cannot be repeated") as lost:
        loop.run_once(replace(ASK, accept_loss=True))
    assert lost.value.next == "restore the same checkpoint with --restore-sinks."


def test_the_stories_repeat_and_go_back() -> None:
    told = Counter[str]()
    for seed in range(10):
        told += check(seed)
    assert min(told[what] for what in ("repeated", "kept", "back")) > 3, told
