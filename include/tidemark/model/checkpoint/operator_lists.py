"""Operator state as a value: the small lists of an operator that belong to no key.

A plan contains the lists as its parent left them, an ack the lists after the checkpoint. In between, each parallel task
gets its part (`OperatorState.given`), and the parts that the tasks leave are combined again (`OperatorState.joined`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from tidemark.model.checkpoint.codec import ADDED
from tidemark.model.core.types import FieldType

BOUND = 64 * 1024
"""Maximum bytes of an operator's lists as JSON; they are stored in the manifest, and every task gets them."""


class Redistribution(Enum):
    """The part of a list that a parallel task gets (Flink's OperatorStateHandle.Mode).

    SPLIT: a contiguous slice; sizes differ by at most one element, and the first tasks have the longer ones. UNION: the
    whole list.
    """

    SPLIT = "split"
    UNION = "union"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorList:
    """One list.

    Attributes:
        name: name of the field.
        mode: how the list is distributed.
        element: type of its elements.
        elements: the elements in JSON form (`model.core.json_values`), in order.
        was: the previous name of a renamed field; only in declarations, never in manifests.
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
    """The part of one list that one task leaves.

    Attributes:
        elements: for a split list, all current elements of the task; for a union list, the elements that it appended
            since it last cleared the list.
        cleared: whether the task cleared a union list; unused for a split list.
    """

    elements: tuple[Any, ...]
    cleared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorState:
    """All lists of an operator, in order of declaration; false if it declares none.

    Attributes:
        lists: the lists with their elements.
        tasks: number of parallel tasks that left them; 0 = none has run yet.
    """

    lists: tuple[OperatorList, ...] = ()
    tasks: int = 0

    def __bool__(self) -> bool:
        return bool(self.lists)

    def given(self, task: int, tasks: int) -> dict[str, tuple[Any, ...]]:
        """Returns the part of each list that a task gets.

        Args:
            task: number of the task, from 0.
            tasks: number of tasks.
        """
        return {x.name: x.elements if x.mode is Redistribution.UNION else _slice(x, task, tasks) for x in self.lists}

    def joined(self, left: Mapping[int, Mapping[str, Part]], tasks: int) -> "OperatorState":
        """Combines the parts that the tasks leave.

        A split list is the concatenation of all tasks' lists in the order of tasks. A union list is the old list, or
        nothing if any task cleared it, followed by the elements that the tasks appended, in the order of tasks.

        Args:
            left: per task the lists that it changed; every other task left its part unchanged.
            tasks: number of tasks.
        """
        return OperatorState(lists=tuple(_joined(x, left, tasks) for x in self.lists), tasks=tasks)


def task_of(group: int, groups: int, tasks: int) -> int:
    """Returns the task of a key group: contiguous ranges, as in Flink."""
    return group * tasks // groups


def json_size(body: Any) -> int:
    """Returns the size of a JSON value in bytes."""
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
