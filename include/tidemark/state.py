"""What is remembered per key: declare a class, one field per piece of state.

    class Aircraft(state.Keyed):
        flights: int = state.count()
        distance: int = state.sum("distance")
        last_airport: str | None = state.latest("destination", ttl=timedelta(days=30))

The kinds with a record field or a text (`count sum min max first latest mean distinct list aggregate reduce`) are for a
`Fold`: Flink's ReducingState and AggregatingState (A5, A6). Each is an associative pair (partial over the records of
one batch, merge of two partials), so that a checkpoint writes merge operands without reading old state, and compaction
may regroup them. The kinds without one (`value list map`) are for a `Process`: Flink's ValueState, ListState, MapState
(A2-A4). What belongs to no key is declared in a class of its own, `Operator`. Every kind takes `ttl=`: a timedelta, or
a `state.Ttl` with all members of Flink's StateTtlConfig; and `was=`, the name that a renamed field had before.
"""

import inspect
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar, TypedDict, TypeVar, Unpack, dataclass_transform, get_type_hints, overload

from tidemark.errors import DeclarationError
from tidemark.model.aggregates import declared_aggregate, declared_reduce
from tidemark.model.descriptors import StateDescriptor, annotated
from tidemark.model.names import checked_field
from tidemark.model.ttl import Ttl, as_ttl
from tidemark.model.types import Precision, field_type
from tidemark.operator_state import Operator, split_list, union_list

__all__ = [
    "Keyed",
    "Operator",
    "Precision",
    "StateDescriptor",
    "Ttl",
    "aggregate",
    "count",
    "distinct",
    "first",
    "latest",
    "list",
    "map",
    "max",
    "mean",
    "min",
    "reduce",
    "split_list",
    "sum",
    "union_list",
    "value",
]

T = TypeVar("T")
_Ttl = timedelta | Ttl | None


@overload
def count(*, was: str = "") -> int: ...
@overload
def count(*, ttl: timedelta | Ttl, was: str = "") -> int | None: ...
def count(*, ttl: _Ttl = None, was: str = "") -> int | None:
    """Number of records of the key; null where a ttl has passed."""
    made: Any = _field("count", ttl=ttl, was=was)
    found: int | None = made
    return found


def sum(source: str, *, ttl: _Ttl = None, was: str = "") -> Any:  # noqa: A001
    """Sum of a number over the records in which it is not null; null where there is none.

    An integer that leaves 64 bits is a `StateOverflowError` naming the key. A floating-point sum is not exact:
    it depends on where barriers cut, so it stays out of state hashes.
    """
    return _field("sum", source, ttl=ttl, was=was)


def min(source: str, *, ttl: _Ttl = None, was: str = "") -> Any:  # noqa: A001
    """Least value that is not null."""
    return _field("min", source, ttl=ttl, was=was)


def max(source: str, *, ttl: _Ttl = None, was: str = "") -> Any:  # noqa: A001
    """Greatest value that is not null."""
    return _field("max", source, ttl=ttl, was=was)


def first(source: str, *, ignore_nulls: bool = False, ttl: _Ttl = None, was: str = "") -> Any:
    """The field of the earliest record by (event time, topic, partition, offset), null included."""
    return _field("first", source, ignore_nulls=ignore_nulls, ttl=ttl, was=was)


def latest(source: str, *, ignore_nulls: bool = False, ttl: _Ttl = None, was: str = "") -> Any:
    """The field of the latest record by (event time, topic, partition, offset), null included."""
    return _field("latest", source, ignore_nulls=ignore_nulls, ttl=ttl, was=was)


def mean(source: str, *, ttl: _Ttl = None, was: str = "") -> Any:
    """Arithmetic mean of the values that are not null, as a float; exact where the values are integers or decimals."""
    return _field("mean", source, ttl=ttl, was=was)


def distinct(source: str, *, limit: int = 1000, ttl: _Ttl = None, was: str = "") -> Any:
    """The distinct values that are not null, sorted.

    Args:
        source: the record field.
        limit: a key with more values is a `StateOverflowError` naming the key.
        ttl: of the whole set.
        was: see `StateDescriptor`.
    """
    return _field("distinct", source, limit=_checked_limit("distinct", limit), ttl=ttl, was=was)


def list(source: str = "", *, limit: int = 10_000, ttl: _Ttl = None, was: str = "") -> Any:  # noqa: A001
    """A list.

    In a `Fold`, with `source`: the field's values that are not null, checkpoint after checkpoint, within one in order
    of (topic, partition, offset). In a `Process`: a list that the function changes.

    Args:
        source: the record field; empty in a `Process`.
        limit: a key with more elements is a `StateOverflowError` naming the key (A3).
        ttl: of each element (B8).
        was: see `StateDescriptor`.
    """
    kind = "list" if source else "list_of_values"
    return StateDescriptor(kind=kind, source=source, limit=_checked_limit("list", limit), ttl=as_ttl(ttl), was=was)


class _Kept(TypedDict, total=False):
    """What every kind takes."""

    ttl: _Ttl
    was: str


def aggregate(
    *,
    accumulator: Mapping[str, Any],
    partial: Mapping[str, str],
    finish: str,
    merge: Mapping[str, str] | None = None,
    spark_only: bool = False,
    **kept: Unpack[_Kept],
) -> Any:
    """An aggregate of your own (Flink's AggregatingState), in the portable SQL subset.

    Args:
        accumulator: name to type of what is stored.
        partial: per accumulator one aggregate function over the records of a batch: `sum(delay * delay)`.
        finish: an expression over the accumulators, which readers see.
        merge: per accumulator the function that merges partials; it follows from the partial, and must agree.
        spark_only: take any Spark SQL; readers without Spark refuse the field, and `merge` must be associative.
        kept: `ttl=` of the whole; `was=`, the name that the field had before.
    """
    made = declared_aggregate(accumulator, partial, merge, finish, spark_only=spark_only)
    return StateDescriptor(kind="aggregate", aggregate=made, ttl=as_ttl(kept.get("ttl")), was=kept.get("was", ""))


def reduce(text: str, *, ttl: _Ttl = None, was: str = "") -> Any:
    """One aggregate function whose result is of the type of what it takes (Flink's ReducingState).

    Args:
        text: for instance `max(arrival_delay - departure_delay)`, in the portable SQL subset.
        ttl: of the whole.
        was: the name that the field had before.
    """
    return StateDescriptor(kind="reduce", aggregate=declared_reduce(text), ttl=as_ttl(ttl), was=was)


def value(initial: T, *, ttl: _Ttl = None, was: str = "") -> T:
    """One value of a `Process`, which its function reads and assigns.

    Args:
        initial: what a key without it has; None, a bool, a number, or a text.
        ttl: after it the function gets `initial` again; the annotation must then allow None, which SQL shows.
        was: see `StateDescriptor`.
    """
    made: Any = StateDescriptor(kind="value", initial=initial, ttl=as_ttl(ttl), was=was)
    found: T = made
    return found


def map(*, limit: int = 100_000, ttl: _Ttl = None, was: str = "") -> Any:  # noqa: A001
    """A dict of a `Process`, stored as a row per entry: only entries that changed are written.

    Args:
        limit: a key with more entries is a `StateOverflowError` naming the key.
        ttl: of each entry (B8).
        was: see `StateDescriptor`.
    """
    return StateDescriptor(kind="map", limit=_checked_limit("map", limit), ttl=as_ttl(ttl), was=was)


def _field(kind: str, source: str = "", *, ttl: _Ttl, **options: Any) -> StateDescriptor:
    if kind != "count" and not (isinstance(source, str) and source):
        raise DeclarationError(
            f"state.{kind}({source!r})", next="name the record field to fold, as in state.sum('distance')."
        )
    return StateDescriptor(kind=kind, source=source, ttl=as_ttl(ttl), **options)


def _checked_limit(kind: str, limit: int) -> int:
    if limit < 1:
        raise DeclarationError(f"state.{kind}(limit={limit})", next="give a limit of at least 1.")
    return limit


# Without field specifiers each field counts as one with a default, so that `Aircraft()` and `Aircraft(flights=3)`
# type-check, and an unknown name or a wrong type does not.
@dataclass_transform(kw_only_default=True)
class Keyed:
    """Base of a state class. An instance is the state of one key; `Aircraft()` is that of a key without records."""

    descriptors: ClassVar[tuple[StateDescriptor, ...]] = ()

    def __init_subclass__(cls) -> None:
        inherited = {d.name: d for base in reversed(cls.__mro__[1:]) for d in base.__dict__.get("descriptors", ())}
        if "__annotations__" not in cls.__dict__:
            # Nothing of its own; or a class that is unpickled by value on a worker, whose fields follow at once.
            cls.descriptors = tuple(inherited.values())
            return
        hints = get_type_hints(cls, include_extras=True)
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
            object.__setattr__(self, name, values.get(name, descriptor.default))

    def clear(self) -> None:
        """Forgets everything of the key: what it has afterwards is what a key without records has."""
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
    return replace(annotated(declared, checked_field(name), field_type(hint, where), where), hint=hint)
