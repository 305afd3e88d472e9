"""The protocol of a kind of state, with defaults that suit most kinds."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from tidemark.errors import DeclarationError
from tidemark.model.core.ttl import Ttl
from tidemark.model.core.types import FieldType, holds_map
from tidemark.model.kinds.base.python import OfKey, Placed, Row, is_expired
from tidemark.model.kinds.base.sql import expired_sql, quote
from tidemark.model.portable_sql.custom_aggregate import Aggregate
from tidemark.model.portable_sql.dialects import Dialect
from tidemark.model.schema.operator_schema import KNOWN, KeyColumn, StoredField, state_kind


# One field of a state class as data, and the checks of its kind against its annotation.
@dataclass(frozen=True, slots=True, kw_only=True)
class StateDescriptor:
    """One declared field of keyed state: its name, kind and type; the rows are stored elsewhere.

    Attributes:
        kind: name of its kind; see `model.kinds`.
        source: dotted path of the folded record field; empty for `count`, expressions, and a process.
        name: name of the field; set when the class is created.
        type: its type; set when the class is created.
        ignore_nulls: `first` and `latest` skip records in which the field is null.
        limit: of `distinct` and `list`: more values are an error that names the key.
        initial: of `value`: the value of a key that has none.
        ttl: how long it lives after its last access; None = for ever.
        aggregate: of `aggregate` and `reduce`: the expressions.
        options: further options of the aggregate, by name; only some kinds have any.
        others: further record fields that it is computed from; only some kinds have any.
        was: the previous name of a renamed field: its state is carried over.
        hint: the annotation, resolved; set when the class is created.
    """

    kind: str
    source: str = ""
    name: str = ""
    type: FieldType = FieldType("int")
    ignore_nulls: bool = False
    limit: int = 1000
    initial: Any = None
    ttl: Ttl | None = None
    aggregate: Aggregate | None = None
    options: tuple[tuple[str, str], ...] = ()
    others: tuple[str, ...] = ()
    was: str = ""
    hint: Any = field(default=None, compare=False)

    @property
    def state_kind(self) -> "StateKind":
        """Its kind."""
        return state_kind(self.kind)

    @property
    def default(self) -> object:
        """The value of a key without such state; a new object each time if it is mutable."""
        return self.state_kind.default(self)

    @property
    def is_process(self) -> bool:
        """Whether it belongs in a `Process`."""
        return self.state_kind.is_process


def annotate(declared: StateDescriptor, name: str, found: FieldType, where: str) -> StateDescriptor:
    """Returns a descriptor with its name and type.

    Raises:
        DeclarationError: the kind cannot have that type.
    """
    kind = declared.state_kind
    wanted = kind.annotation
    if wanted and found.kind != wanted:
        words = {"list": "list[...]", "map": "dict[..., ...]"}.get(wanted, wanted)
        raise DeclarationError(
            f"{where}: state.{kind.shown} is {wanted}, declared {found.word}", next=f"declare {words}."
        )
    _refuse_dicts(kind, found, where)
    if kind.is_collection:
        return replace(declared, name=name, type=found.with_null(False))
    if declared.ttl is not None and not found.nullable:
        raise DeclarationError(
            f"{where}: a field with a ttl may be absent", next="declare it `... | None`, or leave ttl out."
        )
    declared = kind.check_annotation(declared, found, where)
    return replace(declared, name=name, type=found.with_null(kind.is_optional(declared, found)))


def _refuse_dicts(kind: "StateKind", found: FieldType, where: str) -> None:
    """Refuses dicts inside other types: entries are separate rows, so only the dict of a map can be stored."""
    if kind.is_stored_by_entry:
        if found.element is not None and holds_map(found.element):
            raise DeclarationError(
                f"{where}: a dict inside a dict",
                next="use one key for both levels, as in f'{a}/{b}', or a list of a dataclass with a key and a value.",
            )
    elif holds_map(found):
        raise DeclarationError(
            f"{where}: a dict inside state.{kind.shown}", next="declare `dict[..., ...] = state.map()`."
        )


Accumulators = tuple[tuple[str, FieldType], ...]
"""Column and type of each accumulator, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """The input of a declared field, bound to the record type.

    Attributes:
        over: type of the record field; for a process, type of the value, the element or the entry's value.
        aggregate: the bound expressions of an author's aggregate.
        others: further record paths and their types.
    """

    over: FieldType
    aggregate: Aggregate | None = None
    others: tuple[tuple[str, FieldType], ...] = ()


class StateKind(ABC):
    """A kind of state. It has no attributes of its own: all fields of a kind share one instance.

    Attributes:
        name: stored in declarations and manifests; never change it.
        shown: name of the function of `tidemark.state` that declares it.
        is_process: whether it belongs in a `Process`.
        is_collection: whether it is never null: a key without it has an empty one.
        is_limited: whether `limit=` bounds it.
        expires_by_element: whether `ttl=` applies to each element instead of the whole.
        is_stored_by_entry: whether it has a row per entry in addition to the row of its key.
        keeps_nulls: whether an element or an entry may be null, so that null does not mean absence.
        depends_on_arrival: whether the same records give another value if they come in other checkpoints.
        annotation: the kind of type that its annotation must have; empty = any.
    """

    name: ClassVar[str]
    shown: ClassVar[str] = ""
    is_process: ClassVar[bool] = False
    is_collection: ClassVar[bool] = False
    is_limited: ClassVar[bool] = False
    expires_by_element: ClassVar[bool] = False
    is_stored_by_entry: ClassVar[bool] = False
    keeps_nulls: ClassVar[bool] = False
    depends_on_arrival: ClassVar[bool] = False
    annotation: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        """Registers a kind; `shown` defaults to its name."""
        if "name" in cls.__dict__:
            KNOWN[cls.name] = cls
            cls.shown = cls.__dict__.get("shown", cls.name)

    # Declarations

    def default(self, declared: StateDescriptor) -> object:
        """Returns the value for a key without such state; a new object each time if it is mutable."""
        return [] if self.is_collection else declared.initial

    def is_optional(self, declared: StateDescriptor, found: FieldType) -> bool:
        """Whether the finished value may be null, given the annotation."""
        return True

    def check_annotation(self, declared: StateDescriptor, found: FieldType, where: str) -> StateDescriptor:
        """Returns the descriptor, completed by its annotation if the kind needs it.

        Raises:
            DeclarationError: the kind cannot have that type.
        """
        return declared

    @abstractmethod
    def bound(self, at: str, declared: StateDescriptor, record: FieldType) -> Input:
        """Returns the input of a declared field.

        Args:
            at: the field, for messages.
            declared: the descriptor with its name and type.
            record: the struct of the operator's records.

        Raises:
            DeclarationError: the record field does not exist, or the kind or the annotation does not fit its type.
        """

    # Columns

    @abstractmethod
    def accumulators(self, field: StoredField) -> Accumulators:
        """Returns the columns of the table that hold the field."""

    def absent(self, field: StoredField) -> tuple[object, ...]:
        """Returns the value of each accumulator in rows that were written without the field."""
        return (None,) * len(field.accumulators)

    def inputs(self, field: StoredField) -> tuple[str, ...]:
        """Returns the record paths that the field is computed from."""
        return (field.source, *(path for path, _ in field.others))

    def is_exact(self, field: StoredField) -> bool:
        """Whether regrouping gives equal bits; other fields stay out of state hashes."""
        return True

    # State from a table: an import, a bootstrap, a patch

    @abstractmethod
    def imported_columns(self, field: StoredField) -> Iterator[tuple[str, FieldType]]:
        """Returns (column, type) for each column that a table of imported state must have."""

    def imported_values(self, field: StoredField, at_ms: int) -> Iterator[tuple[str, str]]:
        """Returns (accumulator, DuckDB expression over the imported columns) for the row of the key; others stay null.

        Args:
            field: the field.
            at_ms: access time of all keys, on the operator's clock, in milliseconds.
        """
        yield field.name, quote(field.name)

    def import_faults(self, field: StoredField) -> Iterator[tuple[str, str]]:
        """Returns (condition for an inconsistent imported row, explanation)."""
        yield from ()

    def exported_values(self, field: StoredField) -> Iterator[tuple[str, str]]:
        """Returns (imported column, DuckDB expression over merged accumulators) of those that are not the value."""
        held = {name for name, _ in field.accumulators} - {field.name}
        yield from ((name, quote(name)) for name, _ in self.imported_columns(field) if name in held)


def record_field(at: str, path: str, record: FieldType) -> FieldType:
    """Returns the type of a record field.

    Raises:
        DeclarationError: it does not exist.
    """
    found = record.at(path)
    if found is None:
        raise DeclarationError(f"{at}: the record has no field {path!r}", next="name a field of the record.")
    return found


# The protocol of kinds of a fold: an associative pair (partial over records, merge of partials), and a finish.
Time = int | str | None
"""The time on the operator's clock in milliseconds, or an expression for it; None = nothing expires."""


class FoldKind(StateKind):
    """A kind of a fold. Its merge is associative, so barriers may cut and compactions regroup anywhere.

    The partial is Spark SQL, because only Spark folds records; merge and finish are SQL of both engines; the Python is
    the twin of all three. They must give the same result, bit for bit if the field `is_exact`.
    """

    def bound(self, at: str, declared: StateDescriptor, record: FieldType) -> Input:
        """See `StateKind`."""
        over = record_field(at, declared.source, record)
        finished = self.result_type(at, declared, over)
        if finished.with_null(declared.type.nullable) != declared.type:
            raise DeclarationError(
                f"{at}: state.{self.shown}({declared.source!r}) is {finished.shown}, declared {declared.type.shown}",
                next="make the annotation agree with the record field.",
            )
        return Input(over=over)

    def result_type(self, at: str, declared: StateDescriptor, over: FieldType) -> FieldType:
        """Returns the type of the finished value; its nullability is ignored.

        Raises:
            DeclarationError: the kind does not fold such a field.
        """
        return over

    # SQL

    @abstractmethod
    def partials(self, field: StoredField, only: str, *, emitted: bool) -> list[str]:
        """Returns, per accumulator, an aggregate expression over the records of a key in one batch, in Spark SQL.

        Args:
            field: the field.
            only: a condition on records; empty = all count.
            emitted: whether an operator emitted the records: several have one offset, and the frame has `_path`.
        """

    @abstractmethod
    def merges(self, field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect) -> list[str]:
        """Returns, per accumulator, an aggregate expression over stored rows of a key; null if cut off."""

    def finish(self, field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect, now: Time) -> str:
        """Returns the expression that readers see, over merged accumulators and `_last_at`."""
        value = self.finish_value(field, keys, dialect)
        hidden = expired_sql('coalesce("_last_at", 0)', field, now)
        empty = dialect.or_empty("NULL") if self.is_collection else "NULL"
        return value if hidden is None else f"CASE WHEN {hidden} THEN {empty} ELSE {value} END"

    def finish_value(self, field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect) -> str:
        """Returns the same as `finish`, without expiry."""
        return quote(field.name)

    def run_columns(self, field: StoredField, keys: Sequence[KeyColumn], now: int | None) -> dict[str, str]:
        """Returns columns of a run other than the plain partials, in Spark SQL over the partials and `_last_at`."""
        return {}

    def adds(self, field: StoredField) -> str:
        """Returns the condition that the field of a run's row adds something to older rows."""
        return f"{quote(field.accumulators[0][0])} IS NOT NULL"

    def may_leave_64_bits(self, field: StoredField) -> bool:
        """Whether the field adds integers, whose sum may not fit 64 bits."""
        return False

    def is_present(self, field: StoredField, hidden: str, dialect: Dialect, now: Time) -> str:
        """Returns the condition that the field of a merged row has not expired.

        Args:
            field: the field, which has a ttl.
            hidden: the condition that its last access is too long ago.
            dialect: dialect of the engine.
            now: the time.
        """
        return f"NOT ({hidden})"

    def drop_expired(self, field: StoredField, hidden: str, dialect: Dialect, now: Time) -> dict[str, str]:
        """Returns columns of a merged row without expired values; the arguments are those of `is_present`."""
        return {name: f"CASE WHEN {hidden} THEN NULL ELSE {quote(name)} END" for name, _ in field.accumulators}

    # Python

    @abstractmethod
    def fold(self, field: StoredField, of: OfKey, placed: Placed) -> list[Any]:
        """Returns the accumulators of a key's records in one batch; twin of `partials` and `run_columns`.

        Raises:
            StateOverflowError: they do not fit.
        """

    @abstractmethod
    def merge(self, field: StoredField, of: OfKey, n: int, values: Sequence[Any]) -> Any:
        """Merges the n-th accumulator of stored rows, the oldest first; twin of `merges`.

        Raises:
            StateOverflowError: it does not fit.
        """

    def read(self, field: StoredField, of: OfKey, row: Row) -> Any:
        """Returns the value that readers see for a merged row; twin of `finish`.

        Raises:
            StateOverflowError: it does not fit.
        """
        if self.is_hidden(field, of.now, row):
            return [] if self.is_collection else None
        return self.value(field, of, row)

    def value(self, field: StoredField, of: OfKey, row: Row) -> Any:
        """Returns the same as `read`, without expiry."""
        return row[field.name]

    def is_hidden(self, field: StoredField, now: int | None, row: Row) -> bool:
        """Whether the whole field of a merged row has expired; twin of `is_present`."""
        return is_expired(field, row["_last_at"], now)

    def swept(self, field: StoredField, now: int | None, row: Row) -> dict[str, Any]:
        """Returns columns of a merged row without expired values; twin of `drop_expired`."""
        if self.is_hidden(field, now, row):
            return dict.fromkeys((name for name, _ in field.accumulators), None)
        return {}


# Shared by kinds over numbers: the fields that they fold, and the stored form of sums.
def checked_number(at: str, kind: str, over: FieldType) -> FieldType:
    """Returns the type if it is a number.

    Raises:
        DeclarationError: it is not.
    """
    if not over.is_number:
        raise DeclarationError(f"{at}: state.{kind} of a {over.word}", next="sum and mean need int, float or Decimal.")
    return over


def sum_type(over: FieldType) -> FieldType:
    """Returns the type of sums; sums of decimals have 38 digits."""
    if over.kind == "decimal":
        return FieldType("decimal", nullable=True, digits=38, scale=over.scale)
    return over.with_null(True)
