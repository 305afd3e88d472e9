"""A broker that has just started: the coordinators of groups are elected while we ask for their offsets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.kafka_broker import running_broker

pytestmark = pytest.mark.kafka

ASK = """
import sys
from tidemark.kafka.log import KafkaLog
from tidemark.model.core.offsets import TopicPartition

log = KafkaLog(sys.argv[1])
for number in range(40):
    assert log.group_offsets(f"group-{number}", [TopicPartition("nowhere", 0)]) == {}
print("answered")
"""


def test_group_offsets_are_answered_while_coordinators_are_elected(tmp_path: Path) -> None:
    """In a process of its own: librdkafka's admin request for them ends the process with a segmentation fault."""
    with running_broker(tmp_path / "broker") as broker:
        asked = subprocess.run(
            [sys.executable, "-c", ASK, broker.address],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert (asked.returncode, asked.stdout) == (0, "answered\n"), asked.stderr
