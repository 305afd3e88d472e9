"""CoProcess: a Process whose records come from several inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from tidemark.declare.interval_join import keys_of_inputs
from tidemark.declare.operators import Process, bind_key, bind_keys
from tidemark.errors import DeclarationError
from tidemark.model.core.types import FieldType
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.model.schema.united_records import KEY, united_struct

if TYPE_CHECKING:
    from tidemark.declare.sources import KafkaSource


@dataclass(frozen=True)
class CoProcess(Process):
    """A `Process` over the records of several inputs with the same key, like Flink's `CoProcessFunction`.

    >>> from dataclasses import dataclass
    >>> from tidemark import CoProcess, KafkaSource, Pipeline, state
    >>> @dataclass(frozen=True)
    ... class Order:
    ...     id: str
    ...     cents: int
    >>> @dataclass(frozen=True)
    ... class Payment:
    ...     order_id: str
    ...     cents: int
    >>> @dataclass(frozen=True)
    ... class Paid:
    ...     order: str
    >>> class Open(state.Keyed):
    ...     cents: int = state.value(0)
    >>> def settle(order, records, remembered):
    ...     for name, record in records:
    ...         remembered.cents += record.cents if name == "orders" else -record.cents
    ...         if not remembered.cents:
    ...             yield Paid(order)
    >>> paid = CoProcess(
    ...     "paid",
    ...     inputs=("orders", "payments"),
    ...     key_by={"orders": "id", "payments": "order_id"},
    ...     state=Open,
    ...     function=settle,
    ...     emits=Paid,
    ... )
    >>> sources = {"orders": KafkaSource("orders", Order), "payments": KafkaSource("payments", Payment)}
    >>> Pipeline(name="shop", sources=sources, operators=[paid]).uids
    ('paid',)

    The function gets pairs: the name of an input, and a record of it. Within a checkpoint they are ordered by event
    time, then input as in `inputs`, topic, partition and offset. A checkpoint may bring records that are older than
    those of the one before: all of them are handed over, none is late. Operators that read its rows follow the slower
    of its inputs.

    Attributes:
        inputs: two or more sources, or operators that emit, by their names.
        key_by: for each input its record field, or fields in the same order and of the same types. Columns have the
            names of the fields of the first input.
        reads: as in a `Process`; a field of an input is `<input>.<field>`.
    """

    inputs: Sequence[str] = field(kw_only=True)
    key_by: Mapping[str, str | Sequence[str]] = field(kw_only=True, hash=False)
    order: Literal["event_time"] = field(default="event_time", kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.inputs, str) or len(self.inputs) < 2 or len(set(self.inputs)) < len(self.inputs):
            raise DeclarationError(
                f"{self.uid}: inputs={self.inputs!r}",
                next='name different ones, as in inputs=("orders", "payments").',
            )
        object.__setattr__(self, "inputs", tuple(self.inputs))
        object.__setattr__(self, "key_by", keys_of_inputs(self.uid, self.inputs, self.key_by))
        _refuse(self)
        super().__post_init__()

    @property
    def clock_of_frontier(self) -> str:
        """The clock that its frontier follows: with or without timers, operators that read its rows follow it."""
        return self.fires_by

    def united(self, records: Sequence[FieldType]) -> FieldType:
        """Returns the struct that the records of all inputs become; see `model.schema.united_records`.

        Args:
            records: the struct of a record of each input, in order.

        Raises:
            DeclarationError: a key does not exist, cannot be a key, or has different types.
        """
        columns = []
        for name, record in zip(self.inputs, records, strict=True):
            columns.append([bind_key(f"{self.uid}: {name}", path, record) for path in self.key_by[name]])
        for name, its in zip(self.inputs[1:], columns[1:], strict=True):
            for one, other in zip(columns[0], its, strict=True):
                if one.type.stored != other.type.stored:
                    raise DeclarationError(
                        f"{self.uid}: {one.source} of {self.inputs[0]} is {one.type.sql},"
                        f" {other.source} of {name} {other.type.sql}",
                        next="key by fields of one type.",
                    )
        return united_struct({column.name: column.type for column in columns[0]}, records)

    def bind(self, record: FieldType) -> OperatorSchema:
        """Returns the stored schema for `united` records; see `Fold.bind`."""
        key = dict(record.fields)[KEY]
        columns = bind_keys(self.uid, {name: f"{KEY}.{name}" for name, _ in key.fields}, record)
        return replace(self.bound(columns, record), co_inputs=tuple(self.inputs))


def _refuse(process: CoProcess) -> None:
    given = {
        "where=": process.where,
        "input=": process.input,
        "order=": process.order != "event_time",
    }
    for what in (name for name, is_given in given.items() if is_given):
        raise DeclarationError(
            f"{process.uid}: {what} for a CoProcess",
            next="leave it out: name its inputs, filter before it or in it; records come by event time.",
        )


def bind_co_process(
    process: CoProcess, sources: "Mapping[str, KafkaSource]", records: Sequence[FieldType]
) -> OperatorSchema:
    """Returns the stored schema of a co-process in a pipeline; see `CoProcess.united` and `bind`.

    Raises:
        DeclarationError: an input has changes of rows, or the records do not fit.
    """
    for name in process.inputs:
        if name in sources and sources[name].format.has_changes:
            raise DeclarationError(
                f"{process.uid}: {name} has changes of rows, and a CoProcess takes records",
                next="put a Process before it that emits records.",
            )
    return process.bind(process.united(records))
