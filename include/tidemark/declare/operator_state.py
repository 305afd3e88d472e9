"""Operator state, which belongs to no key: declare a class with one field per list (Flink's operator list state).

    class Local(state.Operator):
        samples: list[str] = state.split_list()
        rules: list[str] = state.union_list()

Each parallel task has its own lists: a slice of a split list, the whole of a union list. Use them for small things that
belong to no key: a few samples, offsets of an external system, rules found in the data. They are stored in the
manifest, with at most `model.operator_state.BOUND` bytes per operator. For the state of a key use `state.Keyed`, for a
table that all keys look into a broadcast state.
"""

import inspect
from dataclasses import dataclass, is_dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform, get_args, get_origin, get_type_hints

from tidemark.declare.timer_options import takes
from tidemark.errors import DeclarationError
from tidemark.model.checkpoint.segments import Redistribution
from tidemark.model.core.names import checked_field
from tidemark.model.core.types import FieldType, field_type

if TYPE_CHECKING:
    from tidemark.declare.operators import Process

__all__ = ["ListDescriptor", "Operator", "check_lists", "split_list", "union_list"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListDescriptor:
    """One declared list of operator state.

    Attributes:
        mode: how the list is distributed over tasks.
        name: name of the field; set when the class is created, as are the following.
        element: type of its elements.
        hint: the annotation of its elements, resolved.
        was: the previous name of a renamed field.
    """

    mode: Redistribution
    name: str = ""
    element: FieldType = FieldType("int")
    hint: Any = None
    was: str = ""


def split_list(*, was: str = "") -> Any:
    """Declares a list that is divided over the parallel tasks.

    Each task has a contiguous slice, which it may change freely. A checkpoint stores the slices one after the other, in
    the order of tasks. The next one divides the list again, over as many tasks as it has, so every division must be
    legal.

    Args:
        was: see `ListDescriptor`.
    """
    return ListDescriptor(mode=Redistribution.SPLIT, was=was)


def union_list(*, was: str = "") -> Any:
    """Declares a list that every parallel task gets whole, and may only append to or clear.

    A task sees the elements of the previous checkpoint and those that it appends itself. A checkpoint stores the old
    elements, or none if any task has cleared the list, followed by what the tasks appended, in the order of tasks. Of a
    task that cleared the list, only later elements count. Assigning a list clears it and appends the
    elements.

    Args:
        was: see `ListDescriptor`.
    """
    return ListDescriptor(mode=Redistribution.UNION, was=was)


@dataclass_transform(kw_only_default=True)
class Operator:
    """Base of the classes that declare operator state; an instance holds the lists of one task.

    >>> from tidemark import state
    >>> class Local(state.Operator):
    ...     samples: list[str] = state.split_list()
    >>> local = Local()
    >>> local.samples
    []
    """

    descriptors: ClassVar[tuple[ListDescriptor, ...]] = ()

    def __init_subclass__(cls) -> None:
        inherited = {d.name: d for base in reversed(cls.__mro__[1:]) for d in base.__dict__.get("descriptors", ())}
        own: dict[str, ListDescriptor] = {}
        # Without annotations the class declares no lists, or a worker is unpickling it by value and sets the fields
        # next.
        if "__annotations__" in cls.__dict__:
            hints = get_type_hints(cls, include_extras=True)
            own = {n: _described(cls, n, hints[n]) for n in inspect.get_annotations(cls)}
        cls.descriptors = tuple((inherited | own).values())

    def __init__(self, **values: Any) -> None:
        names = [d.name for d in type(self).descriptors]
        for name in values:
            if name not in names:
                raise TypeError(f"{type(self).__name__} has no field {name!r}")
        for name in names:
            object.__setattr__(self, name, values.get(name, []))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"


def _described(cls: type, name: str, hint: Any) -> ListDescriptor:
    where, declared = f"{cls.__name__}.{name}", cls.__dict__.get(name)
    if not isinstance(declared, ListDescriptor):
        raise DeclarationError(
            f"{where} is not a list of operator state", next=f"write `{name}: list[...] = state.split_list()`."
        )
    if declared.was:
        checked_field(declared.was)
    if name == "clear":
        raise DeclarationError(f"{where}: `clear` is a method of every state class", next="rename the field.")
    found = field_type(hint, where)
    if found.kind != "list" or found.nullable or found.element is None:
        raise DeclarationError(f"{where}: operator state must be a list, not {found.kind}", next="declare list[...].")
    (element,) = get_args(hint)
    if _can_change(element):
        raise DeclarationError(
            f"{where}: the elements are mutable", next="use scalars or frozen dataclasses of scalars."
        )
    return replace(declared, name=checked_field(name), element=found.element, hint=element)


def _can_change(hint: Any) -> bool:
    """Whether a value is mutable: the list would not notice a change, and an undone call would leave a trace."""
    if get_origin(hint) in (list, dict):
        return True
    if isinstance(hint, type) and is_dataclass(hint):
        frozen: bool = getattr(hint, "__dataclass_params__").frozen  # noqa: B009  (unknown to the type checker)
        return not frozen or any(map(_can_change, get_type_hints(hint).values()))
    return any(map(_can_change, get_args(hint)))


def check_lists(process: "Process") -> None:
    """Checks what a process declares of operator state.

    Raises:
        DeclarationError: the class is none, or the function and the declaration do not fit together.
    """
    declared = process.operator_state
    is_taken = takes(process.function, "operator_state")
    if declared is None and is_taken:
        raise DeclarationError(
            f"{process.uid}: the function takes operator_state, but none is declared",
            next="declare it: Process(..., operator_state=...), a class derived from state.Operator.",
        )
    if declared is None:
        return
    if not (isinstance(declared, type) and issubclass(declared, Operator) and declared.descriptors):
        raise DeclarationError(
            f"{process.uid}: operator_state={declared!r}",
            next="give a class derived from state.Operator, with at least one list.",
        )
    if not is_taken:
        raise DeclarationError(
            f"{process.uid}: the function does not take its operator state",
            next="give it a keyword-only parameter: def function(key, records, remembered, *, operator_state).",
        )
