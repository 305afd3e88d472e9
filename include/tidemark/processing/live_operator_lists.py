"""Lists of live operator state: a slice that a task changes freely, and a whole list that it appends to or clears."""

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, Protocol, Self

from tidemark.errors import StateOverflowError
from tidemark.model.checkpoint.segments import BOUND, OperatorList, Part, json_size
from tidemark.model.core.json_values import value_from_json, value_to_json
from tidemark.processing.lists import LiveList
from tidemark.processing.value_codec import Codec, DoesNotFit, type_of


class UnionList(list[Any]):
    """A list that can only be appended to and cleared; its slices and copies are plain lists."""

    __slots__ = ("_cell",)

    def __init__(self, cell: "UnionCell", values: Iterable[Any]) -> None:
        super().__init__(values)
        self._cell = cell

    def append(self, value: Any) -> None:
        """Appends an element."""
        super().append(self._cell.copy_in(value))

    def extend(self, values: Iterable[Any]) -> None:
        """Appends elements."""
        for value in list(values):
            self.append(value)

    def clear(self) -> None:
        """Removes all elements, for all tasks: those of the previous checkpoint, and those that this task appended."""
        super().clear()
        self._cell.record_clear()

    def __iadd__(self, values: Any) -> Self:
        self.extend(values)
        return self

    def __add__(self, other: Any) -> list[Any]:
        return list(self) + list(other)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return (list, (list(self),))

    def _refused(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("a union list can only be appended to or cleared, because every task has all of it")

    insert = pop = remove = reverse = sort = __setitem__ = __delitem__ = __imul__ = _refused


class OperatorCell(Protocol):
    """One list while functions of its task run."""

    changed: bool

    def clear(self) -> None:
        """Removes all elements."""

    def keep(self) -> None:
        """A call has returned: its changes stay.

        Raises:
            StateOverflowError: the list is too large.
        """

    def undo(self) -> None:
        """A call has failed: its changes are undone."""

    def part(self) -> Part:
        """Returns the task's part, after all of its keys."""


class _Weighed:
    """Adds elements, and detects when there may be too many."""

    def __init__(self, uid: str, of: OperatorList, codec: Codec) -> None:
        self._uid, self._of, self._codec = uid, of, codec
        self._bytes = 0
        self.changed = False

    def copy_in(self, value: Any) -> Any:
        """Returns a copy of an element that the author adds."""
        try:
            plain = self._codec.dump(value)
        except (TypeError, DoesNotFit, UnicodeEncodeError) as error:
            raise type_of(error)(f"{self._of.name}: {error}") from None
        self._bytes += json_size(value_to_json(self._of.element, plain))
        self.changed = True
        return self._codec.copy(plain)

    def _loaded(self, elements: Iterable[Any]) -> list[Any]:
        return [self._codec.copy(value_from_json(self._of.element, e)) for e in elements]

    def _dumped(self, values: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(value_to_json(self._of.element, self._codec.dump(v)) for v in values)

    def _weigh(self, values: Iterable[Any]) -> None:
        """Counts again only if the elements added since the last count could be too many."""
        if self._bytes > BOUND:
            self._bytes = sum(map(json_size, self._dumped(values)))
            if self._bytes > BOUND:
                raise too_large(self._uid, self._of.name, self._bytes)

    def _checked(self, value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise TypeError(f"{self._of.name}: {value!r:.200} is not a list")
        return list(value)


class SplitCell(_Weighed):
    """A field `state.split_list()`: a slice that its task changes freely."""

    def __init__(self, uid: str, of: OperatorList, codec: Codec, given: Iterable[Any]) -> None:
        super().__init__(uid, of, codec)
        self._kept = self._loaded(given)
        self._live = self._make_list(self._kept)

    def record_change(self) -> int:
        """Records that the author changed the list; its elements have no access times."""
        self.changed = True
        return 0

    def get(self) -> LiveList:
        """Returns the task's slice."""
        return self._live

    def set(self, value: Any) -> None:
        """Replaces the slice."""
        if value is not self._live:
            self._live = self._make_list([self.copy_in(v) for v in self._checked(value)])
            self.record_change()

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
        self._live = self._make_list(self._kept)

    def part(self) -> Part:
        """See `OperatorCell`."""
        return Part(elements=self._dumped(self._kept))

    def _make_list(self, values: Sequence[Any]) -> LiveList:
        return LiveList(self, values, [0] * len(values))


class UnionCell(_Weighed):
    """A field `state.union_list()`: the whole list, and the elements that the task appends."""

    def __init__(self, uid: str, of: OperatorList, codec: Codec, given: Iterable[Any]) -> None:
        super().__init__(uid, of, codec)
        self._live = UnionList(self, self._loaded(given))
        self._old, self._cleared = len(self._live), False
        self._kept = (list(self._live), self._old, self._cleared)

    def record_clear(self) -> None:
        """Records that the author cleared the list."""
        self._old, self._cleared, self.changed = 0, True, True

    def get(self) -> UnionList:
        """Returns the old elements, unless the task cleared them, and those that it appended."""
        return self._live

    def set(self, value: Any) -> None:
        """Clears the list and appends elements."""
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
    """Returns the error for operator state that does not fit into a manifest."""
    return StateOverflowError(
        f"state overflow: {uid}: operator state {name}: {size:,} bytes as JSON, the limit is {BOUND:,} per operator",
        safe="every completed checkpoint is intact; nothing was published.",
        next="keep fewer or smaller elements, or keep them by key: operator state is stored in the manifest.",
    )
