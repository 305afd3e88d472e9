"""Binds a declaration to a record type: returns the stored schema, or raises why it does not fit."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tidemark.errors import DeclarationError
from tidemark.model.core.names import is_field
from tidemark.model.core.ttl import Clock
from tidemark.model.core.types import KEY_KINDS, FieldType
from tidemark.model.schema.field_descriptors import StateDescriptor
from tidemark.model.schema.lookup_joins import Join
from tidemark.model.schema.operator_schema import KeyColumn, OperatorSchema, StoredField

if TYPE_CHECKING:
    from tidemark.model.kinds.base.kind import Input


def distinct_columns(uid: str, schema: OperatorSchema) -> OperatorSchema:
    """Returns the schema if no two columns of its table have the same name, ignoring case.

    Raises:
        DeclarationError: two do; the message names them.
    """
    columns = [k.name for k in schema.keys] + [name for f in schema.fields for name, _ in f.columns]
    lowered = [c.lower() for c in columns]
    twice = sorted({c for c in lowered if lowered.count(c) > 1})
    if twice:
        raise DeclarationError(f"{uid}: two columns are called {', '.join(twice)}", next="rename the state field.")
    return schema


def one_clock(uid: str, fields: Sequence[StoredField]) -> Clock:
    """Returns the clock of an operator's access times.

    Raises:
        DeclarationError: its fields name different clocks.
    """
    clocks: list[Clock] = sorted({f.ttl.clock for f in fields if f.ttl is not None})
    if len(clocks) > 1:
        raise DeclarationError(
            f"{uid}: ttl on {' and on '.join(clocks)}", next="use one clock for all fields of an operator."
        )
    return clocks[0] if clocks else "event_time"


Joinable = Mapping[str, tuple[Sequence[KeyColumn], FieldType]]
"""What may be joined, by uid of the broadcast state: its key columns and the struct of its rows."""


def joined_record(where: str, joins: Sequence[Join], record: FieldType, states: Joinable) -> FieldType:
    """Returns the struct of a record with one more field per join: the matching row, null if there is none.

    Args:
        where: the operator.
        joins: its joins.
        record: the struct of its records.
        states: the pipeline's broadcast states.

    Raises:
        DeclarationError: the broadcast state does not exist, its name is taken, or the fields do not match its key.
    """
    taken = {name.lower() for name, _ in record.fields}
    rows = []
    for join in joins:
        at = f"{where}: join={join.uid!r}"
        if join.uid not in states:
            known = ", ".join(states) or "none: declare it in Pipeline(broadcast=[...])"
            raise DeclarationError(f"{at}: no such broadcast state", next=f"name the uid of one; there are {known}.")
        if join.uid.lower() in taken or not is_field(join.uid):
            why = "is also a field of the record" if join.uid.lower() in taken else "is not a valid field name"
            raise DeclarationError(
                f"{at}: {join.uid} {why}", next="rename the broadcast state: its uid names the joined row."
            )
        keys, row = states[join.uid]
        _check_on(at, join, record, keys)
        rows.append((join.uid, row.with_null(True)))
    return replace(record, fields=(*record.fields, *rows))


def _check_on(at: str, join: Join, record: FieldType, keys: Sequence[KeyColumn]) -> None:
    if len(join.on) != len(keys):
        names = ", ".join(k.name for k in keys)
        raise DeclarationError(f"{at} on ({', '.join(join.on)}), its key is ({names})", next="name a field for each.")
    for path, key in zip(join.on, keys, strict=True):
        found = record.at(path)
        if found is None:
            raise DeclarationError(
                f"{at}: the record has no field {path!r}", next="join on fields of the record, not of a joined row."
            )
        if found.with_null(False) != key.type:
            raise DeclarationError(
                f"{at}: {path} is {found.kind}, its key {key.name} is {key.type.kind}",
                next="join on a field of the key's type.",
            )


def refuse_idle(where: str, schema: OperatorSchema) -> OperatorSchema:
    """Returns the schema if every join is used.

    Raises:
        DeclarationError: a join is not used by a key or a field; the message names it.
    """
    used = schema.joined_by([k.source for k in schema.keys] + [path for f in schema.fields for path in f.inputs])
    for join in schema.joins:
        if join not in used:
            raise DeclarationError(
                f"{where}: join={join.uid!r}: no key or field uses it",
                next=f"key by {join.uid}.<field>, fold a field of it, or remove the join.",
            )
    return schema


def bind_key(where: str, source: str, record: FieldType) -> KeyColumn:
    """Returns the key column for a record path.

    Raises:
        DeclarationError: the field does not exist, or its type cannot be a key (bool, int, str, date or timestamp).
    """
    found = record.at(source)
    if found is None or found.kind not in KEY_KINDS:
        problem = "no such field in the record" if found is None else f"a {found.kind} cannot be a key"
        raise DeclarationError(
            f"{where}: key_by={source!r}: {problem}", next="key by a bool, int, str, date or datetime field."
        )
    return KeyColumn(source.rpartition(".")[2], source, found.with_null(False))


def bind_field(where: str, declared: StateDescriptor, record: FieldType) -> StoredField:
    """Returns the stored form of a declared field over a record type.

    Raises:
        DeclarationError: the record field does not exist, or the kind or the annotation does not fit its type.
    """
    at = f"{where}.{declared.name}"
    return _stored(declared, declared.state_kind.bound(at, declared, record))


def bind_latest(name: str, record: FieldType) -> StoredField:
    """Returns the stored field for the latest value of a record field, as a broadcast state keeps it."""
    from tidemark.model.kinds.latest import Latest

    over = dict(record.fields)[name]
    return StoredField(name=name, kind=Latest.name, source=name, over=over, type=over.with_null(True))


def bind_process_field(where: str, declared: StateDescriptor) -> StoredField:
    """Returns the stored form of a field of a process.

    Raises:
        DeclarationError: the initial value is not None, a bool, a number or a text, or a ttl leaves nothing to write.
    """
    at = f"{where}.{declared.name}"
    return _stored(declared, declared.state_kind.bound(at, declared, FieldType("struct")))


def _stored(declared: StateDescriptor, found: "Input") -> StoredField:
    return StoredField(
        name=declared.name,
        kind=declared.kind,
        source=declared.source,
        over=found.over,
        type=declared.type,
        ignore_nulls=declared.ignore_nulls,
        limit=declared.limit,
        initial=declared.initial,
        ttl=declared.ttl,
        aggregate=found.aggregate,
        options=declared.options,
        others=found.others,
        was=declared.was,
    )
