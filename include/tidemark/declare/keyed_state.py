"""The base class of keyed state: a class with one field per piece of state of a key; see `tidemark.state`."""

import inspect
from dataclasses import replace
from typing import Any, ClassVar, dataclass_transform, get_type_hints

from tidemark.errors import DeclarationError
from tidemark.model.core.names import checked_field
from tidemark.model.core.types import field_type
from tidemark.model.kinds.base.kind import StateDescriptor, annotate


# Without field specifiers each field counts as one with a default. So `Aircraft()` and `Aircraft(flights=3)`
# type-check, while an unknown name or a wrong type does not.
@dataclass_transform(kw_only_default=True)
class Keyed:
    """Base of the classes that declare the state of one key; an instance holds the state of one key.

    >>> from tidemark import state
    >>> class Aircraft(state.Keyed):
    ...     flights: int = state.count()
    ...     distance: int = state.sum("distance")
    >>> Aircraft(flights=2, distance=800)
    Aircraft(flights=2, distance=800)

    Without arguments you get the state of a key that has no records yet:

    >>> Aircraft()
    Aircraft(flights=0, distance=None)
    """

    descriptors: ClassVar[tuple[StateDescriptor, ...]] = ()

    def __init_subclass__(cls) -> None:
        inherited = {d.name: d for base in reversed(cls.__mro__[1:]) for d in base.__dict__.get("descriptors", ())}
        if "__annotations__" not in cls.__dict__:
            # The class declares no fields, or a worker is unpickling it by value and sets the fields next.
            cls.descriptors = tuple(inherited.values())
            return
        hints = get_type_hints(cls, include_extras=True)
        own = {n: _described(cls, n, hints[n]) for n in inspect.get_annotations(cls)}
        cls.descriptors = tuple((inherited | own).values())
        if not cls.descriptors:
            raise DeclarationError(
                f"{cls.__name__} declares no state", next="declare a field, as in `n: int = state.count()`."
            )

    def __init__(self, **values: Any) -> None:
        known = {d.name: d for d in type(self).descriptors}
        for name in values:
            if name not in known:
                raise TypeError(f"{type(self).__name__} has no field {name!r}")
        for name, descriptor in known.items():
            object.__setattr__(self, name, values.get(name, descriptor.default))

    def clear(self) -> None:
        """Resets the state of the key to that of a key without records."""
        for descriptor in type(self).descriptors:
            setattr(self, descriptor.name, descriptor.default)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"


def _described(cls: type, name: str, hint: Any) -> StateDescriptor:
    declared = cls.__dict__.get(name)
    if not isinstance(declared, StateDescriptor):
        raise DeclarationError(
            f"{cls.__name__}.{name} is not a state field",
            next=f"write `{name}: ... = state.count()` or another kind.",
        )
    where = f"{cls.__name__}.{name}"
    if declared.was:
        checked_field(declared.was)
    if name == "clear":
        raise DeclarationError(f"{where}: `clear` is a method of every state class", next="rename the field.")
    return replace(annotate(declared, checked_field(name), field_type(hint, where), where), hint=hint)
