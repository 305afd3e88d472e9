"""Every change of a declaration in the table of the documentation, as a pair of the old and the new stored schema."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypedDict, Unpack

from tidemark.model.core.ttl import Clock, Ttl, Visibility
from tidemark.model.core.types import FieldType
from tidemark.model.portable_sql.custom_aggregate import Aggregate
from tidemark.model.portable_sql.record_expression import RecordExpression
from tidemark.model.schema.lookup_joins import Join
from tidemark.model.schema.operator_schema import KeyColumn, OperatorKind, OperatorSchema, StoredField

INT, TEXT = FieldType("int"), FieldType("str")
FOLD_KINDS = (
    "count", "sum", "min", "max", "first", "latest", "mean", "stddev", "max_by", "min_by", "distinct", "list",
)  # fmt: skip
PROCESS_KINDS = ("value", "list_of_values", "map")


def decimal(digits: int, scale: int) -> FieldType:
    return FieldType("decimal", digits=digits, scale=scale)


def listed(of: FieldType) -> FieldType:
    return FieldType("list", element=of)


TYPES: dict[str, FieldType] = {
    "bool": FieldType("bool"),
    "int": INT,
    "float": FieldType("float"),
    "Decimal(10,2)": decimal(10, 2),
    "Decimal(20,2)": decimal(20, 2),
    "Decimal(20,4)": decimal(20, 4),
    "str": TEXT,
    "bytes": FieldType("bytes"),
    "date": FieldType("date"),
    "datetime": FieldType("timestamp"),
    "list[int]": listed(INT),
    "list[int or None]": listed(INT.with_null(True)),
    "dataclass(a: Decimal(10,2))": FieldType("struct", fields=(("a", decimal(10, 2)),)),
    "dataclass(a: Decimal(20,2))": FieldType("struct", fields=(("a", decimal(20, 2)),)),
    "dataclass(a, b)": FieldType("struct", fields=(("a", decimal(10, 2)), ("b", INT))),
    "dataclass(a, b or None)": FieldType("struct", fields=(("a", decimal(10, 2)), ("b", INT.with_null(True)))),
    "dataclass(a, b = 0)": FieldType("struct", fields=(("a", decimal(10, 2)), ("b", replace(INT, default="0")))),
    "UUID": FieldType("str", form="uuid"),
    "time": FieldType("str", form="time"),
    "Enum(x, y)": FieldType("str", members=("x", "y")),
    "Enum(x, y, z)": FieldType("str", members=("x", "y", "z")),
    "Enum(1, 2)": FieldType("int", members=(1, 2)),
}


class FieldOptions(TypedDict, total=False):
    """Options of a field in addition to its kind, name and type."""

    source: str
    others: tuple[tuple[str, FieldType], ...]
    ignore_nulls: bool
    limit: int
    ttl: Ttl
    aggregate: Aggregate
    was: str


class SchemaOptions(TypedDict, total=False):
    """Options of an operator in addition to its fields."""

    keys: tuple[KeyColumn, ...]
    kind: OperatorKind
    key_groups: int
    clock: Clock
    deletes: bool
    changes: bool
    joins: tuple[Join, ...]
    where: RecordExpression | None


def field(kind: str, name: str = "f", over: FieldType = INT, **more: Unpack[FieldOptions]) -> StoredField:
    """A stored field, as binding a declaration creates it."""
    of = over
    if kind in ("mean", "stddev"):
        of = FieldType("float")
    elif kind in ("max_by", "min_by"):
        more.setdefault("others", (("y", INT.with_null(True)),))
    elif kind in ("distinct", "list", "list_of_values"):
        of = listed(over)
    elif kind == "map":
        of = FieldType("map", key=TEXT, element=over)
    more.setdefault("source", "" if kind in ("count", *PROCESS_KINDS) else "x")
    return StoredField(name=name, kind=kind, over=over, type=of, **more)


def fold(*fields: StoredField, **more: Unpack[SchemaOptions]) -> OperatorSchema:
    more.setdefault("keys", (KeyColumn("k", "k", TEXT),))
    return OperatorSchema(uid="u", fields=fields, **more)


def computed(text: str) -> KeyColumn:
    """A key column that an expression over the field `k` makes."""
    return KeyColumn("k", text, TEXT, (("k", TEXT.with_null(True)),))


def process(*fields: StoredField, **more: Unpack[SchemaOptions]) -> OperatorSchema:
    more.setdefault("kind", "process")
    return fold(*fields, **more)


def alone(kind: str, over: FieldType = INT, **more: Unpack[FieldOptions]) -> OperatorSchema:
    """An operator with a single field."""
    return (process if kind in PROCESS_KINDS else fold)(field(kind, over=over, **more))


def every(days: int, *, visibility: Visibility = "never_return_expired", clock: Clock = "event_time") -> Ttl:
    return Ttl(ttl=timedelta(days=days), visibility=visibility, clock=clock)


@dataclass(frozen=True)
class Change:
    """The stored schema before and after a change."""

    old: OperatorSchema
    new: OperatorSchema


N, S = field("count", "n"), field("sum", "s")
V = field("value", "v")
A = process(V, field("map", "m"))


BY_X, BY_Y = Join("b", ("x",)), Join("b", ("y",))
JOINED, IN_B = field("sum", "s", source="b.size"), KeyColumn("kind", "b.kind", TEXT)
LOGICAL = fold(field("sum", ttl=every(1, clock="logical_time")), clock="logical_time")


def aggregate(partial: str) -> OperatorSchema:
    """A fold with a custom aggregate."""
    made = Aggregate(accumulators=(("a", INT),), partial=(partial,), merge=("sum(a)",), finish="a")
    return fold(field("aggregate", aggregate=made))


def _rows(**made: Callable[[], tuple[OperatorSchema, OperatorSchema]]) -> dict[str, Change]:
    return {name.replace("_", " "): Change(*pair()) for name, pair in made.items()}


CHANGES = _rows(
    nothing=lambda: (fold(N, S), fold(N, S)),
    field_added=lambda: (fold(N), fold(N, S)),
    field_removed=lambda: (fold(N, S), fold(N)),
    field_renamed_with_was=lambda: (fold(N, S), fold(N, replace(S, name="total", was="s"))),
    field_renamed_without_was=lambda: (fold(N, S), fold(N, replace(S, name="total"))),
    was_names_no_stored_field=lambda: (fold(N), fold(N, replace(S, was="t"))),
    was_names_a_field_that_is_declared_too=lambda: (fold(S), fold(S, field("sum", "t", was="s"))),
    was_given_for_two_fields=lambda: (fold(S), fold(field("sum", "a", was="s"), field("sum", "b", was="s"))),
    order_of_fields=lambda: (fold(N, S), fold(S, N)),
    map_added_to_a_process_without_one=lambda: (process(V), A),
    the_only_map_removed=lambda: (A, process(V)),
    map_renamed_with_was=lambda: (A, process(V, field("map", "p", was="m"))),
    key_of_a_map=lambda: (
        process(field("map", "m")),
        process(replace(field("map", "m"), type=FieldType("map", key=INT, element=INT))),
    ),
    record_field=lambda: (fold(S), fold(replace(S, source="y"))),
    ignore_nulls=lambda: (fold(field("latest")), fold(field("latest", ignore_nulls=True))),
    text_of_an_aggregate=lambda: (aggregate("sum(x)"), aggregate("sum(x + 1)")),
    limit=lambda: (fold(field("list")), fold(field("list", limit=5))),
    initial_value=lambda: (process(V), process(replace(V, initial=7))),
    null_allowed=lambda: (process(V), process(replace(V, over=INT.with_null(True), type=INT.with_null(True)))),
    null_no_longer_allowed=lambda: (
        process(replace(V, over=INT.with_null(True), type=INT.with_null(True))),
        process(V),
    ),
    null_allowed_in_elements=lambda: (alone("list_of_values"), alone("list_of_values", INT.with_null(True))),
    null_no_longer_allowed_in_elements=lambda: (alone("list_of_values", INT.with_null(True)), alone("list_of_values")),
    digits_of_a_sum=lambda: (alone("sum", decimal(10, 2)), alone("sum", decimal(20, 2))),
    ttl_on=lambda: (alone("value"), alone("value", ttl=every(1))),
    ttl_on_in_a_fold=lambda: (alone("sum"), alone("sum", ttl=every(1))),
    ttl_on_in_a_list_of_a_fold=lambda: (alone("list"), alone("list", ttl=every(1))),
    ttl_longer_or_shorter=lambda: (alone("sum", ttl=every(1)), alone("sum", ttl=every(2))),
    ttl_off=lambda: (alone("value", ttl=every(1)), alone("value")),
    ttl_off_in_a_fold=lambda: (alone("sum", ttl=every(1)), alone("sum")),
    visibility_of_a_fold=lambda: (
        alone("sum", ttl=every(1)),
        alone("sum", ttl=every(1, visibility="return_expired_if_not_cleaned_up")),
    ),
    ttl_on_with_logical_time=lambda: (alone("sum"), LOGICAL),
    ttl_off_with_logical_time=lambda: (LOGICAL, alone("sum")),
    clock_of_a_ttl=lambda: (alone("sum", ttl=every(1)), LOGICAL),
    deletes_on=lambda: (fold(S), fold(S, deletes=True)),
    changes_of_Debezium=lambda: (fold(S, deletes=True), fold(S, deletes=True, changes=True)),
    deletes_off=lambda: (fold(S, deletes=True), fold(S)),
    key_column=lambda: (fold(S), fold(S, keys=(KeyColumn("c", "c", TEXT),))),
    key_column_added=lambda: (fold(S), fold(S, keys=(KeyColumn("k", "k", TEXT), KeyColumn("c", "c", TEXT)))),
    type_of_the_key=lambda: (fold(S), fold(S, keys=(KeyColumn("k", "k", INT),))),
    member_added_to_an_Enum_of_the_key=lambda: (
        fold(S, keys=(KeyColumn("k", "k", TYPES["Enum(x, y)"]),)),
        fold(S, keys=(KeyColumn("k", "k", TYPES["Enum(x, y, z)"]),)),
    ),
    digits_of_the_key=lambda: (
        fold(S, keys=(KeyColumn("k", "k", decimal(10, 2)),)),
        fold(S, keys=(KeyColumn("k", "k", decimal(20, 2)),)),
    ),
    default_of_the_key=lambda: (
        fold(S, keys=(KeyColumn("k", "k", TEXT),)),
        fold(S, keys=(KeyColumn("k", "k", replace(TEXT, default='"x"')),)),
    ),
    record_field_of_the_key=lambda: (fold(S), fold(S, keys=(KeyColumn("k", "other.k", TEXT),))),
    expression_of_the_key=lambda: (fold(S, keys=(computed("lower(k)"),)), fold(S, keys=(computed("upper(k)"),))),
    condition=lambda: (fold(S), fold(S, where=RecordExpression("k <> ''", (("k", TEXT.with_null(True)),)))),
    key_groups=lambda: (fold(S), fold(S, key_groups=64)),
    join_added_for_an_added_field=lambda: (fold(N), fold(N, JOINED, joins=(BY_X,))),
    join_removed_with_its_fields=lambda: (fold(N, JOINED, joins=(BY_X,)), fold(N)),
    join_on_another_field_of_what_a_field_is_made_of=lambda: (
        fold(N, JOINED, joins=(BY_X,)),
        fold(N, JOINED, joins=(BY_Y,)),
    ),
    join_on_another_field_of_what_the_key_is_made_of=lambda: (
        fold(N, keys=(IN_B,), joins=(BY_X,)),
        fold(N, keys=(IN_B,), joins=(BY_Y,)),
    ),
    field_of_the_record_in_place_of_a_joined_one=lambda: (fold(JOINED, joins=(BY_X,)), fold(JOINED)),
    fold_to_process=lambda: (fold(field("list")), process(field("list_of_values"))),
)
"""Changes by their wording in the table of the documentation."""
