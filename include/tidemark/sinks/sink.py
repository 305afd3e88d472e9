"""The protocol of a sink, and the ways in which rows reach one."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol

from tidemark.model.checkpoint.messages import EmittedRow, Message
from tidemark.model.core.names import checked_name
from tidemark.model.core.types import FieldType

if TYPE_CHECKING:
    from tidemark.model.checkpoint.sinks import SinkTable

__all__ = ["AHEAD", "COMMITTED", "OUTBOX", "EmittedRow", "Services", "Sink", "SinkTraits", "Transport"]


class Transport(Protocol):
    """What a sink to Kafka writes through; see `ports.Sender`."""

    def send(self, topic: str, messages: Iterable[Message]) -> int:
        """Sends messages in order and waits until all are acknowledged; returns how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What a sink may use to write.

    Attributes:
        kafka: sends to Kafka; None where nothing does.
    """

    kafka: Transport | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkTraits:
    """How rows reach a sink.

    Attributes:
        keeps_rows: attempts write emitted rows to a table of the sink below the warehouse.
        is_transactional: the rows of that table are what readers read, from the manifest on; nothing leaves it.
        needs_delivery: `Sink.write` gets the rows of completed checkpoints from that table, after the manifest. A sink
            that neither needs delivery nor keeps rows gets them from the attempt, before its seal.
        goes_back_on_restore: a restore may take rows back, because manifests name them.
        guarantee: what `tidemark sink list` shows; None for a table that is committed with the checkpoint.
    """

    keeps_rows: bool
    is_transactional: bool
    needs_delivery: bool
    goes_back_on_restore: bool
    guarantee: str | None


COMMITTED = SinkTraits(
    keeps_rows=True, is_transactional=True, needs_delivery=False, goes_back_on_restore=True, guarantee=None
)
"""A table of rows, committed with the checkpoint: exactly once."""
OUTBOX = SinkTraits(
    keeps_rows=True,
    is_transactional=False,
    needs_delivery=True,
    goes_back_on_restore=False,
    guarantee="exactly_once_by_id",
)
"""Rows of completed checkpoints, written from an outbox table; see `sinks.outbox`."""
AHEAD = SinkTraits(
    keeps_rows=False,
    is_transactional=False,
    needs_delivery=False,
    goes_back_on_restore=False,
    guarantee="at_least_once",
)
"""Written by the attempt, before its seal; nothing is stored, and nothing can be taken back."""


@dataclass(frozen=True)
class Sink(ABC):
    """Where the emitted rows of a `Process` go: a frozen dataclass whose other fields, all texts, are its options.

    Attributes:
        kinds: its traits by the kind that manifests carry, the default first. A kind is never renamed.
        name: of the sink, unique in the pipeline.
    """

    kinds: ClassVar[Mapping[str, SinkTraits]]

    name: str

    def __post_init__(self) -> None:
        checked_name("sink", self.name)

    @property
    def kind(self) -> str:
        """Which of `kinds` it is."""
        return next(iter(self.kinds))

    @property
    def traits(self) -> SinkTraits:
        """How rows reach it."""
        return self.kinds[self.kind]

    @property
    def kafka_topic(self) -> str | None:
        """The Kafka topic that it writes to, if it does."""
        return None

    @property
    def destination(self) -> str:
        """Where rows end up, for messages to people."""
        return f"{self.kind} {self.name}"

    def check(self, uid: str, emitted: FieldType) -> None:
        """Returns where the sink can take an operator's rows.

        Raises:
            DeclarationError: it cannot.
        """
        return

    def stored(self, table: "SinkTable") -> "SinkTable":
        """The table with what manifests carry of the sink: its options. `thaw` reads them."""
        options = asdict(self)
        del options["name"]
        return replace(table, options=options)

    @classmethod
    def thaw(cls, table: "SinkTable") -> "Sink | None":
        """The sink that a manifest has stored; None where it stored one that nothing is written to."""
        return cls(table.name, **table.options)

    def on_fork(self) -> "Sink":
        """The sink as a fork has it: it may keep rows, but must not write them, because a fork never sends (J2)."""
        return self

    @abstractmethod
    def write(self, rows: Iterable[EmittedRow], commit_id: str, services: Services) -> int:
        """Writes the rows of one checkpoint in order, and returns when all are safe; returns how many.

        After a crash the same rows come again, with the same ids and the same `commit_id`. A sink that remembers
        either has each row once.

        Args:
            rows: each with its id; nothing may be held back for a later call.
            commit_id: `<pipeline>/<timeline>/chk-<N>`.
            services: what this process reaches.

        Raises:
            UsageError: a service is missing.
            RecordRefusedError: the sink takes one row never; all ahead of it are written. It waits, with all behind
                it, until somebody skips it.
            TidemarkError: the sink is away; all rows will come again.
        """
