"""Pipelines whose sinks change from one run to the next, over parts in memory, and a broker that may be down."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from tests.support.memory import MemoryPipeline
from tidemark import DeltaSink, Fold, KafkaSink, KafkaSource, Pipeline, Process, state
from tidemark.coordinator.checkpoints.job import CheckpointJob
from tidemark.declare.operators import Operator
from tidemark.errors import BrokerError, StoreError
from tidemark.model.checkpoint.messages import Message
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.model.core.offsets import TopicPartition
from tidemark.ports import StepListener
from tidemark.testing.twin.key_files import MemoryKeyFiles
from tidemark.testing.twin.table_files import MemoryTableFiles

TOPIC = "payments"
P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
COPIES = (1, 2, 0)


@dataclass(frozen=True)
class Payment:
    """One record."""

    account: str | None
    serial: int


class Account(state.Keyed):
    """What is folded."""

    payments: int = state.count()
    serials: int | None = state.sum("serial")


class Count(state.Keyed):
    """What a process remembers."""

    payments: int = state.value(0)
    serials: int = state.value(0)


@dataclass(frozen=True)
class Told:
    """What is emitted."""

    serial: int


@dataclass(frozen=True)
class ToldMore:
    """The same with a field that was added later."""

    serial: int
    account: str | None


def tell(account: str, payments: Iterator[Payment], count: Count) -> Iterator[Told]:
    """As many rows as the number says."""
    for payment in payments:
        count.payments, count.serials = count.payments + 1, count.serials + payment.serial
        for _ in range(COPIES[payment.serial % len(COPIES)]):
            yield Told(payment.serial)


def tell_more(account: str, payments: Iterator[Payment], count: Count) -> Iterator[ToldMore]:
    """The same, with the account."""
    for told in tell(account, payments, count):
        yield ToldMore(told.serial, account)


@dataclass(frozen=True)
class Declared:
    """What the author may change: sinks by operator as (kind, name), whether rows have a further field, partitions."""

    sinks: tuple[tuple[str, tuple[str, str] | None], ...] = (("teller", ("kafka", "a")), ("second", ("delta", "b")))
    more: bool = False
    partitions: frozenset[TopicPartition] = frozenset({P0, P1})

    def build(self) -> Pipeline:
        """The declaration."""
        folds: list[Operator] = [Fold("accounts", key_by="account", state=Account)]
        return Pipeline(
            name="bank",
            source=KafkaSource(self.partitions, Payment),
            operators=folds + [self._process(uid, sink) for uid, sink in self.sinks],
            max_dead_letters=1.0,
        )

    def _process(self, uid: str, sink: tuple[str, str] | None) -> Process:
        return Process(
            uid,
            key_by="account",
            state=Count,
            function=tell_more if self.more else tell,
            emits=ToldMore if self.more else Told,
            sink=None if sink is None else sink_of(*sink),
        )


@cache
def built(declared: Declared) -> Pipeline:
    """A declaration, built once: that takes as long as a step of a walk."""
    return declared.build()


def sink_of(kind: str, name: str) -> DeltaSink | KafkaSink:
    """A sink; each name has a topic of its own."""
    if kind == "delta":
        return DeltaSink(name)
    return KafkaSink(name, topic=f"out-{name}", guarantee="at_least_once" if kind == "topic" else "exactly_once_by_id")


@dataclass
class Broker:
    """Takes messages, and says so at once; `accepts` is how many more before it fails, None = no bound."""

    took: Callable[[str, Message], None]
    accepts: int | None = None

    def send(self, topic: str, messages: Iterable[Message]) -> int:
        """See `ports.Sender`."""
        sent = 0
        for message in messages:
            if self.accepts is not None:
                if self.accepts <= 0:
                    raise BrokerError(f"sending to topic {topic} stopped", next="run the pipeline again.")
                self.accepts -= 1
            self.took(topic, message)
            sent += 1
        return sent


@dataclass
class DeliveryPipeline(MemoryPipeline):
    """Store, log, tables, clock, and today's declaration."""

    name = "bank"
    declared: Declared = field(default_factory=Declared)

    def __post_init__(self) -> None:
        self.log.create(TOPIC, 2)
        for name in "abc":
            self.log.create(f"out-{name}")
        self.files, self.keys = MemoryTableFiles(self.tables), MemoryKeyFiles(self.tables)

    @property
    def pipeline(self) -> Pipeline:
        return built(self.declared)

    def job(self, crash: StepListener, broker: Broker) -> CheckpointJob:
        """Executes attempts of today's declaration."""
        return self.checkpoint_job(self.compute_of(self.pipeline), crash, max_dead_letters=1.0, sender=broker)

    def rows(self, table: SinkTable, checkpoint: int | None = None) -> list[dict[str, Any]]:
        """Rows of a sink: all of them, or those that one checkpoint left."""
        found: list[dict[str, Any]] = []
        for segment in table.handle:
            for f in self.tables.files_of(segment):
                if checkpoint in (None, f.checkpoint):
                    path = f"{segment.path}/{f.path}"
                    if path not in self.tables.files:
                        raise StoreError(f"{path} is gone", next="look at what the sweep has deleted.")
                    found += map(dict, self.tables.files[path])
        return sorted(found, key=lambda r: (r["_topic"], r["_partition"], r["_offset"], r["_path"]))

    def declare(self, **changes: Any) -> None:
        """The author changes the declaration."""
        self.declared = replace(self.declared, **changes)
