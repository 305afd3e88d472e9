"""Binding a declaration to a record type: the stored schema, or why it does not fit."""

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


Joinable = Mapping[str, tuple[Sequence[KeyColumn], FieldType]]
"""What may be joined: per uid of a broadcast state its key columns and the struct of its rows."""


def joined_record(where: str, joins: Sequence[Join], record: FieldType, states: Joinable) -> FieldType:
    """The struct of a record with a field more per join: the row that is found, null where there is none.

    Args:
        where: the operator.
        joins: what it joins.
        record: the struct of its records.
        states: the pipeline's broadcast states.

    Raises:
        DeclarationError: no such broadcast state, a name that is taken, or fields that are not those of its key.
    """
    taken = {name.lower() for name, _ in record.fields}
    rows = []
    for join in joins:
        at = f"{where}: join={join.uid!r}"
        if join.uid not in states:
            known = ", ".join(states) or "none: declare it in Pipeline(broadcast=[...])"
            raise DeclarationError(f"{at}: no such broadcast state", next=f"name the uid of one; there are {known}.")
        if join.uid.lower() in taken or not is_field(join.uid):
            why = "is a field of the record too" if join.uid.lower() in taken else "is no name of a field"
            raise DeclarationError(
                f"{at}: {join.uid} {why}", next="rename the broadcast state: its uid names what is joined."
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
                f"{at}: the record has no field {path!r}", next="join on fields of the record, not on what is joined."
            )
        if found.with_null(False) != key.type:
            raise DeclarationError(
                f"{at}: {path} is {found.kind}, its key {key.name} is {key.type.kind}",
                next="join on a field of the key's type.",
            )


def refuse_idle(where: str, schema: OperatorSchema) -> OperatorSchema:
    """The schema, if all that it joins is used.

    Raises:
        DeclarationError: naming what no key and no field uses.
    """
    used = schema.joined_by([k.source for k in schema.keys] + [path for f in schema.fields for path in f.inputs])
    for join in schema.joins:
        if join not in used:
            raise DeclarationError(
                f"{where}: join={join.uid!r}: nothing names a field of it",
                next=f"key by {join.uid}.<field>, or fold one; else leave the join out.",
            )
    return schema


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
    return _stored(declared, declared.state_kind.bound(at, declared, record))


def bind_latest(name: str, record: FieldType) -> StoredField:
    """The latest value of a field of the record, as a broadcast state keeps it."""
    from tidemark.model.kinds.latest import Latest

    over = dict(record.fields)[name]
    return StoredField(name=name, kind=Latest.name, source=name, over=over, type=over.with_null(True))


def bind_process_field(where: str, declared: StateDescriptor) -> StoredField:
    """The stored form of a field of a process.

    Raises:
        DeclarationError: the initial value is no None, bool, number or text, or a ttl leaves nothing to write.
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
