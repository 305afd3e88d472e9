"""State in a compacted topic of a real broker: read from its start, it is the state of its checkpoint."""

import itertools
import json
import os
import random
import re
import shlex
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.cli.test_savepoint_page import AIRCRAFT, README, ROOT, _block, _flight
from tests.publications.published_ward import NAME
from tests.publications.topic_ward import TopicWard
from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import commands_over
from tidemark.errors import TargetChangedError, UsageError
from tidemark.kafka import compacted_topic
from tidemark.kafka.compacted_topic import CompactedTopic
from tidemark.operations.publications import publishing

pytestmark = pytest.mark.kafka
SEED = int(os.environ.get("TIDEMARK_TEST_SEED", "20261129"))
KEPT = "kept-topic"
PAGE = ROOT / "docs/how-to/publish-to-a-compacted-topic.md"


@pytest.fixture
def ward(tmp_path: Path, broker: str) -> TopicWard:
    print(f"seed {SEED}; TIDEMARK_TEST_SEED={SEED}")
    made = TopicWard(tmp_path, random.Random(SEED), broker)
    made.checkpoint()
    return made


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
    assert len(ward.rows("sensors")) == 2, "readers of committed records do not wait for the transaction that broke off"
    monkeypatch.setattr(compacted_topic.TopicWriter, "_produce", produce)
    assert ward.published("sensors") == ["rebuild"]


def test_topics_of_others_are_left_alone_until_a_rebuild_may_replace_their_rows(ward: TopicWard) -> None:
    admin = AdminClient({"bootstrap.servers": ward.broker})
    for topic, policy in ((ward.topic("kept"), "compact"), (ward.topic("fresh"), "delete")):
        admin.create_topics([NewTopic(topic, 2, config={"cleanup.policy": policy})])[topic].result(10)
    with pytest.raises(UsageError, match="cleanup.policy=delete"):
        publishing.publish(ward.context, NAME, "fresh-topic")
    # Others may partition by another hash: their key, and one of ours, lie in every partition.
    (ours,) = (row["sensor"] for row in ward.expected(1, "kept"))
    producer = Producer({"bootstrap.servers": ward.broker})
    for partition, sensor in itertools.product((0, 1), ("theirs", ours)):
        there = json.dumps({"sensor": sensor}, separators=(",", ":")).encode()
        producer.produce(ward.topic("kept"), there, there, partition=partition)
    producer.flush(10)
    with pytest.raises(TargetChangedError, match="has not written"):
        publishing.publish(ward.context, NAME, KEPT)
    publishing.rebuild(ward.context, NAME, KEPT, replaces_others=True)
    made = CompactedTopic(bootstrap=ward.broker, topic=ward.topic("kept"), application=f"tidemark/{NAME}/{KEPT}")
    assert sum(value is not None for value in dict(made.records()).values()) == 1, "one place per key has a value"
    ward.compare("kept")
    assert publishing.verify(ward.context, NAME, KEPT).equal
    ward.checkpoint()
    assert ward.published("kept") == ["difference"]


def test_more_partitions_move_keys_so_only_a_rebuild_continues(ward: TopicWard) -> None:
    ward.published("kept")
    admin = AdminClient({"bootstrap.servers": ward.broker})
    count = len(admin.list_topics(ward.topic("kept"), timeout=10).topics[ward.topic("kept")].partitions)
    admin.create_partitions([NewPartitions(ward.topic("kept"), count + 5)])[ward.topic("kept")].result(10)
    ward.checkpoint()
    with pytest.raises(TargetChangedError, match=f"had {count} partitions and has {count + 5}"):
        publishing.publish(ward.context, NAME, KEPT)
    publishing.rebuild(ward.context, NAME, KEPT)
    ward.compare("kept")
    assert publishing.verify(ward.context, NAME, KEPT).equal


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
    assert {json.loads(key)["tail_number"] for (_, key), _ in made.records()} == set(AIRCRAFT)
