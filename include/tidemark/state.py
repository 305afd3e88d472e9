"""What is remembered per key: declare a class, one field per accumulator.

    class Aircraft(state.Keyed):
        flights: int = state.count()
        distance: int = state.sum("distance")
        last_airport: str | None = state.latest("destination")

The field kinds are Flink's ReducingState and AggregatingState (A5, A6): each is an associative pair (partial over
the records of one batch, merge of two partials), so that a checkpoint writes merge operands without reading old
state, and compaction may regroup them.
"""

import inspect
from dataclasses import dataclass, replace
from typing import Any, ClassVar, dataclass_transform, get_type_hints

from tidemark.errors import DeclarationError
from tidemark.model.names import checked_field
from tidemark.model.types import FieldType, Precision, field_type

__all__ = [
    "Keyed",
    "Precision",
    "StateDescriptor",
    "count",
    "distinct",
    "first",
    "latest",
    "max",
    "mean",
    "min",
    "sum",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDescriptor:
    """One declared field of keyed state (A7): a name, a kind, a type; the rows are elsewhere.

    Attributes:
        kind: `count sum min max first latest mean distinct`.
        source: dotted path of the record field that is folded; empty for `count`.
        name: the field's name; set when the class is made.
        type: its stored type; set when the class is made.
        ignore_nulls: `first` and `latest` skip records in which the field is null.
        limit: of `distinct`: more values than this are an error that names the key.
    """

    kind: str
    source: str = ""
    name: str = ""
    type: FieldType = FieldType("int")
    ignore_nulls: bool = False
    limit: int = 1000

    @property
    def default(self) -> object:
        """What a key without records has."""
        return {"count": 0, "distinct": []}.get(self.kind)


def count() -> int:
    """Number of records of the key."""
    made: int = _field("count")
    return made


def sum(source: str) -> Any:  # noqa: A001
    """Sum of a number over the records in which it is not null; null where there is none.

    An integer that leaves 64 bits is a `StateOverflowError` naming the key. A floating-point sum is not exact:
    it depends on where barriers cut, so it stays out of state hashes.
    """
    return _field("sum", source)


def min(source: str) -> Any:  # noqa: A001
    """Least value that is not null."""
    return _field("min", source)


def max(source: str) -> Any:  # noqa: A001
    """Greatest value that is not null."""
    return _field("max", source)


def first(source: str, *, ignore_nulls: bool = False) -> Any:
    """The field of the earliest record by (event time, topic, partition, offset), null included."""
    return _field("first", source, ignore_nulls=ignore_nulls)


def latest(source: str, *, ignore_nulls: bool = False) -> Any:
    """The field of the latest record by (event time, topic, partition, offset), null included."""
    return _field("latest", source, ignore_nulls=ignore_nulls)


def mean(source: str) -> Any:
    """Arithmetic mean of the values that are not null, as a float; exact where the values are integers or decimals."""
    return _field("mean", source)


def distinct(source: str, *, limit: int = 1000) -> Any:
    """The distinct values that are not null, sorted.

    Args:
        source: the record field.
        limit: a key with more values is a `StateOverflowError` naming the key.
    """
    if limit < 1:
        raise DeclarationError(f"distinct({source!r}, limit={limit})", next="give a limit of at least 1.")
    return _field("distinct", source, limit=limit)


def _field(kind: str, source: str = "", **options: Any) -> Any:
    if kind != "count" and not (isinstance(source, str) and source):
        raise DeclarationError(
            f"state.{kind}({source!r})", next="name the record field to fold, as in state.sum('distance')."
        )
    return StateDescriptor(kind=kind, source=source, **options)


# Without field specifiers each field counts as one with a default, so that `Aircraft()` and `Aircraft(flights=3)`
# type-check, and an unknown name or a wrong type does not.
@dataclass_transform(kw_only_default=True)
class Keyed:
    """Base of a state class. An instance is the state of one key; `Aircraft()` is that of a key without records."""

    descriptors: ClassVar[tuple[StateDescriptor, ...]] = ()

    def __init_subclass__(cls) -> None:
        hints = get_type_hints(cls, include_extras=True)
        inherited = {d.name: d for base in reversed(cls.__mro__[1:]) for d in base.__dict__.get("descriptors", ())}
        own = {n: _described(cls, n, hints[n]) for n in inspect.get_annotations(cls)}
        cls.descriptors = tuple((inherited | own).values())
        if not cls.descriptors:
            raise DeclarationError(
                f"{cls.__name__} remembers nothing", next="declare a field, as in `n: int = state.count()`."
            )

    def __init__(self, **values: Any) -> None:
        known = {d.name: d for d in type(self).descriptors}
        for name in values:
            if name not in known:
                raise TypeError(f"{type(self).__name__} has no field {name!r}")
        for name, descriptor in known.items():
            default = descriptor.default
            fallback = list(default) if isinstance(default, list) else default
            object.__setattr__(self, name, values.get(name, fallback))

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
    return _typed(declared, checked_field(name), field_type(hint, where), where)


def _typed(declared: StateDescriptor, name: str, found: FieldType, where: str) -> StateDescriptor:
    wanted = {"count": "int", "mean": "float", "distinct": "list"}.get(declared.kind)
    if wanted is not None and found.kind != wanted:
        raise DeclarationError(
            f"{where}: state.{declared.kind} is {wanted}, declared {found.kind}", next=f"declare {wanted}."
        )
    return replace(declared, name=name, type=found.with_null(declared.kind not in ("count", "distinct")))
