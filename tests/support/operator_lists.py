"""A process whose records are commands for its operator state, and an oracle that executes them on plain lists.

The oracle shares no code with the product and follows Flink's rules. A list is split into contiguous slices whose sizes
differ by at most one, the longer ones first; key group = crc32(key) % 128, task = group * tasks // 128.
"""

import random
import zlib
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from tidemark import KafkaSource, Pipeline, Process, state

GROUPS = 128


@dataclass(frozen=True)
class Order:
    """A record: the verb to apply, the list to apply it to, and the argument."""

    key: str
    verb: str
    list: str
    what: str


class Seen(state.Keyed):
    """The keyed state: the number of records, and the lengths of both lists as last seen."""

    n: int = state.value(0)
    samples: int = state.value(0)
    rules: int = state.value(0)


class Local(state.Operator):
    """Operator state with one list of each form."""

    samples: list[str] = state.split_list()
    rules: list[str] = state.union_list()


def follow(key: str, orders: Iterator[Order], seen: Seen, *, operator_state: Local) -> None:
    """Executes the orders, and stores the lengths of both lists, so that a wrong view of them is detected."""
    for order in orders:
        seen.n += 1
        found = getattr(operator_state, order.list)
        if order.verb == "append":
            found.append(order.what)
        elif order.verb == "clear":
            found.clear()
        elif order.verb == "assign":
            setattr(operator_state, order.list, [order.what, f"{order.what}'"])
        elif order.verb == "pop" and found:
            found.pop(0)
        elif order.verb == "extend":
            found += [order.what, "ü"]
        elif order.verb == "fail":
            found.append("never")
            raise ValueError(order.what)
        seen.samples, seen.rules = len(operator_state.samples), len(operator_state.rules)


PIPELINE = Pipeline(
    name="orders",
    source=KafkaSource("orders", Order),
    operators=[
        Process("o", key_by="key", state=Seen, function=follow, operator_state=Local, on_error="dead_letter"),
    ],
    max_dead_letters=1.0,
)


def orders(chance: random.Random, n: int) -> list[Order]:
    """Random records, some of which make the function fail."""
    found = []
    for i in range(n):
        name = chance.choice(["samples", "rules"])
        verbs = ["append"] * 6 + ["extend", "clear", "assign", "fail", "look"] + ["pop"] * 2 * (name == "samples")
        found.append(Order(chance.choice("abcdefghij"), chance.choice(verbs), name, f"w{i}"))
    return found


@dataclass
class _Task:
    samples: list[str]
    old: list[str]
    added: list[str] = field(default_factory=list)
    cleared: bool = False

    @property
    def rules(self) -> list[str]:
        return [*([] if self.cleared else self.old), *self.added]


@dataclass
class OperatorListOracle:
    """The lists and the keys after each checkpoint, computed on plain lists.

    Attributes:
        samples: the whole split list.
        rules: the union list.
        keys: per key (number of records, lengths of both lists as last seen).
    """

    samples: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    keys: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def checkpoint(self, records: list[Order], tasks: int) -> None:
        """Applies a batch; the records of a key are in the order of their partition."""
        if not records:
            return
        given = self._divided(tasks)
        by_key: dict[str, list[Order]] = {}
        for record in records:
            by_key.setdefault(record.key, []).append(record)
        for key in sorted(by_key):
            group = zlib.crc32(key.encode()) % GROUPS
            at = group * tasks // GROUPS
            given[at] = self._key(key, by_key[key], given[at])
        self.samples = [s for task in given for s in task.samples]
        kept = [] if any(task.cleared for task in given) else self.rules
        self.rules = [*kept, *(r for task in given for r in task.added)]

    def _divided(self, tasks: int) -> list[_Task]:
        sizes = [len(self.samples) // tasks + (n < len(self.samples) % tasks) for n in range(tasks)]
        left = iter(self.samples)
        return [_Task([next(left) for _ in range(size)], list(self.rules)) for size in sizes]

    def _key(self, key: str, records: list[Order], before: _Task) -> _Task:
        """Executes the records of a key. After a failure the key is processed again without the failed record."""
        good = [r for r in records if r.verb != "fail"]
        task = deepcopy(before)
        n, seen = self.keys.get(key, (0, 0, 0))[0], self.keys.get(key, (0, 0, 0))[1:]
        for record in good:
            n += 1
            _obey(task, record)
            seen = (len(task.samples), len(task.rules))
        if good:
            self.keys[key] = (n, *seen)
        return task


def _obey(task: _Task, record: Order) -> None:
    what = {"append": [record.what], "extend": [record.what, "ü"], "assign": [record.what, f"{record.what}'"]}
    if record.list == "samples":
        if record.verb in ("clear", "assign"):
            task.samples = []
        if record.verb == "pop":
            task.samples = task.samples[1:]
        task.samples += what.get(record.verb, [])
        return
    if record.verb in ("clear", "assign"):
        task.added, task.cleared = [], True
    task.added += what.get(record.verb, [])


def told(checkpoint: Any) -> dict[str, list[Any]]:
    """The lists in a manifest, by name."""
    return {x.name: list(x.elements) for x in checkpoint.operator_states["o"].lists}
