"""The protocol of a sink, and the ways in which rows reach one."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Protocol

from tidemark.model.checkpoint.sink_traits import AHEAD, COMMITTED, OUTBOX, SinkTraits
from tidemark.model.core.names import checked_name
from tidemark.model.core.types import FieldType

if TYPE_CHECKING:
    from tidemark.model.checkpoint.messages import EmittedRow, Message
    from tidemark.model.checkpoint.sinks import SinkTable

__all__ = ["AHEAD", "COMMITTED", "OUTBOX", "Services", "Sink", "SinkTraits", "Transport"]


class Transport(Protocol):
    """Sends messages to Kafka for a sink; see `ports.Sender`."""

    def send(self, topic: str, messages: "Iterable[Message]") -> int:
        """Sends messages in order and waits until Kafka has acknowledged all of them; returns their number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services that a sink may use to write.

    Attributes:
        kafka: sends to Kafka; None if this process cannot.
    """

    kafka: Transport | None = None


@dataclass(frozen=True)
class Sink(ABC):
    r"""Where the emitted rows of a `Process` go: a frozen dataclass whose other fields, all `str`, are its options.

    A sink of your own needs `kinds` and `write`:

    >>> import dataclasses
    >>> from tidemark.sinks import OUTBOX, Services, Sink
    >>> @dataclasses.dataclass(frozen=True)
    ... class FileSink(Sink):
    ...     path: str = "rows.txt"
    ...     kinds = {"file": OUTBOX}
    ...     def write(self, rows, commit_id, services):
    ...         lines = [f"{row.id} {row.fields}\n" for row in rows]
    ...         with open(self.path, "a") as file:
    ...             file.writelines(lines)
    ...         return len(lines)
    >>> FileSink("late").traits.needs_delivery
    True

    Attributes:
        kinds: traits by the kind that manifests store, the default first. Never rename a kind.
        name: name of the sink, unique in the pipeline.
    """

    kinds: ClassVar[Mapping[str, SinkTraits]]

    name: str

    def __post_init__(self) -> None:
        checked_name("sink", self.name)

    @property
    def kind(self) -> str:
        """The current kind, one of `kinds`."""
        return next(iter(self.kinds))

    @property
    def traits(self) -> SinkTraits:
        """How rows reach the sink."""
        return self.kinds[self.kind]

    @property
    def kafka_topic(self) -> str | None:
        """The Kafka topic that the sink writes to, if any."""
        return None

    @property
    def destination(self) -> str:
        """Where rows end up, for messages to people."""
        return f"{self.kind} {self.name}"

    @property
    def expires_after(self) -> timedelta | None:
        """How long rows stay in the sink's table in the warehouse, by logical time; None = for ever."""
        return None

    def check(self, uid: str, emitted: FieldType) -> None:
        """Checks that the sink can take the rows of an operator.

        Raises:
            DeclarationError: it cannot.
        """
        return

    def stored(self, table: "SinkTable") -> "SinkTable":
        """Returns the table with the options that manifests store of the sink; `thaw` reads them."""
        options = asdict(self)
        del options["name"]
        return replace(table, options=options)

    @classmethod
    def thaw(cls, table: "SinkTable") -> "Sink | None":
        """Restores the sink from a manifest; returns None for a stored sink that nothing is written to."""
        return cls(table.name, **table.options)

    def on_fork(self) -> "Sink":
        """The sink as a fork has it: it may keep rows but must not write them, because a fork never sends."""
        return self

    @abstractmethod
    def write(self, rows: "Iterable[EmittedRow]", commit_id: str, services: Services) -> int:
        """Writes the rows of one checkpoint in order, and returns their number when all of them are safe.

        After a crash the same rows arrive again, with the same ids and the same `commit_id`. A sink that remembers
        either has each row exactly once.

        Args:
            rows: the rows with their ids; the sink must not hold any back for a later call.
            commit_id: `<pipeline>/<timeline>/chk-<N>`.
            services: the services of this process.

        Raises:
            UsageError: a service is missing.
            RecordRefusedError: the sink will never take one of the rows; it has written all rows before it. The sink
                then waits, with all later rows, until you skip that row.
            TidemarkError: the sink is unavailable; all rows will arrive again.
        """
