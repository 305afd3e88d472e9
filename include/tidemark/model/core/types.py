"""The types that records, keys and state may have, and how a Python annotation names them.

One Python annotation means one stored type everywhere: `int` is a 64-bit integer, `float` a double, `Decimal`
is `DECIMAL(38, 18)` unless `Annotated[Decimal, Precision(p, s)]` says otherwise, `datetime` a UTC timestamp in
microseconds. `X | None` may be null.
"""

import re
import types as python_types
from collections import deque
from collections.abc import Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum, Flag
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from tidemark.errors import DeclarationError
from tidemark.model.core.names import checked_field
from tidemark.model.core.origins import Origin


@dataclass(frozen=True, slots=True)
class Precision:
    """Digits of a `Decimal` annotation: `Annotated[Decimal, Precision(10, 2)]`."""

    digits: int
    scale: int

    def __post_init__(self) -> None:
        if not (1 <= self.digits <= 38 and 0 <= self.scale <= self.digits):
            raise DeclarationError(
                f"not a decimal precision: ({self.digits}, {self.scale})",
                next="give 1..38 digits, 0..digits scale.",
            )


@dataclass(frozen=True, slots=True)
class FieldType:
    """A stored type.

    Attributes:
        kind: one of `bool int float decimal str bytes date timestamp list map struct`.
        nullable: whether null is legal.
        digits: digits of a decimal.
        scale: scale of a decimal.
        element: element type of a list, value type of a map.
        fields: fields of a struct, in order.
        key: key type of a map.
        origin: of a record's field that the payload does not have, what fills it (`origins.Origin`); part of no column.
        form: of a `str` that is the canonical text of another type: `uuid` or `time`; else empty.
        members: of a `str` or an `int` the only legal values, in order of declaration: an `Enum` or a `Literal`.
        default: of a record field, the value if it is missing, as JSON text in the form of `formats.Json`.
    """

    kind: str
    nullable: bool = False
    digits: int = 0
    scale: int = 0
    element: "FieldType | None" = None
    fields: tuple[tuple[str, "FieldType"], ...] = ()
    key: "FieldType | None" = None
    origin: str = ""
    form: str = ""
    members: tuple[str | int, ...] = ()
    default: str | None = None

    @property
    def sql(self) -> str:
        """The type in Spark SQL, without nullability."""
        if self.kind == "decimal":
            return f"DECIMAL({self.digits},{self.scale})"
        if self.element is not None:
            return f"ARRAY<{self.element.sql}>" if self.key is None else f"MAP<{self.key.sql}, {self.element.sql}>"
        if self.kind == "struct":
            return "STRUCT<" + ", ".join(f"`{name}`: {t.sql}" for name, t in self.fields) + ">"
        return _SQL[self.kind]

    @property
    def word(self) -> str:
        """What messages call the type: `uuid`, `enum`, or its kind."""
        return self.form or ("enum" if self.members else self.kind)

    @property
    def shown(self) -> str:
        """The type for messages: its SQL type, or the form or the members of the text or the number that it is."""
        if self.members:
            return f"enum of {', '.join(map(repr, self.members))}"
        if self.element is not None:
            return (
                f"ARRAY<{self.element.shown}>" if self.key is None else f"MAP<{self.key.shown}, {self.element.shown}>"
            )
        if self.kind == "struct":
            return "STRUCT<" + ", ".join(f"{name}: {t.shown}" for name, t in self.fields) + ">"
        return self.form or self.sql

    @property
    def is_number(self) -> bool:
        """Whether sums and means are defined."""
        return self.kind in ("int", "float", "decimal") and not self.members

    @property
    def is_scalar(self) -> bool:
        """Whether it is one value, so that `distinct` is defined."""
        return self.kind not in ("list", "map", "struct")

    @property
    def is_ordered(self) -> bool:
        """Whether `min` and `max` are defined; texts of an Enum are in no order that its author meant."""
        return self.is_scalar and not (self.members and self.kind == "str")

    def with_null(self, nullable: bool) -> "FieldType":
        """Returns the same type, with null legal or not."""
        return self if self.nullable == nullable else replace(self, nullable=nullable)

    def with_origin(self, origin: str) -> "FieldType":
        """Returns the same type of a field with another origin."""
        return self if self.origin == origin else replace(self, origin=origin)

    @property
    def stored(self) -> "FieldType":
        """The same type as SQL sees it: without forms, members and defaults, at any depth."""
        return replace(
            self,
            element=None if self.element is None else self.element.stored,
            fields=tuple((name, of.stored) for name, of in self.fields),
            key=None if self.key is None else self.key.stored,
            form="",
            members=(),
            default=None,
            origin="",
        )

    @property
    def bare(self) -> "FieldType":
        """The same type without its own default and origin, as state and keys have it."""
        return self if self.default is None and not self.origin else replace(self, default=None, origin="")

    def at(self, path: str) -> "FieldType | None":
        """Returns the type at a dotted path in a struct, nullable if any step of the path is, without its default."""
        found = self.field_at(path)
        return None if found is None else found.bare

    def field_at(self, path: str) -> "FieldType | None":
        """Returns the same as `at`, with its default."""
        found: FieldType | None = self
        nullable = False
        for step in path.split("."):
            found = dict(found.fields).get(step) if found is not None else None
            nullable = nullable or (found is not None and found.nullable)
        return None if found is None else found.with_null(nullable).with_origin("")


_SQL = {
    "bool": "BOOLEAN",
    "int": "BIGINT",
    "float": "DOUBLE",
    "str": "STRING",
    "bytes": "BINARY",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
}
_TOKEN = re.compile(r"`[^`]+`|[A-Z]+(?:\([0-9]+,[0-9]+\))?|[<>,:]")
KEY_KINDS = ("bool", "int", "decimal", "str", "date", "timestamp")
"""Kinds of operator keys and map keys: equality is the same in every engine."""
KEY_WORDS = "a bool, int, Decimal, str, Enum, UUID, date, time or datetime"
"""The same for messages."""
_SCALARS: dict[object, str] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    bytes: "bytes",
    date: "date",
    datetime: "timestamp",
}


def column_type(sql: str) -> FieldType:
    """Returns the type of a column from its SQL type, as `FieldType.sql` spells it; null is legal at any depth.

    >>> column_type("ARRAY<STRUCT<`a`: DECIMAL(10,2)>>").element.at("a").digits
    10
    """
    return _parsed(deque(_TOKEN.findall(sql)))


def _parsed(tokens: deque[str]) -> FieldType:
    token = tokens.popleft()
    if token.startswith("DECIMAL"):
        digits, scale = map(int, re.findall("[0-9]+", token))
        return FieldType("decimal", nullable=True, digits=digits, scale=scale)
    kinds = {sql: kind for kind, sql in _SQL.items()}
    if token in kinds:
        return FieldType(kinds[token], nullable=True)
    key, fields, separator = None, list[tuple[str, FieldType]](), tokens.popleft()
    if token == "STRUCT":  # noqa: S105  (a token of SQL)
        while separator != ">":
            name, _ = tokens.popleft().strip("`"), tokens.popleft()
            fields.append((name, _parsed(tokens)))
            separator = tokens.popleft()
        return FieldType("struct", nullable=True, fields=tuple(fields))
    if token == "MAP":  # noqa: S105
        key, separator = _parsed(tokens).with_null(False), tokens.popleft()
    element, separator = _parsed(tokens), tokens.popleft()
    return FieldType("list" if key is None else "map", nullable=True, key=key, element=element)


def field_type(annotation: Any, where: str) -> FieldType:
    """Returns the stored type for a Python annotation.

    Args:
        annotation: a resolved annotation.
        where: the annotated field, for the message.

    Raises:
        DeclarationError: the annotation is none of the types above.
    """
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Union, python_types.UnionType):
        inner = [a for a in args if a is not type(None)]
        if len(inner) == 1 and len(args) == 2:
            return field_type(inner[0], where).with_null(True)
    elif origin is list and len(args) == 1:
        return FieldType("list", element=field_type(args[0], where))
    elif origin is dict and len(args) == 2:
        return FieldType("map", key=_map_key(args[0], where), element=field_type(args[1], where))
    elif isinstance(annotation, type) and is_dataclass(annotation):
        return record_type(annotation)
    elif (scalar := _scalar_type(annotation, where)) is not None:
        return scalar
    raise DeclarationError(
        f"{where}: no stored type for {annotation!r}",
        next="use bool, int, float, Decimal, str, bytes, date, time, datetime, UUID, an Enum or Literal of texts or of"
        " integers, list[...], a dataclass, or one | None.",
    )


def _scalar_type(annotation: Any, where: str) -> FieldType | None:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated and args[0] is Decimal:
        precision = next((a for a in args[1:] if isinstance(a, Precision)), Precision(38, 18))
        return FieldType("decimal", digits=precision.digits, scale=precision.scale)
    if annotation is Decimal:
        return FieldType("decimal", digits=38, scale=18)
    if origin is Literal:
        return _of_members(args, f"{where}: {annotation}")
    if isinstance(annotation, type) and issubclass(annotation, Enum) and not issubclass(annotation, Flag):
        return _of_members([member.value for member in annotation], f"{where}: {annotation.__name__}")
    if annotation in (UUID, time):
        return FieldType("str", form=annotation.__name__.lower())
    return FieldType(_SCALARS[annotation]) if isinstance(annotation, type) and annotation in _SCALARS else None


def _of_members(values: Sequence[Any], where: str) -> FieldType:
    """Returns the type of values that are all texts or all 64-bit integers."""
    members = tuple(dict.fromkeys(values))
    kinds = {type(value) for value in members}
    if kinds == {str}:
        return FieldType("str", members=members)
    if kinds == {int} and all(-(2**63) <= value < 2**63 for value in members):
        return FieldType("int", members=members)
    raise DeclarationError(
        f"{where}: its values are not all texts or all 64-bit integers",
        next="give every member a text, or every member an integer: the value is stored, not the member's name.",
    )


def _map_key(annotation: Any, where: str) -> FieldType:
    found = field_type(annotation, where)
    if found.nullable or found.kind not in KEY_KINDS:
        raise DeclarationError(
            f"{where}: not a key type of a map: {annotation!r}",
            next=f"key it by {KEY_WORDS}, not optional.",
        )
    return found


def record_type(cls: type) -> FieldType:
    """Returns the struct of a record dataclass; a field with a default may be missing in the JSON.

    Raises:
        DeclarationError: it is not a dataclass, or a field has no stored type.
    """
    if not (isinstance(cls, type) and is_dataclass(cls)):
        raise DeclarationError(f"{cls!r} is not a dataclass", next="declare the record as a frozen dataclass.")
    return _record_type(cls)


@cache
def _record_type(cls: type) -> FieldType:
    hints = get_type_hints(cls, include_extras=True)
    named = tuple((checked_field(f.name), field_type(hints[f.name], f"{cls.__name__}.{f.name}")) for f in fields(cls))
    for name, found in named:
        if any(of.kind != "str" or of.form for of in _map_keys(found)):
            raise DeclarationError(
                f"{cls.__name__}.{name}: names in a JSON object are texts, which may name another key twice",
                next="key the dict by str, an Enum or a Literal of texts, or declare a list of a dataclass.",
            )
    return FieldType(
        "struct",
        fields=tuple((name, _with_default(f, t, cls)) for f, (name, t) in zip(fields(cls), named, strict=True)),
    )


def _with_default(f: "Field[Any]", of: FieldType, cls: type) -> FieldType:
    """Returns the type of a field with its default; null is the default of a field that may be null."""
    if f.default is MISSING and f.default_factory is MISSING:
        return of
    if isinstance(f.default, Origin):
        raise DeclarationError(
            f"{cls.__name__}.{f.name}: {f.default} fills only fields of the record of a source that has it",
            next="move the field to the record of a KafkaSource, outside nested dataclasses.",
        )
    from tidemark.model.core.default_values import value_text  # which imports this module

    where = f"{cls.__name__}.{f.name}"
    value = f.default if f.default_factory is MISSING else f.default_factory()
    if value is None and of.nullable:
        return of
    text = value_text(value, of, where)
    if f.default_factory is not MISSING and value_text(f.default_factory(), of, where) != text:
        raise DeclarationError(
            f"{where}: default_factory gives another value each time",
            next="give a constant: a repetition must decode a record as the first attempt did.",
        )
    return replace(of, default=text)


def _map_keys(of: FieldType) -> list[FieldType]:
    """Returns the types of the keys of maps in a type, at any depth."""
    inner = [t for _, t in of.fields] + ([of.element] if of.element is not None else [])
    return [key for t in inner for key in _map_keys(t)] + ([of.key] if of.key is not None else [])


def declared_type(cls: type, name: str) -> FieldType:
    """Returns the stored type of one field of a record dataclass, whatever its default.

    Raises:
        DeclarationError: its annotation has no stored type.
    """
    return field_type(get_type_hints(cls, include_extras=True)[checked_field(name)], f"{cls.__name__}.{name}")


def holds_map(of: FieldType) -> bool:
    """Whether a type contains a map, at any depth."""
    inner = [t for _, t in of.fields] + ([of.element] if of.element is not None else [])
    return of.kind == "map" or any(map(holds_map, inner))


# Stored types as JSON, the form in manifests.
def type_to_json(t: FieldType) -> dict[str, Any]:
    """A type as JSON."""
    body: dict[str, Any] = {"kind": t.kind, "nullable": t.nullable} | ({"origin": t.origin} if t.origin else {})
    if t.kind == "decimal":
        body |= {"digits": t.digits, "scale": t.scale}
    if t.element is not None:
        body["element"] = type_to_json(t.element)
    if t.key is not None:
        body["key"] = type_to_json(t.key)
    if t.kind == "struct":
        body["fields"] = [[name, type_to_json(inner)] for name, inner in t.fields]
    return body | _added(t)


def _added(t: FieldType) -> dict[str, Any]:
    """The parts that release 0.1 did not know, only where a type has them: manifests of other types stay the same."""
    body: dict[str, Any] = {"form": t.form} if t.form else {}
    if t.members:
        body["members"] = list(t.members)
    if t.default is not None:
        body["default"] = t.default
    return body


def type_from_json(body: dict[str, Any]) -> FieldType:
    """The inverse of `type_to_json`."""
    return FieldType(
        body["kind"],
        body["nullable"],
        body.get("digits", 0),
        body.get("scale", 0),
        type_from_json(body["element"]) if "element" in body else None,
        tuple((name, type_from_json(inner)) for name, inner in body.get("fields", ())),
        type_from_json(body["key"]) if "key" in body else None,
        body.get("origin", ""),
        body.get("form", ""),
        tuple(body.get("members", ())),
        body.get("default"),
    )
