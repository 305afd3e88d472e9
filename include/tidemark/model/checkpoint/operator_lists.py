"""Operator state as a value: the small lists of an operator that belong to no key (A1, A9, A10).

A plan carries the lists as its parent left them, an ack carries what the checkpoint leaves. In between each parallel
task gets its part (`OperatorState.given`), and what the tasks leave is put together again (`OperatorState.joined`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from tidemark.model.checkpoint.codec import ADDED
from tidemark.model.core.types import FieldType

BOUND = 64 * 1024
"""Bytes of an operator's lists, as JSON; they lie inside the manifest, and every task gets them."""


class Redistribution(Enum):
    """What a parallel task gets of a list (Flink's OperatorStateHandle.Mode).

    SPLIT: a contiguous slice; sizes differ by one element at most, the first tasks have the longer ones.
    UNION: the whole list.
    """

    SPLIT = "split"
    UNION = "union"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorList:
    """One list.

    Attributes:
        name: of the field.
        mode: what a task gets of it.
        element: type of its elements.
        elements: in JSON form (`model.json_values`), in order.
        was: the name that it had before; of a declaration only, manifests do not carry it.
    """

    name: str
    mode: Redistribution
    element: FieldType
    elements: tuple[Any, ...] = ()
    was: str = field(default="", compare=False, metadata=ADDED)

    @property
    def size(self) -> int:
        """Bytes of its elements as JSON."""
        return sum(map(json_size, self.elements))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one task leaves of one list.

    Attributes:
        elements: of a split list: all that the task has now. Of a union list: what it added, since it cleared the list
            for the last time.
        cleared: whether the task cleared a union list; nothing to a split list.
    """

    elements: tuple[Any, ...]
    cleared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorState:
    """All lists of an operator, in order of declaration; false where it declares none.

    Attributes:
        lists: each with its elements.
        tasks: how many parallel tasks left it; 0 = none has run yet.
    """

    lists: tuple[OperatorList, ...] = ()
    tasks: int = 0

    def __bool__(self) -> bool:
        return bool(self.lists)

    def given(self, task: int, tasks: int) -> dict[str, tuple[Any, ...]]:
        """What a task gets of each list.

        Args:
            task: its number, from 0.
            tasks: how many there are.
        """
        return {x.name: x.elements if x.mode is Redistribution.UNION else _slice(x, task, tasks) for x in self.lists}

    def joined(self, left: Mapping[int, Mapping[str, Part]], tasks: int) -> "OperatorState":
        """What the tasks leave together.

        A split list is the concatenation of all tasks' lists in order of tasks. A union list is what it was, or nothing
        where any task cleared it, and behind it what the tasks added, in order of tasks.

        Args:
            left: per task the lists that it changed; who is not named left what it was given.
            tasks: how many there were.
        """
        return OperatorState(lists=tuple(_joined(x, left, tasks) for x in self.lists), tasks=tasks)


def task_of(group: int, groups: int, tasks: int) -> int:
    """The task that has a key group: contiguous ranges, as in Flink (C1)."""
    return group * tasks // groups


def json_size(body: Any) -> int:
    """Bytes of a JSON value."""
    return len(json.dumps(body, ensure_ascii=False).encode())


def _slice(x: OperatorList, task: int, tasks: int) -> tuple[Any, ...]:
    least, longer = divmod(len(x.elements), tasks)
    start = task * least + min(task, longer)
    return x.elements[start : start + least + (task < longer)]


def _joined(x: OperatorList, left: Mapping[int, Mapping[str, Part]], tasks: int) -> OperatorList:
    parts = {task: lists[x.name] for task, lists in sorted(left.items()) if x.name in lists}
    if x.mode is Redistribution.UNION:
        old = () if any(p.cleared for p in parts.values()) else x.elements
        return replace(x, elements=(*old, *(e for p in parts.values() for e in p.elements)))
    whole = (parts[t].elements if t in parts else _slice(x, t, tasks) for t in range(tasks))
    return replace(x, elements=tuple(e for part in whole for e in part))
