"""`guarantee="at_least_once"`: attempts send to the topic themselves, after the gate and before the seal (D9)."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.process.test_deliveries import Alert, Last, Tick, alert
from tests.support.memory import MemoryPipeline
from tidemark import Fold, KafkaSink, KafkaSource, Pipeline, Process, state
from tidemark.coordinator.checkpoints.loop import CheckpointLoop, list_undelivered
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.refusal_records import Refusals
from tidemark.errors import BrokerError, DeclarationError, FencedError, GateFailedError, NotFoundError
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed, Verdict
from tidemark.model.checkpoint.messages import commit_id, emitted_rows
from tidemark.operations.replay import Rehearsal
from tidemark.operations.sinks import sink_of
from tidemark.ports import PlanRequest
from tidemark.sinks.known_sinks import stored_sink
from tidemark.sinks.sink import Services
from tidemark.testing import BARRIER, CRASH, replay
from tidemark.testing.twin.memory import (
    Feed,
    ManualClock,
    MemoryCompute,
    MemorySender,
)

Guarantee = Literal["exactly_once_by_id", "at_least_once"]
STEPS = ["process.alerts", "fold.alerts", "runs.alerts", "gate", "fsync", "sent.alerts", "seal", "publish"]


class Count(state.Keyed):
    """Behind the process, so that its rows are used twice."""

    n: int = state.count()


def ticks(guarantee: Guarantee = "at_least_once", name: str = "alerts") -> Pipeline:
    """Two alerts for every tick."""
    sink = KafkaSink(name, "out", key_by="who", guarantee=guarantee)
    process = Process("alerts", key_by="who", state=Last, function=alert, emits=Alert, sink=sink)
    told = Fold("told", key_by="who", state=Count, input="alerts")
    return Pipeline(name="ticks", source=KafkaSource("ticks", Tick), operators=[process, told])


@dataclass
class SendingPipeline(MemoryPipeline):
    """A line in memory whose declaration, gate and broker may change between checkpoints."""

    pipeline: Pipeline
    clock: ManualClock = field(default_factory=lambda: ManualClock(1), kw_only=True)
    sender: MemorySender = field(default_factory=MemorySender)
    verdict: Verdict = field(default_factory=Verdict)
    told: list[str] = field(default_factory=list)
    meanwhile: dict[str, Callable[[], object]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.feed = Feed(self.pipeline, self.log, 1)

    def send(self, *names: str) -> None:
        for name in names:
            self.feed.send(Tick(name, 1), 1)

    def execute(self, attempt: Any) -> Sealed:
        compute = MemoryCompute(
            pipeline=self.pipeline, log=self.log, tables=self.tables, judge=lambda plan, runs: self.verdict
        )
        skipped = Refusals(self.coordinator.objects).skipped_ids
        job = self.checkpoint_job(compute, self.at, max_dead_letters=1.0, sender=self.sender, skipped=skipped)
        return job.execute(attempt)

    def at(self, step: str, moment: str) -> None:
        self.told.append(f"{step}:{moment}")
        self.meanwhile.pop(f"{step}:{moment}", lambda: None)()

    def checkpoint(self, timeline: str | None = None) -> Checkpoint:
        loop = CheckpointLoop(
            coordinator=self.coordinator, pipeline=self.pipeline, execute=self.execute, timeline=timeline
        )
        return loop.run_once(PlanRequest(origin="test")).checkpoints[-1]

    def arrived(self) -> list[str]:
        return [m.id for m in self.sender.arrived.get("out", [])]


def test_records_are_sent_in_order_with_key_value_and_id_and_nothing_is_stored() -> None:
    world = SendingPipeline(ticks())
    world.send("a", "b")
    done = world.checkpoint()
    assert [(m.key, json.loads(m.value)["n"], m.id) for m in world.sender.arrived["out"]] == [
        (b"a", 1, "ticks/t1/chk-1/alerts/ticks-0-0-0"),
        (b"a", None, "ticks/t1/chk-1/alerts/ticks-0-0-1"),
        (b"b", 1, "ticks/t1/chk-1/alerts/ticks-0-1-0"),
        (b"b", None, "ticks/t1/chk-1/alerts/ticks-0-1-1"),
    ]
    ack = done.ack("alerts")
    assert ack is not None and ack.emitted == 4 and not ack.sink
    assert not [path for path in world.tables.files if "/outbox/" in path]
    assert not list_undelivered(world.coordinator)


def test_both_guarantees_send_the_same_bytes_with_the_same_ids() -> None:
    """What the outbox would send, by the rows that it keeps."""
    at_once, later = SendingPipeline(ticks()), SendingPipeline(ticks("exactly_once_by_id"))
    for world in (at_once, later):
        world.send("a", "b", "a")
        world.checkpoint()
    assert later.arrived() == []
    (due,) = list_undelivered(later.coordinator)
    rows = sorted(later.tables.rows(due.table.handle), key=lambda r: (r["_offset"], r["_path"]))
    plan, sink = due.checkpoint.plan, stored_sink(due.table)
    assert sink is not None
    sink.write(emitted_rows(plan, due.table, rows), commit_id(plan), Services(kafka=later.sender))
    assert later.sender.arrived["out"] == at_once.sender.arrived["out"]


def test_sending_is_the_last_step_before_the_seal() -> None:
    world = SendingPipeline(ticks())
    world.send("a")
    world.checkpoint()
    assert world.told[-6:] == [
        "fsync:before",
        "fsync:after",
        "sent.alerts:before",
        "sent.alerts:after",
        "seal:before",
        "seal:after",
    ]
    world.told.clear()
    world.checkpoint()
    assert not [point for point in world.told if point.startswith("sent")], "nothing was emitted"


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_loses_no_record_and_a_retry_repeats_ids(step: str, moment: str) -> None:
    script: list[Any] = [[Tick("a", 1), Tick("b", 2)], CRASH.at(step, moment), BARRIER, [Tick("a", 3)], BARRIER]
    done = replay(ticks(), script)
    assert done.crashes == 1
    ids = Counter(name for name, _ in done.sent("out"))
    places = {(0, 0): 1, (0, 1): 1, (1, 0): 1, (1, 1): 1, (2, 0): 2, (2, 1): 2}
    assert set(ids) == {f"ticks/t1/chk-{chk}/alerts/ticks-0-{o}-{n}" for (o, n), chk in places.items()}
    twice = {f"ticks/t1/chk-1/alerts/ticks-0-{o}-{n}" for o in (0, 1) for n in (0, 1)}
    repeated = (step, moment) in (("sent.alerts", "after"), ("seal", "before"))
    assert {name for name, count in ids.items() if count > 1} == (twice if repeated else set())
    assert done.state("alerts")["a"].times == 2
    assert done.state("told")["a"].n == 4


KILLS = st.tuples(st.sampled_from(["gate", "fsync", "sent.alerts"]), st.sampled_from(["before", "after"]))


@settings(max_examples=60, deadline=None, print_blob=True)
@given(st.lists(st.tuples(st.integers(1, 4), st.lists(KILLS, max_size=3)), min_size=1, max_size=4))
def test_however_often_attempts_die_each_id_of_a_completed_checkpoint_arrives_and_no_other(parts: Any) -> None:
    script: list[Any] = []
    expected: dict[str, int] = {}
    offset = 0
    for chk, (count, kills) in enumerate(parts, start=1):
        script += [[Tick("a", n) for n in range(count)], *(CRASH.at(*kill) for kill in kills), BARRIER]
        sent = 1 + kills.count(("sent.alerts", "after"))
        for _ in range(count):
            expected |= {f"ticks/t1/chk-{chk}/alerts/ticks-0-{offset}-{n}": sent for n in (0, 1)}
            offset += 1
    assert Counter(name for name, _ in replay(ticks(), script).sent("out")) == expected


def test_a_broker_that_fails_fails_the_attempt_and_the_state_stays() -> None:
    world = SendingPipeline(ticks())
    world.send("a")
    before = world.checkpoint()
    world.send("b", "c")
    world.sender.accepts = 3
    with pytest.raises(BrokerError, match="topic out"):
        world.checkpoint()
    assert next(world.coordinator.checkpoints()).id == before.id
    world.sender.accepts = None
    assert world.checkpoint().id == before.id + 1, "the same plan, tried again"
    ids = Counter(world.arrived()[2:])
    assert sorted(ids.values()) == [1, 2, 2, 2]


def test_a_gate_that_fails_sends_nothing() -> None:
    world = SendingPipeline(ticks())
    world.send("a")
    world.verdict = Verdict(passed=False, error="no")
    with pytest.raises(GateFailedError):
        world.checkpoint()
    assert world.arrived() == []


def test_a_revoked_attempt_sends_nothing() -> None:
    world = SendingPipeline(ticks())
    world.send("a")
    found: list[list[str]] = []

    def overtaken() -> None:
        world.checkpoint()
        found.append(world.arrived())

    world.meanwhile["fsync:after"] = overtaken
    with pytest.raises(FencedError):
        world.checkpoint()
    assert [world.arrived()] == found
    assert len(world.arrived()) == 2


def test_a_missing_topic_is_told_before_anything_is_planned() -> None:
    world = SendingPipeline(ticks())
    world.log.delete("out")
    world.send("a")
    with pytest.raises(NotFoundError, match="no topic out of sink alerts"):
        world.checkpoint()
    assert world.told == [] and not list(world.store.list("ids/"))
    world.log.create("out")
    assert world.checkpoint().id == 1


def test_a_timeline_that_is_not_live_does_not_send() -> None:
    world = SendingPipeline(ticks())
    world.send("a")
    first = world.checkpoint()
    world.send("b")
    fork = "fork"
    world.recovery.fork(RestorePoint(checkpoint=first), fork)
    sent = world.arrived()
    forked = world.checkpoint(fork)
    ack = forked.ack("alerts")
    assert forked.plan.slot.timeline == fork and ack is not None and ack.emitted == 2
    assert world.arrived() == sent
    assert not [point for point in world.told[-8:] if point.startswith("sent")]
    live = world.checkpoint()
    assert [name.split("/")[1] for name in world.arrived()[len(sent) :]] == ["t1", "t1"]
    assert live.plan.slot.timeline == "t1"


def test_a_checkpoint_that_is_computed_again_does_not_send() -> None:
    world = SendingPipeline(ticks())
    world.send("a")
    done = world.checkpoint()
    sent = world.arrived()
    world.execute(Rehearsal(done.plan, "ticks/scratch/1"))
    assert world.arrived() == sent


def test_what_waits_in_an_outbox_is_still_due_after_the_guarantee_has_changed() -> None:
    world = SendingPipeline(ticks("exactly_once_by_id"))
    world.send("a")
    world.checkpoint()
    world.pipeline = ticks()
    world.send("b")
    world.checkpoint()
    world.send("c")
    world.checkpoint()
    assert [name.split("/")[2] for name in world.arrived()] == ["chk-2", "chk-2", "chk-3", "chk-3"]
    assert [due.checkpoint.id for due in list_undelivered(world.coordinator)] == [1]
    world.pipeline = ticks("exactly_once_by_id")
    world.send("d")
    world.checkpoint()
    assert [due.checkpoint.id for due in list_undelivered(world.coordinator)] == [1, 4]


def test_a_sink_that_keeps_nothing_says_so_when_it_is_read() -> None:
    world = SendingPipeline(ticks())
    world.send("a")
    with pytest.raises(NotFoundError, match="keeps no rows") as caught:
        sink_of(world.checkpoint(), "alerts")
    assert "topic out" in caught.value.next


def test_declarations_that_make_no_sense_are_refused() -> None:
    with pytest.raises(DeclarationError, match="guarantee='none'"):
        KafkaSink("alerts", "out", guarantee="none")  # type: ignore[arg-type]
    alerts = ticks().operators[0]
    assert isinstance(alerts, Process)
    with pytest.raises(DeclarationError, match="key_by='nobody' of its sink is not an emitted field"):
        replace(alerts, sink=KafkaSink("alerts", "out", key_by="nobody"))
