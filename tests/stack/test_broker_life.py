"""One broker through its life: up, up again, killed, up, down. The tests run in this order and share the home."""

import os
import signal
import socket

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from devstack import processes
from devstack.control import ServiceStatus, down, log_lines, status, up
from tests.stack.homes import listening, processes_of
from tidemark.embedded_services import recorded_service
from tidemark.errors import NotFoundError, TidemarkError, UsageError
from tidemark.settings import Settings

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

RECORDS = 500


def _kafka(statuses: list[ServiceStatus]) -> ServiceStatus:
    return next(one for one in statuses if one.name == "kafka")


def _pid(settings: Settings) -> int:
    pid = _kafka(status(settings)).pid
    assert pid is not None
    return pid


def test_nothing_runs_in_an_empty_home(shared_settings: Settings) -> None:
    assert {one.state for one in status(shared_settings)} == {"stopped"}
    with pytest.raises(UsageError, match="not running") as caught:
        _ = shared_settings.kafka_address
    assert "tidemark up --only kafka" in caught.value.next


def test_up_ignores_what_a_killed_format_left(shared_settings: Settings) -> None:
    leftover = shared_settings.home / "kafka" / "data.partial" / "__cluster_metadata-0"
    leftover.mkdir(parents=True)
    (leftover / "half.log").write_bytes(b"\0" * 100)

    told: list[str] = []
    statuses = up(shared_settings, ["kafka"], told.append)

    # Another checkout's `up` may hold the lock of the ports meanwhile.
    assert [line for line in told if line.startswith("kafka")] == ["kafka: starting", "kafka: healthy"]
    assert _kafka(statuses).state == "running"
    assert _kafka(statuses).address == shared_settings.kafka_address
    assert {one.state for one in statuses if one.group != "kafka"} == {"stopped"}


def test_up_twice_starts_nothing(shared_settings: Settings) -> None:
    before = _pid(shared_settings)
    told: list[str] = []
    up(shared_settings, ["kafka"], told.append)
    assert _pid(shared_settings) == before
    assert told == ["kafka: already running"]


def test_a_broker_killed_by_surprise_is_stale_and_its_records_survive(shared_settings: Settings) -> None:
    address = shared_settings.kafka_address
    _fill(address)
    os.kill(_pid(shared_settings), signal.SIGKILL)
    assert processes.wait_until(lambda: _kafka(status(shared_settings)).state == "stale", _soon())
    assert recorded_service(shared_settings.home, "kafka") is None

    up(shared_settings, ["kafka"])

    assert shared_settings.kafka_address == address
    assert _count(address) == RECORDS
    assert (shared_settings.home / "logs" / "kafka.log.1").exists()


def test_a_taken_port_is_left_to_its_holder(shared_settings: Settings) -> None:
    address = shared_settings.kafka_address
    taken = int(address.rpartition(":")[2])
    down(shared_settings)
    assert not listening(taken)
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", taken))
        holder.listen()
        up(shared_settings, ["kafka"])
        assert shared_settings.kafka_address != address
        assert _count(shared_settings.kafka_address) == RECORDS


def test_logs_are_told_by_name(shared_settings: Settings) -> None:
    assert any("started" in line for line in log_lines(shared_settings, "kafka"))
    with pytest.raises(NotFoundError, match="there is no log") as caught:
        log_lines(shared_settings, "../stack.json")
    assert "kafka" in caught.value.next


def test_down_leaves_no_process_and_no_port(shared_settings: Settings) -> None:
    port = int(shared_settings.kafka_address.rpartition(":")[2])
    assert processes_of(shared_settings.home)

    statuses = down(shared_settings)

    assert {one.state for one in statuses} == {"stopped"}
    assert processes_of(shared_settings.home) == []
    assert not listening(port)
    assert down(shared_settings) == statuses


def test_a_broker_that_cannot_start_is_told_with_its_log_and_leaves_nothing(shared_settings: Settings) -> None:
    meta = shared_settings.home / "kafka" / "data" / "meta.properties"
    whole = meta.read_text()
    meta.write_text("version=1\nnode.id=77\n")
    try:
        with pytest.raises(TidemarkError, match="kafka ended; the end of its log") as caught:
            up(shared_settings, ["kafka"])
        assert "tidemark logs kafka" in str(caught.value)
        assert processes_of(shared_settings.home) == []
        assert _kafka(status(shared_settings)).state == "stopped"
    finally:
        meta.write_text(whole)


def _soon() -> float:
    import time

    return time.monotonic() + 10


def _fill(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})  # held: its futures die with it
    admin.create_topics([NewTopic("kept", 1)])["kept"].result()
    producer = Producer({"bootstrap.servers": address, "acks": "all"})
    for number in range(RECORDS):
        producer.produce("kept", str(number))
    assert producer.flush(30) == 0


def _count(address: str) -> int:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "count"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition("kept", 0), timeout=20)
        return int(high - low)
    finally:
        consumer.close()
