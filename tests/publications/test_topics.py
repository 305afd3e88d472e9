"""State in a compacted topic of a real broker: read from its start, it is the state of its checkpoint."""

import json
import os
import random
import re
import shlex
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cli.test_savepoint_page import AIRCRAFT, README, ROOT, _block, _flight
from tests.publications.published_ward import NAME, UIDS, PublishedWard, rows_by
from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import commands_over
from tidemark.errors import BrokerError, TargetChangedError, UsageError
from tidemark.kafka import compacted_topic
from tidemark.kafka.client import RESOURCES
from tidemark.kafka.compacted_topic import CompactedTopic
from tidemark.operations.publications import publishing
from tidemark.publications.operator_states import OperatorStates

pytestmark = pytest.mark.kafka
SEED = int(os.environ.get("TIDEMARK_TEST_SEED", "20261129"))
KEPT = "kept-topic"
PAGE = ROOT / "docs/how-to/publish-to-a-compacted-topic.md"


class TopicWard(PublishedWard):
    """A ward that publishes to topics of its own."""

    def __init__(self, folder: Path, chance: random.Random, broker: str) -> None:
        self.prefix, self.broker = uuid4().hex[:8], broker
        super().__init__(folder, chance, broker)

    def target(self, uid: str) -> str:
        """The declaration of an operator's target."""
        return f'KafkaUpsert("{self.topic(uid)}")'

    def topic(self, uid: str) -> str:
        """The topic of an operator."""
        return f"{self.prefix}.{uid}"

    def progress(self, uid: str) -> Any:
        """The progress of an operator's publication."""
        made = CompactedTopic(bootstrap=self.broker, topic=self.topic(uid), application=f"tidemark/{NAME}/{uid}-topic")
        return made.progress()

    def rows(self, uid: str) -> dict[str, Any]:
        """What a consumer of committed records has when it has read the topic from its start."""
        settings = {"bootstrap.servers": self.broker, "group.id": uuid4().hex, "isolation.level": "read_committed"}
        consumer, found = Consumer(settings | {"enable.partition.eof": True}), dict[str, Any]()
        try:
            left = set(consumer.list_topics(self.topic(uid)).topics[self.topic(uid)].partitions)
            consumer.assign([TopicPartition(self.topic(uid), n, 0) for n in left])
            while left:
                message = consumer.poll(10)
                assert message is not None
                if message.error() is not None:
                    left.discard(message.partition())
                    continue
                key, value = json.loads(message.key() or b""), message.value()
                found.pop(key["sensor"], None)
                if value is not None:
                    found[key["sensor"]] = json.loads(value)
        finally:
            consumer.close()
        return found

    def published(self, uid: str) -> list[str]:
        """Publishes and compares; returns the modes of the steps."""
        made = publishing.publish(self.context, NAME, f"{uid}-topic")
        self.compare(uid)
        return [step.mode for step in made]

    def compare(self, uid: str) -> None:
        """The topic has the state of the checkpoint in its progress."""
        expected = rows_by(self.expected(self.progress(uid).checkpoint, uid))
        assert self.rows(uid) == json.loads(json.dumps(expected))


@pytest.fixture
def ward(tmp_path: Path, broker: str) -> TopicWard:
    print(f"seed {SEED}; TIDEMARK_TEST_SEED={SEED}")
    made = TopicWard(tmp_path, random.Random(SEED), broker)
    made.checkpoint()
    return made


def test_a_state_that_exists_is_published_as_a_whole_then_by_differences(ward: TopicWard) -> None:
    for _ in range(3):
        modes = [ward.published(uid) for uid in UIDS]
        ward.checkpoint()
    assert modes == [["difference"]] * 3
    settings = AdminClient({"bootstrap.servers": ward.broker})
    resource = RESOURCES(RESOURCES.Type.TOPIC, ward.topic("kept"))
    assert settings.describe_configs([resource])[resource].result(10)["cleanup.policy"].value == "compact"


@pytest.mark.parametrize("step", ["publish.begun", "publish.target", "publish.done"])
def test_a_publisher_that_is_killed_anywhere_is_finished_by_the_next(ward: TopicWard, step: str) -> None:
    for when in ("before", "after"):
        ward.kill("kept", step, when)
        ward.checkpoint()
        ward.published("kept")
        ward.checkpoint()
    begun = ward.steps("kept").newest(KEPT)
    assert begun is not None and ward.progress("kept").step == begun.number


def test_a_rebuild_of_several_transactions_that_breaks_off_is_finished(
    ward: TopicWard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacted_topic, "_PER_TRANSACTION", 1)
    ward.checkpoint()
    assert len(ward.expected(2, "sensors")) > 2
    produce, left = compacted_topic.TopicWriter._produce, [2]

    def breaks(writer: Any, *of: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("killed")
        produce(writer, *of)

    monkeypatch.setattr(compacted_topic.TopicWriter, "_produce", breaks)
    with pytest.raises(RuntimeError):
        publishing.publish(ward.context, NAME, "sensors-topic")
    monkeypatch.setattr(compacted_topic.TopicWriter, "_produce", produce)
    assert ward.published("sensors") == ["rebuild"]


def test_of_publishers_at_once_each_step_is_made_and_the_last_one_wins(ward: TopicWard) -> None:
    def publish() -> None:
        try:
            publishing.publish(ward.context, NAME, KEPT)
        except Exception as error:
            print(type(error).__name__)

    for _ in range(3):
        rivals = [threading.Thread(target=publish) for _ in range(3)]
        for rival in rivals:
            rival.start()
        for rival in rivals:
            rival.join()
        ward.published("kept")
        ward.checkpoint()


def test_a_zombie_that_wakes_after_two_more_steps_changes_nothing(
    ward: TopicWard, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward.published("kept")
    ward.checkpoint()
    difference = OperatorStates.difference

    def overtaken(states: OperatorStates, *of: Any) -> Any:
        found = difference(states, *of)
        monkeypatch.setattr(OperatorStates, "difference", difference)
        ward.published("kept")
        ward.checkpoint()
        ward.published("kept")
        return found

    monkeypatch.setattr(OperatorStates, "difference", overtaken)
    with pytest.raises((BrokerError, Exception), match=r"has begun since|fenced"):
        publishing.publish(ward.context, NAME, KEPT)
    ward.compare("kept")
    assert ward.progress("kept").step == 3


def test_erasures_restores_and_declarations_are_followed(ward: TopicWard) -> None:
    ward.checkpoint()
    ward.published("sensors")
    gone = next(iter(ward.rows("sensors")))
    ward.erase(gone, "sensors")
    assert ward.published("sensors") == ["difference"]
    assert gone not in ward.rows("sensors")
    ward.checkpoint()
    ward.published("sensors")
    ward.restore(2)
    ward.checkpoint()
    assert ward.published("sensors") == ["difference"]
    ward.declare(
        lambda text: text.replace("    total: int |", '    highest: int | None = state.max("room")\n    total: int |')
    )
    ward.checkpoint()
    assert ward.published("sensors") == ["rebuild"]


def test_topics_of_others_are_left_alone_until_a_rebuild_may_replace_their_rows(ward: TopicWard) -> None:
    admin = AdminClient({"bootstrap.servers": ward.broker})
    for topic, policy in ((ward.topic("kept"), "compact"), (ward.topic("fresh"), "delete")):
        admin.create_topics([NewTopic(topic, 2, config={"cleanup.policy": policy})])[topic].result(10)
    with pytest.raises(UsageError, match="cleanup.policy=delete"):
        publishing.publish(ward.context, NAME, "fresh-topic")
    producer = Producer({"bootstrap.servers": ward.broker})
    producer.produce(ward.topic("kept"), b'{"sensor":"theirs"}', b'{"sensor":"theirs"}')
    producer.flush(10)
    with pytest.raises(TargetChangedError, match="has not written"):
        publishing.publish(ward.context, NAME, KEPT)
    publishing.rebuild(ward.context, NAME, KEPT, replaces_others=True)
    ward.compare("kept")
    assert publishing.verify(ward.context, NAME, KEPT).equal
    ward.checkpoint()
    assert ward.published("kept") == ["difference"]


def test_progress_that_has_expired_is_that_of_the_records(ward: TopicWard) -> None:
    ward.published("kept")
    group = f"tidemark/{NAME}/{KEPT}"
    admin = AdminClient({"bootstrap.servers": ward.broker})
    admin.delete_consumer_groups([group], request_timeout=60)[group].result(60)
    assert ward.progress("kept") is None
    ward.checkpoint()
    assert ward.published("kept") == ["difference"]


def test_every_command_of_the_page_works_in_its_order(tmp_path: Path, broker: str) -> None:
    topic = f"{uuid4().hex[:8]}.aircraft"
    declared = _block(PAGE, "python", "publish=").strip()
    source = _block(README, "python", "Pipeline(").replace("import DeltaMirror", "import KafkaUpsert")
    source = re.sub(r'Fold\("aircraft".*(?=,\n)', lambda _: declared, source).replace(
        'KafkaUpsert("aircraft")', f'KafkaUpsert("{topic}")'
    )
    tidemark = Command(tmp_path, broker, "sc://127.0.0.1:1")
    tidemark.declare(source, file="flights.py")
    line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("flights"), "flights")
    line.send([(0, _flight(n), n) for n in range(9)])
    line.checkpoint()
    blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    with commands_over(line):
        told = {text: tidemark(*shlex.split(text)[1:]).ok() for block in blocks for text in block.splitlines()}
    assert len(told) == 5 and "equal" in told["tidemark publication verify flights aircraft-topic"].out
    made = CompactedTopic(bootstrap=broker, topic=topic, application="tidemark/flights/aircraft-topic")
    assert {json.loads(key)["tail_number"] for key, _ in made.rows()} == set(AIRCRAFT)
