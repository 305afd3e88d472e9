"""Live operator state: what a process function sees in addition to its key, one set of lists per parallel task."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tidemark.declare.operator_state import Operator as OperatorLists
from tidemark.declare.operators import Operator, Process
from tidemark.model.checkpoint.segments import BOUND, OperatorList, OperatorState, Part, Redistribution
from tidemark.processing.live import Live
from tidemark.processing.live_operator_lists import OperatorCell, SplitCell, UnionCell, too_large
from tidemark.processing.shapes import Shape, shape_of
from tidemark.processing.value_codec import codec_of


class LiveLists(Live):
    """Mixed into the author's class: reading and assigning a field use its cell."""

    def __eq__(self, other: object) -> bool:
        names = self._cells
        return isinstance(other, OperatorLists) and all(getattr(self, n) == getattr(other, n, None) for n in names)


class TaskState:
    """The operator state of one task.

    Attributes:
        live: an instance of the author's class, for functions.
    """

    def __init__(self, live: Any, cells: Mapping[str, OperatorCell]) -> None:
        self.live, self._cells = live, cells

    def keep(self) -> None:
        """See `OperatorCell`."""
        for cell in self._cells.values():
            cell.keep()

    def undo(self) -> None:
        """See `OperatorCell`."""
        for cell in self._cells.values():
            cell.undo()

    def changed_parts(self) -> dict[str, Part]:
        """Returns the task's part of each list that it changed."""
        return {name: cell.part() for name, cell in self._cells.items() if cell.changed}


@dataclass(frozen=True)
class OperatorStateType:
    """The common part of the operator state of all tasks.

    Attributes:
        uid: the operator.
        cls: the author's class.
        given: the lists as the parent left them.
        shapes: shape of the elements of each list.
        tasks: number of parallel tasks.
    """

    uid: str
    cls: type[OperatorLists]
    given: OperatorState
    shapes: Mapping[str, Shape]
    tasks: int

    @classmethod
    def of(cls, operator: Process, given: OperatorState, tasks: int) -> "OperatorStateType | None":
        """Returns the type of a declaration; None if it declares no lists.

        If a checkpoint planned by other code is repeated, a list may be missing: then it is empty.
        """
        if operator.operator_state is None:
            return None
        known = {x.name: x for x in given.lists}
        given = OperatorState(lists=tuple(known.get(x.name, x) for x in operator.lists.lists), tasks=given.tasks)
        shapes = {d.name: shape_of(d.hint, f"{operator.uid}.{d.name}") for d in operator.operator_state.descriptors}
        return cls(operator.uid, operator.operator_state, given, shapes, tasks)

    def open_task(self, task: int) -> TaskState:
        """Returns the operator state of a task, with its part of each list."""
        given = self.given.part_of_task(task, self.tasks)
        cells: dict[str, OperatorCell] = {x.name: self._cell(x, given[x.name]) for x in self.given.lists}
        live: Any = object.__new__(self._live)
        object.__setattr__(live, "_cells", cells)
        return TaskState(live, cells)

    def join_parts(self, left: Mapping[int, Mapping[str, Part]]) -> OperatorState:
        """Combines the parts of all tasks; see `model.checkpoint.plan`.

        Raises:
            StateOverflowError: they exceed the limit; the message names the longest list.
        """
        made = self.given.join_parts(left, self.tasks)
        sizes = {x.name: x.size for x in made.lists}
        if sum(sizes.values()) > BOUND:
            raise too_large(self.uid, max(sizes, key=sizes.__getitem__), sum(sizes.values()))
        return made

    def _cell(self, of: OperatorList, given: Iterable[Any]) -> "SplitCell | UnionCell":
        make = UnionCell if of.mode is Redistribution.UNION else SplitCell
        return make(self.uid, of, codec_of(self.shapes[of.name]), given)

    @cached_property
    def _live(self) -> type:
        names = [x.name for x in self.given.lists]
        made = type(self.cls.__name__, (LiveLists, self.cls), {n: property(_reading(n)) for n in names})
        made.__qualname__ = self.cls.__qualname__
        return made


def opened_whole(operator: Operator, lists: OperatorState) -> Any:
    """Returns an instance of an operator's class with all elements of its lists; None if it declares none."""
    found = OperatorStateType.of(operator, lists, 1) if isinstance(operator, Process) else None
    if found is None:
        return None
    live = found.open_task(0).live
    return found.cls(**{x.name: list(getattr(live, x.name)) for x in found.given.lists})


def _reading(name: str) -> Any:
    return lambda live: live._cells[name].get()
