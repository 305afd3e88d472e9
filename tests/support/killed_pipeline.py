"""Pipelines that tests kill and repair: a real topic, a warehouse, and `tidemark run` in separate processes."""

import json
import os
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import ClassVar

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.kafka import QUIET, Sent, Topics
from tests.support.processes import PATIENCE, Child, Zygote
from tests.support.purchase_history import PurchaseHistory
from tidemark.context import Context
from tidemark.operations import reads, sinks
from tidemark.settings import Settings, load_settings

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", "20240501"))
PARTITIONS = 2
PIPELINES = Path(__file__).parents[1] / "faults" / "pipelines"


class KilledPipeline:
    """A pipeline under test: its topic, its warehouse, and all records that were sent."""

    pipeline: ClassVar[str]

    def __init__(self, topics: Topics, settings: Settings, topic: str, zygote: Zygote) -> None:
        self.topics, self.settings, self.topic, self.told = topics, settings, topic, f"{topic}-told"
        self._zygote = zygote
        self.history = PurchaseHistory(SEED)
        self.context = Context(settings)

    def send(self, count: int = 40) -> None:
        records = [Sent(value, partition=p) for p, value in self.history.batch(count, PARTITIONS)]
        self.topics.produce(self.topic, records)

    def variables(self) -> dict[str, str]:
        """Additional environment variables of commands."""
        return {}

    def started(self, *arguments: str, crash_at: str | None = None) -> Child:
        """Starts a command in a new process."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("TIDEMARK_")}
        env |= {
            "TIDEMARK_HOME": str(self.settings.home),
            "TIDEMARK_PIPELINES": str(PIPELINES),
            "TIDEMARK_KAFKA_BOOTSTRAP": self.settings.kafka_address,
            "TIDEMARK_SPARK": self.settings.spark_address,
            "TIDEMARK_TEST_FAULTS": "1",
            "SWEEP_TOPIC": self.topic,
            "SWEEP_TOLD": self.told,
            **self.variables(),
        }
        if crash_at:
            env["TIDEMARK_CRASH_AT"] = crash_at
        return self._zygote.start(arguments, env)

    def run(self, crash_at: str | None = None) -> subprocess.CompletedProcess[str]:
        return self.started("run", self.pipeline, "--json", crash_at=crash_at).wait()

    def stopped_at(self, point: str) -> Child:
        """A run that has stopped itself at a crash point: still alive, with everything that it holds."""
        client = self.started("run", self.pipeline, "--json", crash_at=f"{point}:1:stop")
        deadline = time.monotonic() + PATIENCE
        while psutil.Process(client.pid).status() != psutil.STATUS_STOPPED:
            assert client.poll() is None, f"{point} was not reached: {client.wait()}"
            assert time.monotonic() < deadline, f"{point} was not reached in time"
            time.sleep(0.05)
        return client

    def repair(self) -> None:
        repaired = self.run()
        assert repaired.returncode == 0, repaired.stderr
        if self.behind():
            # The re-run published the attempt that was sealed before the kill; the next run reads later records.
            again = self.run()
            assert again.returncode == 0, again.stderr
        self.check()

    def behind(self) -> bool:
        read = sum(c.sealed.facts.records for c in reads.list_checkpoints(self.context, self.pipeline))
        return read != len(self.history.sent)

    def check_state(self) -> None:
        """Compares the state and the emitted records with the oracle."""
        raise NotImplementedError

    def check(self) -> None:
        self.check_state()
        chain = reads.list_checkpoints(self.context, self.pipeline)
        assert sum(c.sealed.facts.records for c in chain) == len(self.history.sent)
        assert [c.plan.slot.sequence for c in chain] == list(range(len(chain), 0, -1))
        for later, earlier in zip(chain, chain[1:], strict=False):
            assert later.plan.ranges.breaks_from(earlier.plan.ranges) == []
            assert later.id > earlier.id


class KilledFold(KilledPipeline):
    """The pipeline with folds."""

    pipeline = "sweep"

    def check_state(self) -> None:
        shops = {r["shop"]: r for r in reads.read_state(self.context, "sweep", "shops").to_pylist()}
        assert self.accounts() == self.history.accounts()
        assert _without_change(shops, "shop") == self.history.shops()

    def accounts(self) -> dict[str, dict[str, object]]:
        """The state per account."""
        found = {r["account"]: r for r in reads.read_state(self.context, "sweep", "accounts").to_pylist()}
        return _without_change(found, "account")


class KilledProcess(KilledPipeline):
    """The pipeline with a process that emits to a table, and another that sends its rows to a topic at least once."""

    pipeline = "purchases"

    def check_state(self) -> None:
        seen = {r["account"]: r for r in reads.read_state(self.context, "purchases", "large").to_pylist()}
        assert {
            key: {"large": row["large"], "by_shop": dict(row["by_shop"])} for key, row in seen.items()
        } == self.history.seen()
        rows = sinks.read_sink(self.context, "purchases", "large").to_pylist()
        told = sorted((r["account"], r["cents"], r["_partition"], r["_offset"]) for r in rows)
        assert told == self.history.large(), "each record exactly once, and none from an attempt that died"
        # Barriers decide which of an account's purchases is its third; but exactly one of them is.
        numbers = Counter((r["account"], r["nth"]) for r in rows)
        assert numbers == {(key, n + 1): 1 for key, row in self.history.seen().items() for n in range(row["large"])}
        # Records of a killed attempt may be sent again, with the same ids, so each id denotes one record.
        sent = {id_.rpartition("/")[2]: (id_, json.loads(value)) for id_, value in self.sent()}
        assert len({id_ for id_, _ in self.sent()}) == len(sent) == len(rows)
        assert sorted((v["account"], v["cents"]) for _, v in sent.values()) == sorted(row[:2] for row in told)

    def sent(self) -> list[tuple[str, bytes]]:
        """The ids and values of all records in the topic of the Kafka sink."""
        consumer = Consumer({"bootstrap.servers": self.topics.bootstrap, "group.id": "sweep", **QUIET})
        consumer.assign([TopicPartition(self.told, 0, 0)])
        _, end = consumer.get_watermark_offsets(TopicPartition(self.told, 0), timeout=10)
        found: list[tuple[str, bytes]] = []
        while len(found) < end and (message := consumer.poll(10)) is not None:
            id_ = dict(message.headers() or [])["tidemark-id"]
            assert isinstance(id_, bytes)
            found.append((id_.decode(), message.value() or b""))
        consumer.close()
        return found


def _without_change(rows: dict[str, dict[str, object]], key: str) -> dict[str, dict[str, object]]:
    return {k: {n: v for n, v in row.items() if n not in (key, "_changed")} for k, row in rows.items()}


class KilledPipelines:
    """Creates pipelines on one broker and one Spark server, each with its own topic and warehouse."""

    def __init__(
        self, topics: Topics, broker: str, spark: str, factory: pytest.TempPathFactory, zygote: Zygote
    ) -> None:
        self._topics, self._broker, self._spark, self._factory = topics, broker, spark, factory
        self._zygote = zygote

    def make(self, kind: type[KilledPipeline], **more: str) -> KilledPipeline:
        """Creates a pipeline and sends its first batch of records; `more` are additional settings."""
        topic = self._topics.make(partitions=PARTITIONS)
        os.environ |= {"SWEEP_TOPIC": topic, "SWEEP_TOLD": self._topics.make(f"{topic}-told")}
        settings = load_settings(
            home=str(self._factory.mktemp("sweep")),
            pipelines=str(PIPELINES),
            kafka_bootstrap=self._broker,
            spark=self._spark,
            **more,
        )
        made = kind(self._topics, settings, topic, self._zygote)
        made.send()
        return made
