"""A sink that cannot send, and a record that Kafka refuses: other sinks go on, and nothing is left out by itself.

Checkpoints, outboxes, store and verbs are the real ones, on disk; only Kafka is the twin of `tests/contract`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from tests.process.test_deliveries import Last, Tick
from tests.process.test_sending import SendingPipeline, ticks
from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext
from tidemark import KafkaSink, KafkaSource, Pipeline, Process
from tidemark.cli.main import build_app
from tidemark.coordinator.checkpoints.backlog import backlogs, refusal_to_skip, skip
from tidemark.coordinator.checkpoints.failure_policy import classify
from tidemark.coordinator.records.refusal_records import Refusals
from tidemark.coordinator.records.states import OpenPlan
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.errors import ConflictError, NotFoundError, RecordRefusedError, UsageError
from tidemark.model.checkpoint.codec import body_of
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.messages import Message, RecordPlace
from tidemark.operations import sinks
from tidemark.settings import load_settings
from tidemark.testing.twin.memory import MemorySender

SECRET = "payload"


@dataclass(frozen=True)
class Note:
    """What is sent: as large as the record says."""

    who: str
    text: str


def noted(who: str, given: Iterator[Tick], last: Last) -> Iterator[Note]:
    """One record each."""
    for tick in given:
        last.times += 1
        yield Note(who, SECRET * tick.n)


def noting(root: Path, topics: Mapping[str, str]) -> DiskPipeline:
    """A line whose processes send one record each per record; the topic by the name of process and sink."""
    operators = [
        Process(name, key_by="who", state=Last, function=noted, emits=Note, sink=KafkaSink(name, topic))
        for name, topic in topics.items()
    ]
    pipeline = Pipeline(name="notes", source=KafkaSource("ticks", Tick), operators=operators)
    line = DiskPipeline(root, pipeline, "ticks", partitions=1)
    for topic in topics.values():
        line.log.create(topic)
    return line


class Broker(MemorySender):
    """The twin, which may also raise what is no error of ours, or let something happen first."""

    def __init__(self) -> None:
        super().__init__()
        self.raises: dict[str, Exception] = {}
        self.before: dict[str, object] = {}

    def send(self, topic: str, messages: Iterable[Message]) -> int:
        if topic in self.raises:
            raise self.raises[topic]
        sent = super().send(topic, messages)
        happens = self.before.pop(topic, None)
        if callable(happens):
            happens()
        return sent

    def ids(self, topic: str) -> list[str]:
        return [m.id for m in self.arrived.get(topic, [])]


@dataclass
class RefusingPipeline:
    """A pipeline with two Kafka sinks, `a` and `b`, to topics of the same names."""

    line: DiskPipeline
    context: DiskContext
    broker: Broker

    def checkpoint(self, *sizes: int) -> None:
        """One checkpoint over one record per size."""
        self.line.send([(0, json.dumps({"who": "w", "n": n}).encode(), 0) for n in sizes])
        self.line.checkpoint()

    def deliver(self) -> int:
        return sinks.deliver(self.context, "notes")

    def backlog(self, sink: str) -> dict[str, object]:
        found: dict[str, object]
        (found,) = (s for s in body_of(sinks.list_sinks(self.context, "notes")) if s["sink"] == sink)
        return found

    def id(self, checkpoint: int, offset: int, uid: str = "a") -> str:
        return f"notes/t1/chk-{checkpoint}/{uid}/ticks-0-{offset}-0"


@pytest.fixture
def refusing(tmp_path: Path) -> RefusingPipeline:
    settings = load_settings(home=str(tmp_path / "home"), warehouse=str(tmp_path / "w"), kafka_bootstrap="127.0.0.1:1")
    line = noting(tmp_path / "w", {"a": "a", "b": "b"})
    context, broker = DiskContext(line, settings), Broker()
    context.outbox = broker
    return RefusingPipeline(line, context, broker)


def test_a_sink_that_cannot_be_sent_to_stops_no_other(refusing: RefusingPipeline) -> None:
    refusing.broker.missing.add("a")
    for size in (1, 2, 3):
        refusing.checkpoint(size)
        with capture_logs() as logged:
            assert refusing.deliver() == 1
        (told,) = [e for e in logged if e["event"] == "records_not_delivered"]
        assert (told["pipeline"], told["sink"], told["topic"], told["checkpoint"]) == ("notes", "a", "a", "chk-1")
        assert "topic a" in told["why"] and told["next"]
    assert refusing.broker.ids("b") == [refusing.id(n, n - 1, "b") for n in (1, 2, 3)]
    assert refusing.broker.ids("a") == []
    refusing.broker.missing.clear()
    assert refusing.deliver() == 3
    assert refusing.broker.ids("a") == [refusing.id(n, n - 1) for n in (1, 2, 3)], "oldest first"
    assert refusing.deliver() == 0


def test_a_foreign_exception_raises_nothing_and_is_kept_in_three_lines(refusing: RefusingPipeline) -> None:
    refusing.broker.raises["a"] = ValueError("no such codec")
    refusing.checkpoint(1)
    assert refusing.deliver() == 1
    told = refusing.backlog("a")["failure"]
    assert isinstance(told, dict)
    assert "ValueError: no such codec" in told["what"] and told["next"] and told["record"] is None
    assert refusing.broker.ids("b") == [refusing.id(1, 0, "b")]


def test_a_store_that_cannot_be_read_raises_nothing_behind_the_manifest(refusing: RefusingPipeline) -> None:
    refusing.checkpoint(1)
    (manifest,) = (refusing.line.root / "notes" / "timelines" / "t1").glob("*.json")
    manifest.write_bytes(b"{}")
    with capture_logs() as logged:
        assert refusing.deliver() == 0
    assert [e["event"] for e in logged] == ["records_not_delivered"]


def test_a_restore_in_between_stops_what_is_left_to_send(refusing: RefusingPipeline) -> None:
    refusing.checkpoint(1)
    refusing.checkpoint(2)
    refusing.broker.before = dict.fromkeys("ab", lambda: _restore(refusing))
    assert refusing.deliver() == 1
    arrived = [*refusing.broker.ids("a"), *refusing.broker.ids("b")]
    assert len(arrived) == 1 and "chk-1" in arrived[0]
    refusing.broker.before.clear()
    refusing.deliver()
    assert refusing.broker.ids("a") == [refusing.id(1, 0)]
    assert refusing.broker.ids("b") == [refusing.id(1, 0, "b")], "chk-2 is of a closed timeline"


def _restore(refusing: RefusingPipeline) -> None:
    asked = RestoreRequest(checkpoint=1).find_restore_point(refusing.line.coordinator)
    Recovery(coordinator=refusing.line.coordinator, pipeline=refusing.line.pipeline).restore(asked)


def test_a_record_that_is_refused_waits_with_all_behind_it_and_the_other_sink_goes_on(
    refusing: RefusingPipeline,
) -> None:
    refusing.broker.largest["a"] = 1_000
    refusing.checkpoint(1, 2, 900, 3)
    refusing.checkpoint(4)
    assert refusing.deliver() == 5
    assert refusing.broker.ids("a") == [refusing.id(1, 0), refusing.id(1, 1)]
    told = refusing.backlog("a")
    assert told["waiting"] == {"checkpoints": ["chk-1", "chk-2"], "records": 5, "since": "2030-03-17T17:46:40Z"}
    failure = told["failure"]
    assert isinstance(failure, dict)
    assert failure["record"] == refusing.id(1, 2) and failure["size"] > 900 * len(SECRET)
    assert f"tidemark sink skip notes a {refusing.id(1, 2)}" in failure["next"]
    assert refusing.backlog("b")["waiting"] == {"checkpoints": [], "records": 0, "since": None}
    for _ in range(3):
        assert refusing.deliver() == 0
    assert refusing.broker.ids("a") == [refusing.id(1, 0), refusing.id(1, 1)], "what has arrived is not sent again"
    assert len(refusing.line.coordinator.objects.list("delivery_failures/")) == 1, (
        "one failure, however often it happens"
    )


def test_once_it_is_skipped_everything_flows_and_every_other_record_arrives_once_in_order(
    refusing: RefusingPipeline,
) -> None:
    refusing.broker.largest["a"] = 1_000
    refusing.checkpoint(1, 900, 2, 901, 3)
    refusing.checkpoint(4)
    for offset in (1, 3):
        refusing.deliver()
        record = refusing.id(1, offset)
        assert not body_of(sinks.skip_record(refusing.context, "notes", "a", record))["skipped"], "a dry run"
        assert refusing.deliver() == 0
        assert body_of(sinks.skip_record(refusing.context, "notes", "a", record, "me", "case 12"))["skipped"]
        assert body_of(sinks.skip_record(refusing.context, "notes", "a", record, "me"))["skipped"], (
            "again, and nothing else happens"
        )
    with capture_logs() as logged:
        assert refusing.deliver() == 4
    assert [(e["sink"], e["checkpoint"], e["records"]) for e in logged if e["event"] == "records_skipped"] == [
        ("a", "chk-1", 2)
    ]
    assert refusing.broker.ids("a") == [*(refusing.id(1, o) for o in (0, 2, 4)), refusing.id(2, 5)]
    assert refusing.deliver() == 0
    letters = body_of(sinks.list_skipped_records(refusing.context, "notes", "a"))
    assert [(r["record"], r["partition"], r["offset"], r["path"]) for r in letters] == [
        (refusing.id(1, 1), "ticks-0", 1, [0]),
        (refusing.id(1, 3), "ticks-0", 3, [0]),
    ]
    assert letters[0]["owner"] == "me" and letters[0]["note"] == "case 12" and "too large" in letters[0]["why"]
    assert body_of(sinks.list_skipped_records(refusing.context, "notes")) == letters
    assert body_of(sinks.list_skipped_records(refusing.context, "notes", "b")) == []
    assert refusing.backlog("a")["skipped"] == 2 and refusing.backlog("a")["failure"] is None


def test_a_topic_that_takes_it_after_all_gets_it(refusing: RefusingPipeline) -> None:
    refusing.broker.largest["a"] = 1_000
    refusing.checkpoint(1, 900, 2)
    refusing.deliver()
    refusing.broker.largest.clear()
    assert refusing.deliver() == 3
    assert refusing.broker.ids("a") == [refusing.id(1, offset) for offset in (0, 1, 2)]


def test_an_outage_in_between_forgets_nothing_of_that(refusing: RefusingPipeline) -> None:
    refusing.broker.largest["a"] = 1_000
    refusing.checkpoint(1, 900, 2)
    refusing.deliver()
    refusing.broker.missing.add("a")
    refusing.deliver()
    refusing.broker.missing.clear()
    refusing.broker.largest.clear()
    refusing.deliver()
    assert refusing.broker.ids("a") == [refusing.id(1, offset) for offset in (0, 1, 2)]


def test_where_other_rows_are_ahead_than_had_arrived_all_are_sent_again(refusing: RefusingPipeline) -> None:
    """An erasure may have rewritten the outbox meanwhile: then the order that was sent proves nothing."""
    refusing.broker.largest["a"] = 1_000
    refusing.checkpoint(1, 900, 2)
    refusing.deliver()
    refusals = Refusals(refusing.line.coordinator.objects)
    (found,) = refusals.failures("a")
    refusals.put_failure(replace(found, ahead="0" * 64))
    refusing.broker.largest.clear()
    refusing.deliver()
    assert refusing.broker.ids("a") == [refusing.id(1, offset) for offset in (0, 0, 1, 2)]


def test_what_is_kept_of_a_refusal_holds_no_payload(refusing: RefusingPipeline) -> None:
    refusing.broker.largest["a"] = 1_000
    refusing.checkpoint(900)
    refusing.deliver()
    body_of(sinks.skip_record(refusing.context, "notes", "a", refusing.id(1, 0), "me"))
    kept = [f for f in (refusing.line.root / "notes").rglob("*.json") if f.parts[-3] in ("skips", "delivery_failures")]
    assert len(kept) == 2 and not [f for f in kept if SECRET in f.read_text()]


def test_only_a_record_that_was_refused_and_still_waits_can_be_skipped(refusing: RefusingPipeline) -> None:
    refusing.broker.largest["a"] = 1_000
    refusing.checkpoint(1, 900)
    refusing.deliver()
    with pytest.raises(UsageError, match="not the id"):
        body_of(sinks.skip_record(refusing.context, "notes", "a", "ticks-0-1-0", "me"))
    for sink, record in (("a", refusing.id(1, 0)), ("b", refusing.id(1, 1)), ("a", refusing.id(7, 1))):
        with pytest.raises(NotFoundError, match="has refused no record"):
            body_of(sinks.skip_record(refusing.context, "notes", sink, record, "me"))
    refusing.broker.largest.clear()
    refusing.deliver()
    with pytest.raises(ConflictError, match="no longer waits"):
        body_of(sinks.skip_record(refusing.context, "notes", "a", refusing.id(1, 1), "me"))
    assert body_of(sinks.list_skipped_records(refusing.context, "notes")) == []


def test_the_commands_show_skip_and_list_what_is_refused(
    refusing: RefusingPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/how-to/keep-state-with-process.md has them typed."""
    for room in ("sink", "sources"):
        monkeypatch.setattr(f"tidemark.cli.{room}.open_context", lambda: refusing.context)
    refusing.broker.largest["a"] = 1_000
    refusing.checkpoint(1, 900, 2)
    refusing.deliver()
    record = refusing.id(1, 1)

    def typed(*words: str) -> str:
        done = CliRunner().invoke(build_app(), ["sink", *words])
        assert done.exit_code == 0, done.output
        return done.output

    told = typed("list", "notes")
    assert f"refuses record {record}" in told and f"tidemark sink skip notes a {record}" in told
    (a, b) = json.loads(typed("list", "notes", "--json"))
    assert a["failure"]["record"] == record and b["waiting"]["checkpoints"] == [] and b["failure"] is None
    assert json.loads(typed("source", "notes", "a", "--checkpoint", "chk-1", "--where", "_offset=1", "--json"))["rows"]
    assert f"tidemark sink skip notes a {record} --execute" in typed("skip", "notes", "a", record)
    assert json.loads(typed("skipped", "notes", "--json")) == []
    assert json.loads(typed("skip", "notes", "a", record, "--note", "case 12", "--execute", "--json"))["skipped"]
    assert record in typed("skipped", "notes") and record in typed("skipped", "notes", "a")
    assert refusing.deliver() == 2
    assert "no record was skipped" in typed("skipped", "notes", "b")


def test_an_id_says_where_a_record_comes_from() -> None:
    place = RecordPlace.parse("p/t1/chk-7/u/a-topic-3-12-0")
    assert (place.checkpoint, place.topic, place.partition, place.offset, place.path) == (7, "a-topic", 3, 12, (0,))


def test_an_attempt_that_sends_fails_for_a_reason_and_its_plan_waits() -> None:
    world = SendingPipeline(ticks())
    world.send("a", "x" * 500, "b")
    world.sender.largest["out"] = 200
    with pytest.raises(RecordRefusedError) as caught:
        world.checkpoint()
    assert classify(caught.value) is FailureReason.RECORD_REFUSED
    assert FailureReason.RECORD_REFUSED.waits and not FailureReason.RECORD_REFUSED.aborts
    report = world.coordinator.record_failure(world.pipeline, world.coordinator.plan_of(1), caught.value)
    assert not report.retry and report.in_a_row == 1 and isinstance(report.state, OpenPlan)
    (backlog,) = backlogs(world.coordinator)
    assert backlog.checkpoints == ("chk-1",) and backlog.failure is not None
    record = "ticks/t1/chk-1/alerts/ticks-0-1-0"
    assert backlog.failure.record == record


def test_an_attempt_that_sends_leaves_out_what_is_skipped() -> None:
    world = SendingPipeline(ticks())
    world.send("a", "x" * 500, "b")
    world.sender.largest["out"] = 200
    for number in (0, 1):
        with pytest.raises(RecordRefusedError):
            world.checkpoint()
        refused = refusal_to_skip(world.coordinator, "alerts", f"ticks/t1/chk-1/alerts/ticks-0-1-{number}")
        assert skip(world.coordinator, refused, "me", "")
    world.sender.arrived.clear()
    done = world.checkpoint()
    assert done.id == 1, "the same plan"
    assert world.arrived() == [f"ticks/t1/chk-1/alerts/ticks-0-{o}-{n}" for o in (0, 2) for n in (0, 1)]
    with pytest.raises(ConflictError):
        refusal_to_skip(world.coordinator, "alerts", "ticks/t1/chk-1/alerts/ticks-0-1-0")


def test_other_code_sends_the_record_under_another_id() -> None:
    """So what was skipped of the old plan is not left out of the new one unseen."""
    world = SendingPipeline(ticks())
    world.send("x" * 500)
    world.sender.largest["out"] = 200
    with pytest.raises(RecordRefusedError):
        world.checkpoint()
    skip(world.coordinator, refusal_to_skip(world.coordinator, "alerts", "ticks/t1/chk-1/alerts/ticks-0-0-0"), "me", "")
    (process, fold) = world.pipeline.operators
    world.pipeline = replace(world.pipeline, operators=[process, replace(fold, uid="counted")])
    with pytest.raises(RecordRefusedError, match="chk-2/alerts/ticks-0-0-0"):
        world.checkpoint()


def test_a_second_skip_of_a_record_loses() -> None:
    world = SendingPipeline(ticks())
    world.send("x" * 500)
    world.sender.largest["out"] = 200
    with pytest.raises(RecordRefusedError):
        world.checkpoint()
    refused = refusal_to_skip(world.coordinator, "alerts", "ticks/t1/chk-1/alerts/ticks-0-0-0")
    assert [skip(world.coordinator, refused, who, "") for who in ("me", "you")] == [True, False]
    assert [r.owner for r in Refusals(world.coordinator.objects).list_skipped("alerts")] == ["me"]
