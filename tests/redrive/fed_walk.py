"""The walk over an operator that another one feeds: its letters are emitted records, several for one of Kafka's.

A unit of the oracle is (partition, offset, number): which of the parts that were emitted for a payment.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tests.redrive.redrive_walk import PARTITIONS, Record, Seen
from tests.redrive.sink_walk import Echoed, SinkWalk, Told, Totals, echo
from tidemark import DeltaSink, Fold, KafkaSink, KafkaSource, Pipeline, Process, state
from tidemark.formats.json import Json
from tidemark.model.checkpoint.redrive import LetterRow
from tidemark.model.core.offsets import TopicPartition


@dataclass(frozen=True)
class Part:
    """A part of a payment; one without an account is a letter whatever the release."""

    account: str | None
    amount: int
    kind: str | None


@dataclass(frozen=True)
class Payment:
    """What the topic holds."""

    payer: str
    parts: list[Part]


class Nothing(state.Keyed):
    """The state of an operator that only emits."""

    records: int = state.value(0)


def split(key: str, records: Iterable[Payment], kept: Nothing) -> Iterator[Part]:
    """Emits the parts of payments."""
    for record in records:
        kept.records += 1
        yield from record.parts


def strict(key: str, records: Iterable[Part], kept: Seen) -> Iterator[Told]:
    """The buggy release: it fails on a part without a kind."""
    for record in records:
        if record.kind is None:
            raise ValueError("no kind")
        kept.records += 1
        kept.total += record.amount
        yield Told(key, record.amount)


def lenient(key: str, records: Iterable[Part], kept: Seen) -> Iterator[Told]:
    """The corrected release."""
    for record in records:
        kept.records += 1
        kept.total += record.amount
        yield Told(key, record.amount)


def fed(name: str) -> Pipeline:
    """A release of the pipeline."""
    return Pipeline(
        name="sums",
        source=KafkaSource("payments", Payment),
        operators=[
            Fold("mirror", key_by="payer", state=Totals),
            Process("split", key_by="payer", state=Nothing, function=split, emits=Part),
            Process(
                "seen",
                input="split",
                key_by="account",
                state=Seen,
                function=strict if name == "strict" else lenient,
                emits=Told,
                on_error="dead_letter",
                sink=DeltaSink("told"),
            ),
            Process(
                "echo",
                input="seen",
                key_by="account",
                state=Echoed,
                function=echo,
                emits=Told,
                sink=KafkaSink("echo", topic="out", guarantee="exactly_once_by_id"),
            ),
        ],
        max_dead_letters=1.0,
    )


class FedWalk(SinkWalk):
    """A walk whose letters are records that an operator emitted."""

    releases = {name: fed(name) for name in ("strict", "lenient")}

    def send(self) -> None:
        """Sends payments with up to three parts."""
        for _ in range(self.chance.randint(1, 3)):
            at, parts = self.chance.randrange(PARTITIONS), []
            for _ in range(self.chance.randint(0, 3)):
                how = self.chance.choices(["good", "kindless", "keyless"], [3, 5, 1])[0]
                part = Part(self.chance.choice("abc"), self.chance.randint(1, 9), None if how == "kindless" else "x")
                parts.append((part if how != "keyless" else Part(None, part.amount, "x"), how))
            value = Json().encode(Payment("p", [part for part, _ in parts]))
            offset = self.world.log.append(TopicPartition("payments", at), value)
            for n, (part, how) in enumerate(parts):
                self.values[at, offset, n] = (part.account, part.amount, how)

    def more_steps(self) -> list[tuple[Callable[[], None], int]]:
        """More restores, which leave a sink with rows that are emitted again."""
        return [*super().more_steps(), (self.restore, 3)]

    def unit(self, row: LetterRow) -> Record:
        """The part, by the path of its letter."""
        return (row.partition, row.offset, *row.path)

    @staticmethod
    def _place(row: object) -> Record:
        return (row["_partition"], row["_offset"], row["_path"][0])  # type: ignore[index]
