"""Restores that keep sinks with closed windows, against a brute force: no window twice, and no other value.

The brute force reads each record once and never goes back: that is what a restore that keeps sinks must look like. It
knows nothing of timelines, and shares no code with the product.
"""

import copy
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support import timer_cases
from tests.support.crashes import Killed
from tests.support.memory import MemoryPipeline
from tests.support.scale import cases
from tests.support.window_cases import (
    START,
    Key,
    Model,
    Rules,
    Sent,
    agree,
    agree_on_updates,
    finals,
    key_of,
    pipeline,
    random_batches,
    random_rules,
)
from tidemark import Pipeline
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.loop import CheckpointLoop
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.states import Restored
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.errors import ConflictError
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed
from tidemark.model.core.offsets import TopicPartition
from tidemark.ports import PlanRequest
from tidemark.testing import BARRIER, Replayed, Restore, replay
from tidemark.testing.twin.memory import ManualClock

NOW_MS = int(START.timestamp() * 1000) + 86_400_000
ASK = PlanRequest(origin="test")


@dataclass(eq=False)
class ShopWindows(MemoryPipeline):
    """Shops whose windows close, in memory; `kill_in` counts the steps down to a kill."""

    pipeline: Pipeline = field(default_factory=lambda: pipeline(Rules()))
    clock: ManualClock = field(default_factory=lambda: ManualClock(NOW_MS), kw_only=True)
    kill_in: int = 0
    sent: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log.create("sales", 2)

    @property
    def coordinator(self) -> CheckpointCoordinator:
        return replace(super().coordinator, listener=self.crash)

    def crash(self, step: str, moment: str) -> None:
        """Kills the process, if its time has come."""
        self.kill_in -= 1
        if self.kill_in == 0:
            raise Killed

    def send(self, batch: list[Any]) -> None:
        """Appends sales to the topic."""
        for sale in batch:
            at = (START + timedelta(minutes=sale.minute)).isoformat()
            shop = "" if sale.shop is None else f'"shop":"{sale.shop}",'
            self.log.append(
                TopicPartition("sales", sale.partition), f'{{{shop}"cents":{sale.cents},"at":"{at}"}}'.encode()
            )
        self.sent += batch

    def execute(self, attempt: OwnedAttempt) -> Sealed:
        """Executes an attempt, which may be killed."""
        return self.checkpoint_job(self.compute_of(self.pipeline), self.crash).execute(attempt)

    def complete(self, request: PlanRequest = ASK) -> Checkpoint:
        """Completes one checkpoint, over kills."""
        before = self.newest()
        while (found := self.newest()) == before:
            loop = CheckpointLoop(coordinator=self.coordinator, pipeline=self.pipeline, execute=self.execute)
            with suppress(Killed):
                loop.run_once(request)
        assert found is not None
        return found

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint of the live timeline."""
        return next(iter(self.coordinator.checkpoints()), None)

    def restore(self, found: Checkpoint, **options: Any) -> Restored:
        """Restores a checkpoint, over kills."""
        recovery = Recovery(coordinator=self.coordinator, pipeline=self.pipeline)
        point, request = RestorePoint(checkpoint=found, **options), self.ids()
        while True:
            try:
                done = recovery.restore(point, request)
            except Killed:
                continue
            assert isinstance(done, Restored)
            return done

    def rows(self, found: Checkpoint, uid: str) -> list[dict[str, Any]]:
        """The state of an operator."""
        return [dict(row) for row in self.compute_of(self.pipeline).resolve(found, uid).values()]

    def emitted(self, found: Checkpoint, uid: str) -> list[dict[str, Any]]:
        """All rows of a sink."""
        return [dict(row) for row in self.tables.rows(found.sinks[uid].handle)]


@dataclass
class Story:
    """A pipeline next to the model of what it must have done, for each checkpoint that was ever made."""

    shops: ShopWindows
    model: Any
    made: list[Checkpoint] = field(default_factory=list)
    models: dict[int, Any] = field(default_factory=dict)
    told: Counter[str] = field(default_factory=Counter)

    def checkpoint(self) -> None:
        """One checkpoint: a repetition changes nothing, another one reads all that waits."""
        found = self.shops.complete()
        self.made.append(found)
        if found.plan.replays:
            self.told["repeated"] += 1
            self.models[found.id] = self.models[found.plan.replays[-1]]
        else:
            self.model.checkpoint(self.shops.sent[self.model.read :])
            self.models[found.id] = copy.deepcopy(self.model)
        self._compare(found)

    def restore(self, at: Checkpoint, *, restore_sinks: bool) -> None:
        """A restore; with kept sinks it looks as if nothing had happened."""
        try:
            done = self.shops.restore(at, restore_sinks=restore_sinks)
        except ConflictError as error:
            assert "sinks cannot stay" in error.what
            self.told["refused"] += 1
            return
        went_back = all(table.covered == at.sinks[uid].covered for uid, table in done.genesis.sinks.items())
        self.told["back" if went_back else "kept"] += 1
        if went_back:
            self.model = copy.deepcopy(self.models[at.plan.repeats_to or at.id])

    def _compare(self, found: Checkpoint) -> None:
        shops, model, emitted = self.shops, self.model, partial(self.shops.emitted, found)
        agree(model, finals(emitted("sold")), model.closed)
        if model.rules.updates:
            agree_on_updates(model, emitted("sold"))
        as_of = self.models[found.id]
        if model.rules.keeps_late:
            late = [(r["shop"], (r["at"] - START) // timedelta(minutes=1), r["cents"]) for r in emitted("sold.late")]
            assert sorted(late) == sorted(model.all_late)
            missed = Counter[str]()
            for shop, _, cents in as_of.all_late:
                missed[shop] += cents
            assert {row["shop"]: row["cents"] for row in shops.rows(found, "missed")} == missed
        days = {key_of(row): (row["hours"], row["cents"]) for row in emitted("days")}
        assert days == Model.sums(model.closed_days) and len(days) == len(emitted("days"))
        agree(as_of, shops.rows(found, "sold"), as_of.open)
        assert {key_of(r): (r["hours"], r["cents"]) for r in shops.rows(found, "days")} == Model.sums(as_of.days)
        closed = Counter[str]()
        for (shop, *_), sales in as_of.closed.items():
            closed[shop] += sum(cents for _, cents in sales)
        assert {row["shop"]: row["cents"] for row in shops.rows(found, "ever")} == closed


def tell(chance: random.Random, story: Story, batches: Sequence[Any]) -> None:
    """Sends the batches, with checkpoints, kills and restores between them."""
    for batch in batches:
        story.shops.send(batch)
        for _ in range(chance.choice([1, 1, 2])):
            story.shops.kill_in = chance.choice([0, chance.randrange(1, 60)])
            story.checkpoint()
        while chance.random() < 0.4:
            story.shops.kill_in = chance.choice([0, chance.randrange(1, 12)])
            story.restore(chance.choice(story.made), restore_sinks=chance.random() < 0.2)
            if chance.random() < 0.3:
                story.checkpoint()
    while story.made[-1].plan.replays or story.model.read < len(story.shops.sent):
        story.checkpoint()


@settings(max_examples=cases(20), deadline=None)
@given(st.integers(0, 2**32 - 1))
@example(2664602)  # sinks of a line that has the coverage of the checkpoint by other cuts
def test_kept_sinks_have_each_window_once_as_if_nothing_had_happened(seed: int) -> None:
    chance = random.Random(seed)
    rules = random_rules(chance)
    story = Story(shops=ShopWindows(pipeline=pipeline(rules)), model=Model(rules))
    tell(chance, story, random_batches(chance, rules) + random_batches(chance, rules))


def test_the_stories_repeat_go_back_and_are_refused() -> None:
    told = Counter[str]()
    for seed in range(20):
        chance = random.Random(seed)
        rules = random_rules(chance)
        story = Story(shops=ShopWindows(pipeline=pipeline(rules)), model=Model(rules))
        tell(chance, story, random_batches(chance, rules) + random_batches(chance, rules))
        told += story.told
    assert all(told[word] > 0 for word in ("kept", "repeated", "back", "refused")), told


@settings(max_examples=cases(20), deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_other_rules_reopen_nothing_and_take_no_row_back(seed: int) -> None:
    chance = random.Random(seed)
    rules = random_rules(chance)
    shops, made, rows = ShopWindows(pipeline=pipeline(rules)), list[Checkpoint](), dict[Key, Any]()
    for batch in random_batches(chance, rules) + random_batches(chance, rules):
        shops.send(batch)
        shops.kill_in = chance.choice([0, chance.randrange(1, 60)])
        made.append(shops.complete())
        emitted = finals(shops.emitted(made[-1], "sold"))
        found = {key_of(row): (row["n"], row["cents"]) for row in emitted}
        assert len(found) == len(emitted), "each window once"
        assert rows.items() <= found.items(), "a row stays as it was emitted"
        rows = found
        if chance.random() < 0.5:
            shops.kill_in = 0
            shops.pipeline = pipeline(replace(rules, delay=chance.choice([0, 4]), lateness=chance.choice([0, 2, 30])))
            with suppress(ConflictError):  # of a checkpoint of another line
                shops.restore(chance.choice(made))


def test_without_the_repetition_a_window_would_have_another_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """The case of the ADR: the record of minute 5 was late, and is not if both batches are one checkpoint."""
    told = []
    for repeats in (True, False):
        shops = ShopWindows(pipeline=pipeline(Rules(size=10)))
        with monkeypatch.context() as patched:
            if not repeats:
                patched.setattr(Recovery, "_repeats_to", lambda *_: 0)
            shops.send([Sent(0, "a", 1, 1), Sent(1, "a", 2, 2)])
            first = shops.complete()
            shops.send([Sent(0, "a", 12, 1), Sent(1, "a", 13, 1)])
            shops.complete()
            shops.send([Sent(0, "a", 5, 1)])
            shops.complete()
            shops.restore(first)
            newest = shops.complete()
            while newest.plan.repeats_to:
                newest = shops.complete()
        told.append(
            ({r["cents"] for r in shops.emitted(newest, "sold")}, {r["cents"] for r in shops.rows(newest, "ever")})
        )
    assert told == [({3}, {3}), ({3}, {4})], "the sink stays, and the fold behind it would differ"


@settings(max_examples=cases(15), deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_timers_fire_once_as_if_nothing_had_happened(seed: int) -> None:
    chance = random.Random(seed)
    rules = timer_cases.random_rules(chance)
    batches = timer_cases.random_batches(chance)
    straight, back = list[Any](), list[Any]()
    for n, batch in enumerate(batches):
        part = [[timer_cases.record(sent) for sent in batch], BARRIER]
        straight += part
        back += [*part, Restore(to=f"chk-{chance.randrange(n + 1) + 1}")] if n == len(batches) // 2 else part
    declared = timer_cases.pipeline(rules)
    one, other = (replay(declared, [*script, [], BARRIER], partitions=2) for script in (straight, back))
    for uid in ("desks.fired", "desks.said", "alarms"):
        assert all_rows(one, uid) == all_rows(other, uid), uid
    for uid in ("desks", "alarms"):
        states = [[{**row, "_changed": 0} for _, row in sorted(done.rows(uid).items())] for done in (one, other)]
        assert states[0] == states[1], uid


def all_rows(done: Replayed, uid: str) -> list[str]:
    """All rows of a sink."""
    newest = done.checkpoints[-1]
    found = next(table for name, table in newest.sinks.items() if table.name == uid.rpartition(".")[2])
    return sorted(repr(sorted(row.items())) for row in done._tables.rows(found.handle))
