"""Lists of live operator state: a slice that a task changes as it likes, and a whole that it adds to or clears."""

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, Protocol, Self

from tidemark.errors import StateOverflowError
from tidemark.model.checkpoint.operator_lists import BOUND, OperatorList, Part, json_size
from tidemark.model.core.json_values import value_from_json, value_to_json
from tidemark.processing.lists import LiveList
from tidemark.processing.value_codec import Codec, DoesNotFit, type_of


class UnionList(list[Any]):
    """A list that takes elements at its end, and can be cleared; slices and copies of it are plain lists."""

    __slots__ = ("_cell",)

    def __init__(self, cell: "UnionCell", values: Iterable[Any]) -> None:
        super().__init__(values)
        self._cell = cell

    def append(self, value: Any) -> None:
        """Adds an element."""
        super().append(self._cell.taken(value))

    def extend(self, values: Iterable[Any]) -> None:
        """Adds elements."""
        for value in list(values):
            self.append(value)

    def clear(self) -> None:
        """Takes all elements out, for all tasks: those of the checkpoint before, and what this task added."""
        super().clear()
        self._cell.emptied()

    def __iadd__(self, values: Any) -> Self:
        self.extend(values)
        return self

    def __add__(self, other: Any) -> list[Any]:
        return list(self) + list(other)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return (list, (list(self),))

    def _refused(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("a union list is only added to or cleared: every task has all of it")

    insert = pop = remove = reverse = sort = __setitem__ = __delitem__ = __imul__ = _refused


class OperatorCell(Protocol):
    """One list while functions of its task are at work."""

    changed: bool

    def clear(self) -> None:
        """Takes all elements out."""

    def keep(self) -> None:
        """A call has returned: what it did stays.

        Raises:
            StateOverflowError: the list is too large.
        """

    def undo(self) -> None:
        """A call has failed: what it did is undone."""

    def part(self) -> Part:
        """What the task leaves, once all of its keys are done."""


class _Weighed:
    """Takes elements in, and knows when they may have become too many."""

    def __init__(self, uid: str, of: OperatorList, codec: Codec) -> None:
        self._uid, self._of, self._codec = uid, of, codec
        self._bytes = 0
        self.changed = False

    def taken(self, value: Any) -> Any:
        """A copy of an element that the author adds."""
        try:
            plain = self._codec.dump(value)
        except (TypeError, DoesNotFit, UnicodeEncodeError) as error:
            raise type_of(error)(f"{self._of.name}: {error}") from None
        self._bytes += json_size(value_to_json(self._of.element, plain))
        self.changed = True
        return self._codec.copied(plain)

    def _loaded(self, elements: Iterable[Any]) -> list[Any]:
        return [self._codec.copied(value_from_json(self._of.element, e)) for e in elements]

    def _dumped(self, values: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(value_to_json(self._of.element, self._codec.dump(v)) for v in values)

    def _weigh(self, values: Iterable[Any]) -> None:
        """Counts again only where what was added since the last time could be too much."""
        if self._bytes > BOUND:
            self._bytes = sum(map(json_size, self._dumped(values)))
            if self._bytes > BOUND:
                raise too_large(self._uid, self._of.name, self._bytes)

    def _checked(self, value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise TypeError(f"{self._of.name}: {value!r:.200} is no list")
        return list(value)


class SplitCell(_Weighed):
    """A field `state.split_list()`: a slice that its task changes as it likes."""

    def __init__(self, uid: str, of: OperatorList, codec: Codec, given: Iterable[Any]) -> None:
        super().__init__(uid, of, codec)
        self._kept = self._loaded(given)
        self._live = self._made(self._kept)

    def touched(self) -> int:
        """The list was changed by the author; its elements have no access times."""
        self.changed = True
        return 0

    def get(self) -> LiveList:
        """The task's slice."""
        return self._live

    def set(self, value: Any) -> None:
        """Replaces the slice."""
        if value is not self._live:
            self._live = self._made([self.taken(v) for v in self._checked(value)])
            self.touched()

    def clear(self) -> None:
        """See `OperatorCell`."""
        self._live.clear()

    def keep(self) -> None:
        """See `OperatorCell`."""
        if self.changed:
            self._weigh(self._live)
            self._kept = list(self._live)

    def undo(self) -> None:
        """See `OperatorCell`."""
        self._live = self._made(self._kept)

    def part(self) -> Part:
        """See `OperatorCell`."""
        return Part(elements=self._dumped(self._kept))

    def _made(self, values: Sequence[Any]) -> LiveList:
        return LiveList(self, values, [0] * len(values))


class UnionCell(_Weighed):
    """A field `state.union_list()`: all of it, and what the task adds."""

    def __init__(self, uid: str, of: OperatorList, codec: Codec, given: Iterable[Any]) -> None:
        super().__init__(uid, of, codec)
        self._live = UnionList(self, self._loaded(given))
        self._old, self._cleared = len(self._live), False
        self._kept = (list(self._live), self._old, self._cleared)

    def emptied(self) -> None:
        """The list was cleared by the author."""
        self._old, self._cleared, self.changed = 0, True, True

    def get(self) -> UnionList:
        """The old elements, unless the task cleared them, and those it added."""
        return self._live

    def set(self, value: Any) -> None:
        """Clears the list and adds elements."""
        if value is not self._live:
            values = self._checked(value)
            self._live.clear()
            self._live.extend(values)

    def clear(self) -> None:
        """See `OperatorCell`."""
        self._live.clear()

    def keep(self) -> None:
        """See `OperatorCell`."""
        if self.changed:
            self._weigh(self._live[self._old :])
            self._kept = (list(self._live), self._old, self._cleared)

    def undo(self) -> None:
        """See `OperatorCell`."""
        values, self._old, self._cleared = self._kept
        self._live = UnionList(self, values)

    def part(self) -> Part:
        """See `OperatorCell`."""
        values, old, cleared = self._kept
        return Part(elements=self._dumped(values[old:]), cleared=cleared)


def too_large(uid: str, name: str, size: int) -> StateOverflowError:
    """The error of operator state that does not fit into a manifest."""
    return StateOverflowError(
        f"state overflow: {uid}: operator state {name}: {size:,} bytes as JSON, the bound is {BOUND:,} per operator",
        safe="every completed checkpoint is intact; nothing was published.",
        next="keep fewer or smaller elements, or keep them by key: operator state lies inside the manifest.",
    )
