"""FlatMap before a Process and folds, with an oracle in plain Python that shares no code with the product.

Lines are split into words, a process hands on each word with its number so far, and folds count and collect both.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tidemark import DeltaSink, FlatMap, Fold, KafkaSource, Pipeline, Process, state

DAY = datetime(2020, 1, 1, tzinfo=UTC)
WORDS = ("ant", "bee", "cat", "dog")


@dataclass(frozen=True)
class Verse:
    """A record."""

    text: str
    at: datetime


@dataclass(frozen=True)
class Word:
    """A row of the FlatMap."""

    word: str
    place: int
    of: str


@dataclass(frozen=True)
class Numbered:
    """A word with its number so far."""

    word: str
    number: int


class Said(state.Keyed):
    """How often a key was seen."""

    n: int = state.value(0)


class Seen(state.Keyed):
    """Kinds of state that depend on order, and one that does not."""

    n: int = state.count()
    first: str | None = state.first("of")
    latest: str | None = state.latest("of")
    places: list[int] = state.list("place", limit=100_000)


class Numbers(state.Keyed):
    """The numbers of a word."""

    sum: int = state.sum("number")
    numbers: list[int] = state.list("number", limit=100_000)


def split(line: Verse) -> Iterator[Word]:
    """Yields each word of a line."""
    for place, word in enumerate(line.text.split()):
        if word == "!":
            raise ValueError("a line with a cry")
        yield Word(word, place, line.text)


def number(_: str, words: Iterator[Word], said: Said) -> Iterator[Numbered]:
    """Yields each word with its number, and every third one twice."""
    for word in words:
        said.n += 1
        yield Numbered(word.word, said.n)
        if said.n % 3 == 0:
            yield Numbered(word.word, -said.n)


def pipeline(**options: Any) -> Pipeline:
    """A FlatMap with a sink, read by a fold, and by a process that another fold reads."""
    return Pipeline(
        name="lines",
        source=KafkaSource("lines", Verse, event_time="at"),
        operators=[
            FlatMap("words", function=split, emits=Word, sink=DeltaSink("words"), **options),
            Fold("seen", input="words", key_by="word", state=Seen),
            Process("numbered", input="words", key_by="word", state=Said, function=number, emits=Numbered),
            Fold("numbers", input="numbered", key_by="word", state=Numbers),
        ],
        max_dead_letters=1.0,
    )


def lines(chance: random.Random, count: int, *, cries: bool = False) -> list[Verse]:
    """Random records with few words and few event times, so that ties are frequent."""
    words = (*WORDS, "!") if cries else WORDS
    return [
        Verse(" ".join(chance.choices(words, k=chance.randrange(5))), DAY + timedelta(hours=chance.randrange(3)))
        for _ in range(count)
    ]


@dataclass
class WordOracle:
    """What the folds must hold, computed on plain lists.

    Attributes:
        partitions: number of partitions, which records are assigned to in turn.
        words: per checkpoint the words: event time, partition, offset, place, word, text.
        failed: positions of the lines that the function raised on.
    """

    partitions: int
    sent: int = 0
    words: list[list[tuple[datetime, int, int, int, str, str]]] = field(default_factory=list)
    failed: list[tuple[int, int]] = field(default_factory=list)

    def checkpoint(self, records: Sequence[Verse]) -> None:
        """Adds the records of one checkpoint."""
        made = []
        for line in records:
            at = (self.sent % self.partitions, self.sent // self.partitions)
            self.sent += 1
            if "!" in line.text:
                self.failed.append(at)
                continue
            made += [(line.at, *at, n, word, line.text) for n, word in enumerate(line.text.split())]
        self.words.append(made)

    def seen(self) -> list[dict[str, Any]]:
        """The state of the fold over words."""
        held = [w for batch in self.words for w in batch]
        rows = []
        for word in sorted({w[4] for w in held}):
            mine = sorted(w for w in held if w[4] == word)
            by_batch = [w for batch in self.words for w in sorted(batch, key=lambda w: w[1:4]) if w[4] == word]
            first, latest = mine[0], max(mine, key=lambda w: w[:4])
            rows.append(
                {
                    "word": word,
                    "n": len(mine),
                    "first": first[5],
                    "latest": latest[5],
                    "places": [w[3] for w in by_batch],
                    "_changed": self._changed(word),
                }
            )
        return rows

    def numbers(self) -> list[dict[str, Any]]:
        """The state of the fold over numbered words."""
        said: dict[str, int] = {}
        made: dict[str, list[int]] = {}
        for batch in self.words:
            for *_, word, _ in sorted(batch, key=lambda w: w[1:4]):
                said[word] = said.get(word, 0) + 1
                made.setdefault(word, []).append(said[word])
                if said[word] % 3 == 0:
                    made[word].append(-said[word])
        return [
            {"word": w, "sum": sum(made[w]), "numbers": made[w], "_changed": self._changed(w)} for w in sorted(made)
        ]

    def _changed(self, word: str) -> int:
        return max(n for n, batch in enumerate(self.words, 1) if any(w[4] == word for w in batch))
