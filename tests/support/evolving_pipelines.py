"""Pipelines that change between checkpoints, and their expected state from a plain replay of all records.

Every field has an identity that survives renames, and exists since a checkpoint. Its value is a fold of the records
since then. No product code computes the expected state.
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from types import GenericAlias
from typing import Annotated, Any

from tidemark import Fold, KafkaSource, Pipeline, Process, state
from tidemark.state import Precision

KEYS = ("a", "b", "c", "d")


@dataclass(frozen=True)
class Narrow:
    """A record."""

    key: str
    n: int
    price: Annotated[Decimal, Precision(6, 2)]


@dataclass(frozen=True)
class Wide:
    """A record whose price has more digits."""

    key: str
    n: int
    price: Annotated[Decimal, Precision(12, 2)]


def encoded(record: Narrow | Wide) -> bytes:
    """Encodes a record as the value of a Kafka message."""
    return json.dumps({"key": record.key, "n": record.n, "price": str(record.price)}).encode()


FOLD_KINDS = ("count", "sum", "min", "max", "latest", "mean", "distinct", "list")
PROCESS_KINDS = ("value", "list_of_values", "map")
INITIAL = 5


@dataclass(frozen=True)
class Field:
    """A field: its current name, its kind and source, the checkpoint it exists since, and its former name."""

    name: str
    kind: str
    source: str
    born: int
    was: str = ""

    def declared(self, record: type) -> tuple[Any, Any]:
        """The annotation and the descriptor that declare the field."""
        of = int if self.source == "n" else record.__annotations__["price"]
        if self.kind == "count":
            return int, state.count(was=self.was)
        if self.kind == "value":
            return int, state.value(INITIAL, was=self.was)
        if self.kind == "list_of_values":
            return list[int], state.list(was=self.was)
        if self.kind == "map":
            return dict[int, int], state.map(was=self.was)
        lists = self.kind in ("distinct", "list")
        hint = float | None if self.kind == "mean" else GenericAlias(list, (of,)) if lists else of | None
        return hint, getattr(state, self.kind)(self.source, was=self.was)

    def folded(self, records: Sequence[Any]) -> Any:
        """The expected value of the field after `records`, which are ordered from oldest to newest."""
        values = [getattr(r, self.source) for r in records]
        if self.kind in ("count", "value"):
            return INITIAL + sum(values) if self.kind == "value" and values else len(values) or _nothing(self.kind)
        if self.kind == "map":
            return {n % 3: sum(1 for m in values if m % 3 == n % 3) for n in values}
        if self.kind in ("list", "list_of_values"):
            return values
        if self.kind == "distinct":
            return sorted(set(values))
        if not values:
            return None
        plain: dict[str, Callable[[list[Any]], Any]] = {"sum": sum, "min": min, "max": max, "latest": lambda v: v[-1]}
        return float(sum(values)) / len(values) if self.kind == "mean" else plain[self.kind](values)


def _nothing(kind: str) -> int | None:
    return 0 if kind == "count" else None


def remember(key: str, records: Iterator[Any], remembered: Any) -> None:
    """Applies every record to every field."""
    for record in records:
        for d in type(remembered).descriptors:
            held = getattr(remembered, d.name)
            if d.kind == "value":
                setattr(remembered, d.name, held + record.n)
            elif d.kind == "map":
                held[record.n % 3] = held.get(record.n % 3, 0) + 1
            else:
                held.append(record.n)


@dataclass
class PipelineHistory:
    """A fold and a process whose declarations change over time, and all records so far."""

    chance: random.Random
    kinds: dict[str, tuple[str, ...]] = field(
        default_factory=lambda: {"folded": FOLD_KINDS, "processed": PROCESS_KINDS}
    )
    fields: dict[str, list[Field]] = field(default_factory=dict)
    record: type = Narrow
    batches: list[list[Any]] = field(default_factory=list)
    made: int = 0

    def __post_init__(self) -> None:
        for uid in self.kinds:
            self.fields[uid] = [self._new(uid) for _ in range(self.chance.randint(1, 4))]

    def change(self) -> None:
        """Applies random changes that are compatible with the stored state."""
        if self.chance.random() < 0.2:
            self.record = Wide
        for uid in self.kinds:
            fields = [replace(f, was="") for f in self.fields[uid]]
            for _ in range(self.chance.randint(0, 3)):
                fields = self._changed(uid, fields)
            self.fields[uid] = fields

    def send(self) -> list[Any]:
        """Generates the records of the next checkpoint."""
        count = self.chance.choice([0, 1, 3, 8])
        self.batches.append(
            [
                self.record(self.chance.choice(KEYS), self.chance.randint(-9, 9), Decimal(self.chance.randint(-9, 999)))
                for _ in range(count)
            ]
        )
        return self.batches[-1]

    def pipeline(self) -> Pipeline:
        """The current declaration."""
        folded, processed = (self._class(uid) for uid in self.kinds)
        return Pipeline(
            name="changing",
            source=KafkaSource("records", self.record),
            operators=[
                Fold("folded", key_by="key", state=folded),
                Process("processed", key_by="key", state=processed, function=remember),
            ],
        )

    def expected(self, uid: str) -> dict[tuple[str], dict[str, Any]]:
        """The expected state of every key, from a replay of all records."""
        found = {}
        for key in KEYS:
            by_batch = [[r for r in batch if r.key == key] for batch in self.batches]
            if not any(by_batch):
                continue
            row = {f.name: f.folded([r for batch in by_batch[f.born :] for r in batch]) for f in self.fields[uid]}
            if uid == "folded" or any(value not in (None, [], {}) for value in row.values()):
                found[(key,)] = row
        return found

    def _class(self, uid: str) -> type:
        declared = {f.name: f.declared(self.record) for f in self.fields[uid]}
        body: dict[str, Any] = {"__annotations__": {name: hint for name, (hint, _) in declared.items()}}
        return type("State", (state.Keyed,), body | {name: made for name, (_, made) in declared.items()})

    def _changed(self, uid: str, fields: list[Field]) -> list[Field]:
        act = self.chance.choice(["add", "remove", "rename", "order", "again"])
        if act == "remove" and len(fields) > 1:
            fields = [f for f in fields if f != self.chance.choice(fields)] or fields
        elif act == "rename":
            at = self.chance.randrange(len(fields))
            if not fields[at].was and fields[at].born < len(self.batches):
                fields = [*fields]
                fields[at] = replace(fields[at], name=self._name(), was=fields[at].name)
        elif act == "order":
            self.chance.shuffle(fields)
        elif act == "again":
            return self._again(uid, fields)
        else:
            fields = [*fields, self._new(uid)]
        return fields

    def _again(self, uid: str, fields: list[Field]) -> list[Field]:
        """Adds an empty field under the name of a field that was removed at an earlier checkpoint."""
        names = [f"f{n}" for n in range(self.made)]
        before = {f.name for f in self.fields[uid]} | {f.was for f in fields}
        free = [n for n in names if n not in before and n not in {f.name for f in fields}]
        return [*fields, replace(self._new(uid), name=self.chance.choice(free))] if free else fields

    def _new(self, uid: str) -> Field:
        kind = self.chance.choice(self.kinds[uid])
        source = "n" if uid == "processed" or kind == "count" else self.chance.choice(["n", "price"])
        return Field(self._name(), kind, source, len(self.batches))

    def _name(self) -> str:
        self.made += 1
        return f"f{self.made - 1}"
