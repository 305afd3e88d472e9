"""IntervalJoin: pairs the records of two inputs by key, if their event times are close enough."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from tidemark.declare.outputs import EmittedOutput, check_outputs
from tidemark.declare.watermark import as_duration, check_clock
from tidemark.errors import DeclarationError
from tidemark.model.core.names import checked_name
from tidemark.model.core.types import KEY_KINDS, KEY_WORDS, FieldType, holds_map
from tidemark.model.schema.interval_joins import (
    LEFT,
    MATCHED,
    POSITION,
    RECORDS,
    RIGHT,
    SIDE,
    SIDES,
    StoredJoin,
    joined_struct,
)
from tidemark.model.schema.operator_schema import KeyColumn, OperatorSchema, StoredField, window_columns

if TYPE_CHECKING:
    from tidemark.declare.sources import KafkaSource
    from tidemark.sinks.sink import Sink

_MS = timedelta(milliseconds=1)
_NEGATIVE = re.compile(r"\s*-\s*(.+)")


@dataclass(frozen=True, slots=True)
class SelectedField:
    """One field of the rows of a join: its name, the side whose record has it, and the path there."""

    name: str
    side: str
    path: str


@dataclass(frozen=True)
class IntervalJoin:
    """Pairs records of two inputs with the same key whose event times are close enough, like Flink's interval join.

    >>> from dataclasses import dataclass
    >>> from datetime import datetime
    >>> from tidemark import IntervalJoin, KafkaSource, Pipeline, Watermark
    >>> @dataclass(frozen=True)
    ... class Order:
    ...     id: str
    ...     at: datetime
    >>> @dataclass(frozen=True)
    ... class Shipment:
    ...     order_id: str
    ...     carrier: str
    ...     at: datetime
    >>> @dataclass(frozen=True)
    ... class Shipped:
    ...     order: str
    ...     carrier: str | None
    >>> shipped = IntervalJoin(
    ...     "shipped",
    ...     left="orders",
    ...     right="shipments",
    ...     key_by={"orders": "id", "shipments": "order_id"},
    ...     within=("0m", "7d"),
    ...     how="left",
    ...     select={"order": "orders.id", "carrier": "shipments.carrier"},
    ...     emits=Shipped,
    ... )
    >>> sources = {
    ...     "orders": KafkaSource("orders", Order, event_time="at", watermark=Watermark(delay="1m")),
    ...     "shipments": KafkaSource("shipments", Shipment, event_time="at", watermark=Watermark(delay="1m")),
    ... }
    >>> Pipeline(name="shop", sources=sources, operators=[shipped]).uids
    ('shipped',)

    A pair is emitted once, in the checkpoint that reads the later of its records. Its event time is the later one of
    both. A record before the operator's frontier is late: a dead letter, because it may have lost partners.

    Attributes:
        uid: as in `Fold`.
        left: a source, or an operator that emits, by its name.
        right: another one.
        key_by: for each input its record field, or fields in the same order and of the same types.
        within: the least and the greatest event time of the right record minus that of the left one, both inclusive, as
            timedeltas or as texts such as `"7d"` and `"-1h"`.
        select: for each field of `emits` the input and the field of its record, as in `"orders.id"`.
        emits: the dataclass of the pairs.
        how: `inner`, or `left`: a left record that found no partner comes alone, when none can come any more. Fields of
            the right record are then null.
        lateness: how far the frontier stays behind the clock, which is that of the slower input.
        closes_by: as in `Fold`.
        sink: where the pairs go; None = only to operators that name this one as `input`.
        was: the previous uid of a renamed operator: its state is carried over.
    """

    uid: str
    left: str = field(kw_only=True)
    right: str = field(kw_only=True)
    key_by: Mapping[str, str | Sequence[str]] = field(kw_only=True, hash=False)
    within: tuple[str | timedelta, str | timedelta] = field(kw_only=True)
    select: Mapping[str, str] = field(kw_only=True, hash=False)
    emits: type = field(kw_only=True)
    how: Literal["inner", "left"] = field(default="inner", kw_only=True)
    lateness: str | timedelta = field(default="0s", kw_only=True)
    closes_by: Literal["watermark", "logical_time"] = field(default="watermark", kw_only=True)
    sink: "Sink | None" = field(default=None, kw_only=True)
    was: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        for name in (self.uid, self.was) if self.was else (self.uid,):
            checked_name("uid", name)
        _check_options(self)
        object.__setattr__(self, "key_by", keys_of_inputs(self.uid, self.inputs, self.key_by))
        object.__setattr__(self, "select", dict(self.select))
        check_outputs(self.uid, self.outputs)
        _check_select(self)
        if self.bounds_ms[0] > self.bounds_ms[1]:
            raise DeclarationError(
                f"{self.uid}: within={self.within!r}: the first one is greater",
                next='give the least distance first, as in within=("-1h", "1h").',
            )

    @property
    def inputs(self) -> tuple[str, str]:
        """The left and the right input."""
        return (self.left, self.right)

    @property
    def input(self) -> None:
        """None: it has two inputs."""

    @property
    def publish(self) -> tuple[()]:
        """Nothing: its state is what waits for partners. Publish an operator that reads its rows."""
        return ()

    @property
    def outputs(self) -> tuple[EmittedOutput, ...]:
        """Its only output."""
        return (EmittedOutput(self.uid, self.emits, self.sink),)

    @property
    def lateness_ms(self) -> int:
        """The lateness in milliseconds."""
        return as_duration(f"{self.uid}: lateness", self.lateness) // _MS

    @property
    def clock_of_frontier(self) -> str:
        """The clock that its frontier follows."""
        return self.closes_by

    @property
    def bounds_ms(self) -> tuple[int, int]:
        """Both of `within` in milliseconds."""
        lower, upper = (_signed(f"{self.uid}: within", given) // _MS for given in self.within)
        return lower, upper

    @property
    def window(self) -> StoredJoin:
        """The join as schemas store it: keys, distances, and how long rows are kept."""
        lower, upper = self.bounds_ms
        return StoredJoin(
            how=self.how,
            lower_ms=lower,
            upper_ms=upper,
            keys=tuple(zip(self.key_by[self.left], self.key_by[self.right], strict=True)),
            inputs=self.inputs,
        )

    @property
    def selected(self) -> tuple[SelectedField, ...]:
        """The fields of a pair, in the order of `emits`."""
        return tuple(_selected(self, name, self.select[name]) for name, _ in self.outputs[0].emitted.fields)

    def bind(self, left: FieldType, right: FieldType) -> OperatorSchema:
        """Returns the stored schema for the records of both inputs.

        Args:
            left: the struct of a left record.
            right: the struct of a right record.

        Raises:
            DeclarationError: a field does not exist, or two types do not fit.
        """
        records = {LEFT: left, RIGHT: right}
        for name, record in zip(self.inputs, records.values(), strict=True):
            if holds_map(record):
                raise DeclarationError(
                    f"{self.uid}: a record of {name} contains a dict, which a join cannot keep",
                    next="put a FlatMap before it that emits the fields that you need.",
                )
        _check_types(self, records)
        keys = _key_columns(self, records)
        text = FieldType("str")
        places = [KeyColumn(name, of, text, of_window=True) for name, of in ((SIDE, "side"), (POSITION, "position"))]
        joined = joined_struct({key.name: key.type for key in keys}, left, right)
        columns = [(RECORDS[side], side) for side in SIDES] + [(MATCHED, "matched")]
        return OperatorSchema(
            self.uid,
            (*keys, *places, *window_columns(self.window)),
            tuple(_kept(name, path, dict(joined.fields)[path]) for name, path in columns),
            window=self.window,
            was=self.was,
        )


def _kept(name: str, path: str, of: FieldType) -> StoredField:
    # Of all operands of a row one has the record, and the mark is true or null, so the greatest one is the value.
    return StoredField(name=name, kind="max", source=path, over=of, type=of)


def _signed(what: str, given: str | timedelta) -> timedelta:
    negative = isinstance(given, str) and _NEGATIVE.fullmatch(given)
    if negative:
        return -as_duration(what, negative[1])
    return -as_duration(what, -given) if isinstance(given, timedelta) and given < _MS else as_duration(what, given)


def _check_options(join: IntervalJoin) -> None:
    if join.left == join.right or not all(isinstance(name, str) and name for name in join.inputs):
        raise DeclarationError(
            f"{join.uid}: left={join.left!r}, right={join.right!r}",
            next="name two different inputs; to join records of one topic, put a FlatMap before one side.",
        )
    if join.how not in ("inner", "left"):
        raise DeclarationError(
            f"{join.uid}: how={join.how!r}", next='give "inner" or "left"; swap the inputs for the other side.'
        )
    check_clock(f"{join.uid}: closes_by", join.closes_by)
    if not (isinstance(join.within, tuple | list) and len(join.within) == 2):
        raise DeclarationError(
            f"{join.uid}: within={join.within!r}", next='give two distances, as in within=("0m", "7d").'
        )
    object.__setattr__(join, "within", tuple(join.within))
    as_duration(f"{join.uid}: lateness", join.lateness)
    if join.sink is not None and not join.sink.traits.is_transactional:
        raise DeclarationError(
            f"{join.uid}: {type(join.sink).__name__} for a join", next="give a DeltaSink: no other is ready yet."
        )


def keys_of_inputs(
    uid: str, inputs: Sequence[str], given: Mapping[str, str | Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    """Returns the key fields of each input.

    Args:
        uid: the operator.
        inputs: its inputs.
        given: a field or several of each.

    Raises:
        DeclarationError: an input is missing, or their numbers of fields differ.
    """
    if not isinstance(given, Mapping) or set(given) != {*inputs}:
        named = ", ".join(f'"{name}": "id"' for name in inputs)
        raise DeclarationError(
            f"{uid}: key_by={given!r}", next=f"give the key of each input, as in key_by={{{named}}}."
        )
    found = {name: (of,) if isinstance(of := given[name], str) else tuple(of) for name in inputs}
    first = found[inputs[0]]
    if not first or any(len(of) != len(first) for of in found.values()) or len(set(first)) != len(first):
        raise DeclarationError(f"{uid}: key_by={given!r}", next="name as many fields of each input, in order.")
    return found


def _key_columns(join: IntervalJoin, records: Mapping[str, FieldType]) -> tuple[KeyColumn, ...]:
    """The key columns, named as the fields of the left record; they are read from the joined record."""
    found = []
    pairs = zip(join.key_by[join.left], join.key_by[join.right], strict=True)
    for paths in pairs:
        types = []
        for side, name, path in zip(SIDES, join.inputs, paths, strict=True):
            of = records[side].at(path)
            if of is None or of.kind not in KEY_KINDS:
                problem = f"{name} has no such field" if of is None else f"a {of.kind} cannot be a key"
                raise DeclarationError(f"{join.uid}: key_by={path!r}: {problem}", next=f"key by {KEY_WORDS}.")
            types.append(of.stored.with_null(False))
        if types[0] != types[1]:
            raise DeclarationError(
                f"{join.uid}: {paths[0]} of {join.left} is {types[0].sql}, {paths[1]} of {join.right} {types[1].sql}",
                next="key by fields of one type.",
            )
        name = paths[0].rpartition(".")[2]
        found.append(KeyColumn(name, f"key.{name}", types[0]))
    names = [key.name.lower() for key in found]
    taken = {SIDE, POSITION, MATCHED, *RECORDS.values(), "window_start", "window_end"}
    if len(set(names)) < len(names) or taken.intersection(names):
        raise DeclarationError(
            f"{join.uid}: key columns called {', '.join(names)}", next="rename a field of the left record."
        )
    return tuple(found)


def _check_select(join: IntervalJoin) -> None:
    names = [name for name, _ in join.outputs[0].emitted.fields]
    if set(names) != {*join.select}:
        raise DeclarationError(
            f"{join.uid}: select= names {', '.join(join.select) or 'nothing'}, {join.emits.__name__} has"
            f" {', '.join(names)}",
            next="name each field of it once.",
        )
    for name, path in join.select.items():
        _selected(join, name, path)


def _selected(join: IntervalJoin, name: str, path: str) -> SelectedField:
    for side, of in zip(SIDES, join.inputs, strict=True):
        if isinstance(path, str) and path.startswith(f"{of}."):
            return SelectedField(name, side, path.removeprefix(f"{of}."))
    raise DeclarationError(
        f"{join.uid}: select={{{name!r}: {path!r}}}",
        next=f'name an input and a field of its record, as in "{join.left}.id"; for expressions put a FlatMap behind.',
    )


def _check_types(join: IntervalJoin, records: Mapping[str, FieldType]) -> None:
    emitted = join.outputs[0].emitted
    for found in join.selected:
        at, of, wanted = (
            f"{join.uid}: select {found.name!r}",
            records[found.side].at(found.path),
            emitted.at(found.name),
        )
        if of is None or wanted is None:
            name = dict(zip(SIDES, join.inputs, strict=True))[found.side]
            raise DeclarationError(f"{at}: {name} has no field {found.path!r}", next="name a field of its record.")
        if of.with_null(True) != wanted.with_null(True):
            raise DeclarationError(
                f"{at} is {of.shown}, {join.emits.__name__} declares {wanted.shown}", next="give both the same type."
            )
        may_be_null = of.nullable or (found.side == RIGHT and join.how == "left")
        if may_be_null and not wanted.nullable:
            raise DeclarationError(f"{at} may be null", next=f"declare `{found.name}: ... | None`.")


def bind_join(join: IntervalJoin, sources: "Mapping[str, KafkaSource]", records: Sequence[FieldType]) -> OperatorSchema:
    """Returns the stored schema of a join in a pipeline; see `IntervalJoin.bind`.

    Raises:
        DeclarationError: an input has changes of rows, or the records do not fit.
    """
    for name in join.inputs:
        if name in sources and sources[name].format.has_changes:
            raise DeclarationError(
                f"{join.uid}: {name} has changes of rows, and a join takes records",
                next="put a Process before the join that emits records.",
            )
    left, right = records
    return join.bind(left, right)
