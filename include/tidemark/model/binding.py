"""Binding a declaration to a record type: the stored schema, or why it does not fit."""

from collections.abc import Sequence
from dataclasses import replace

from tidemark.errors import DeclarationError
from tidemark.model.aggregates import bound
from tidemark.model.descriptors import StateDescriptor
from tidemark.model.schema import KeyColumn, OperatorSchema, StoredField
from tidemark.model.ttl import Clock
from tidemark.model.types import KEY_KINDS, FieldType, holds_map


def distinct_columns(uid: str, schema: OperatorSchema) -> OperatorSchema:
    """The schema, if all columns of its table have different names, whatever their case.

    Raises:
        DeclarationError: naming those that do not.
    """
    columns = [k.name for k in schema.keys] + [name for f in schema.fields for name, _ in f.columns]
    lowered = [c.lower() for c in columns]
    twice = sorted({c for c in lowered if lowered.count(c) > 1})
    if twice:
        raise DeclarationError(f"{uid}: two columns are called {', '.join(twice)}", next="rename the state field.")
    return schema


def one_clock(uid: str, fields: Sequence[StoredField]) -> Clock:
    """The clock of an operator's access times.

    Raises:
        DeclarationError: its fields name different ones.
    """
    clocks: list[Clock] = sorted({f.ttl.clock for f in fields if f.ttl is not None})
    if len(clocks) > 1:
        raise DeclarationError(
            f"{uid}: ttl on {' and on '.join(clocks)}", next="use one clock for all fields of an operator."
        )
    return clocks[0] if clocks else "event_time"


def bind_key(where: str, source: str, record: FieldType) -> KeyColumn:
    """The key column that a record path names.

    Raises:
        DeclarationError: no such field, or a type that is no key (keys are bool, int, str, date or timestamp).
    """
    found = record.at(source)
    if found is None or found.kind not in KEY_KINDS:
        problem = "no such field in the record" if found is None else f"a {found.kind} is no key"
        raise DeclarationError(
            f"{where}: key_by={source!r}: {problem}", next="key by a bool, int, str, date or datetime field."
        )
    return KeyColumn(source.rpartition(".")[2], source, found.with_null(False))


def bind_field(where: str, declared: StateDescriptor, record: FieldType) -> StoredField:
    """The stored form of a declared field over a record type.

    Raises:
        DeclarationError: no such record field, or the kind or the annotation does not fit its type.
    """
    at = f"{where}.{declared.name}"
    if declared.aggregate is not None:
        made = bound(at, declared.aggregate, record, declared.type)
        return replace(_stored(declared, declared.type), aggregate=made)
    if declared.kind == "count":
        over: FieldType | None = FieldType("int")
    else:
        over = record.at(declared.source)
    if over is None:
        raise DeclarationError(f"{at}: the record has no field {declared.source!r}", next="name a field of the record.")
    finished = _finished(at, declared, over)
    if finished.with_null(declared.type.nullable) != declared.type:
        raise DeclarationError(
            f"{at}: state.{declared.kind}({declared.source!r}) is {finished.sql}, declared {declared.type.sql}",
            next="make the annotation agree with the record field.",
        )
    return _stored(declared, over)


def bind_latest(name: str, record: FieldType) -> StoredField:
    """The newest value of a field of the record, as a broadcast state keeps it."""
    over = dict(record.fields)[name]
    return StoredField(name=name, kind="latest", source=name, over=over, type=over.with_null(True))


def bind_process_field(where: str, declared: StateDescriptor) -> StoredField:
    """The stored form of a field of a process.

    Raises:
        DeclarationError: the initial value is no None, bool, number or text, or a ttl leaves nothing to write.
    """
    if type(declared.initial) not in (type(None), bool, int, float, str):
        raise DeclarationError(
            f"{where}.{declared.name}: initial value {declared.initial!r}",
            next="give None, a bool, a number or a text; use state.list() or state.map() for collections.",
        )
    if declared.kind != "map" and holds_map(declared.type):
        raise DeclarationError(
            f"{where}.{declared.name}: a dict inside another type", next="declare it as state.map()."
        )
    inner = declared.type.element if declared.kind in ("list_of_values", "map") else declared.type
    assert inner is not None  # noqa: S101  (for the type checker)
    return _stored(declared, inner)


def _stored(declared: StateDescriptor, over: FieldType) -> StoredField:
    return StoredField(
        name=declared.name,
        kind=declared.kind,
        source=declared.source,
        over=over,
        type=declared.type,
        ignore_nulls=declared.ignore_nulls,
        limit=declared.limit,
        initial=declared.initial,
        ttl=declared.ttl,
        was=declared.was,
    )


def _finished(at: str, declared: StateDescriptor, over: FieldType) -> FieldType:
    kind = declared.kind
    if kind in ("sum", "mean") and not over.is_number:
        raise DeclarationError(f"{at}: state.{kind} of a {over.kind}", next="sum and mean need int, float or Decimal.")
    if kind in ("min", "max", "distinct") and not over.is_ordered:
        raise DeclarationError(
            f"{at}: state.{kind} of a {over.kind}", next="min, max and distinct need a scalar field."
        )
    if kind == "mean":
        return FieldType("float")
    if kind in ("distinct", "list"):
        return FieldType("list", element=over.with_null(False))
    if kind == "sum":
        # The declared digits may be wider than the record's; the sum itself is kept in 38 digits.
        return (
            declared.type
            if declared.type.kind == over.kind == "decimal" and declared.type.scale == over.scale
            else over
        )
    return over
