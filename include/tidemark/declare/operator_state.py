"""What an operator remembers beside its keys: declare a class, one field per list (Flink's operator list state).

    class Local(state.Operator):
        samples: list[str] = state.split_list()
        rules: list[str] = state.union_list()

Each parallel task has lists of its own: of a split list a slice, of a union list all of it (A9, A10). They are for
what belongs to no key and stays small: a few samples, offsets of something outside, rules met on the way. They lie
inside the manifest, at most `model.operator_state.BOUND` bytes per operator. A key's state is `state.Keyed`; a table
that all keys look into is a broadcast state.
"""

import inspect
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, ClassVar, dataclass_transform, get_args, get_origin, get_type_hints

from tidemark.errors import DeclarationError
from tidemark.model.checkpoint.operator_lists import Redistribution
from tidemark.model.core.names import checked_field
from tidemark.model.core.types import FieldType, field_type

__all__ = ["ListDescriptor", "Operator", "split_list", "union_list"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListDescriptor:
    """One declared list of operator state.

    Attributes:
        mode: what a task gets of it.
        name: the field's name; set when the class is made, as are the following.
        element: type of its elements.
        hint: the annotation of its elements, resolved.
        was: the name that the field had before, where it was renamed.
    """

    mode: Redistribution
    name: str = ""
    element: FieldType = FieldType("int")
    hint: Any = None
    was: str = ""


def split_list(*, was: str = "") -> Any:
    """A list that is divided over the parallel tasks: each has a contiguous slice, and changes it as it likes.

    A checkpoint holds the slices one behind the other, in order of tasks; the next one divides that anew, over as many
    tasks as it has. So any division must be legal (A9).

    Args:
        was: see `ListDescriptor`.
    """
    return ListDescriptor(mode=Redistribution.SPLIT, was=was)


def union_list(*, was: str = "") -> Any:
    """A list that every parallel task gets whole, and may only add to or clear (A10).

    A task sees what the checkpoint before left and what it adds itself. A checkpoint holds the old elements, or none
    where any task has cleared the list, and then what the tasks added, in order of tasks; of a task that cleared it
    what it added afterwards. To assign a list is to clear it and to add elements.

    Args:
        was: see `ListDescriptor`.
    """
    return ListDescriptor(mode=Redistribution.UNION, was=was)


@dataclass_transform(kw_only_default=True)
class Operator:
    """Base of a class of operator state. An instance is what one task has; `Local()` is that of the very first."""

    descriptors: ClassVar[tuple[ListDescriptor, ...]] = ()

    def __init_subclass__(cls) -> None:
        inherited = {d.name: d for base in reversed(cls.__mro__[1:]) for d in base.__dict__.get("descriptors", ())}
        own: dict[str, ListDescriptor] = {}
        # Without annotations it has nothing of its own; or it is unpickled by value, and its fields follow at once.
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
            f"{where} is no list of operator state", next=f"write `{name}: list[...] = state.split_list()`."
        )
    if declared.was:
        checked_field(declared.was)
    if name == "clear":
        raise DeclarationError(f"{where}: `clear` is a method of every state class", next="rename the field.")
    found = field_type(hint, where)
    if found.kind != "list" or found.nullable or found.element is None:
        raise DeclarationError(f"{where}: operator state is a list, declared {found.kind}", next="declare list[...].")
    (element,) = get_args(hint)
    if _can_change(element):
        raise DeclarationError(
            f"{where}: elements that change in place", next="use scalars or frozen dataclasses of scalars."
        )
    return replace(declared, name=checked_field(name), element=found.element, hint=element)


def _can_change(hint: Any) -> bool:
    """Whether a value can change in place: its list would not notice, and an undone call would leave a trace."""
    if get_origin(hint) in (list, dict):
        return True
    if isinstance(hint, type) and is_dataclass(hint):
        frozen: bool = getattr(hint, "__dataclass_params__").frozen  # noqa: B009  (unknown to the type checker)
        return not frozen or any(map(_can_change, get_type_hints(hint).values()))
    return any(map(_can_change, get_args(hint)))
