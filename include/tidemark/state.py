"""State per key: declare a class with one field per piece of state.

    class Aircraft(state.Keyed):
        flights: int = state.count()
        distance: int = state.sum("distance")
        last_airport: str | None = state.latest("destination", ttl=timedelta(days=30))

Kinds that take a record field or an expression (`count sum min max first latest mean distinct list aggregate reduce`)
are for a `Fold`: Flink's ReducingState and AggregatingState. Each is a pair of functions: one computes a partial result
over the records of a batch, the other merges two partial results and is associative. So a checkpoint writes merge
operands without reading old state, and compaction may regroup them. Kinds without one (`value list map`) are for a
`Process`: Flink's ValueState, ListState and MapState. State that belongs to no key is declared in a class derived from
`Operator`.

Every kind takes `ttl=`, a timedelta or a `state.Ttl` with all options of Flink's StateTtlConfig, and `was=`, the
previous name of a renamed field.
"""

import inspect
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform, get_type_hints

from tidemark.declare.operator_state import Operator as Operator
from tidemark.declare.operator_state import split_list as split_list
from tidemark.declare.operator_state import union_list as union_list
from tidemark.errors import DeclarationError
from tidemark.model.core.names import checked_field
from tidemark.model.core.ttl import Ttl as Ttl
from tidemark.model.core.types import Precision as Precision
from tidemark.model.core.types import field_type
from tidemark.model.kinds.base.kind import StateDescriptor as StateDescriptor
from tidemark.model.kinds.base.kind import annotate

_OWN = ("Keyed", "Operator", "Precision", "StateDescriptor", "Ttl", "split_list", "union_list")
_KINDS = "tidemark.model.kinds"

if TYPE_CHECKING:
    from tidemark.model.kinds.registry import *  # noqa: F403  (one function per kind)
else:

    def __getattr__(name: str) -> Any:
        """Returns the function of a kind from its file: a pipeline imports only the kinds that it declares."""
        if name == "__all__":
            return __dir__()
        if name[0] != "_" and find_spec(f"{_KINDS}.{name}") is not None:
            made = getattr(import_module(f"{_KINDS}.{name}"), name, None)
            if made is not None:
                return globals().setdefault(name, made)
        raise AttributeError(f"module 'tidemark.state' has no attribute {name!r}")


def __dir__() -> Sequence[str]:
    return sorted([*_OWN, *(name for name in vars(import_module(f"{_KINDS}.registry")) if name[0] != "_")])


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
