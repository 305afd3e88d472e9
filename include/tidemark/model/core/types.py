"""The types that records, keys and state may have, and how a Python annotation names them.

One Python annotation means one stored type everywhere: `int` is a 64-bit integer, `float` a double, `Decimal`
is `DECIMAL(38, 18)` unless `Annotated[Decimal, Precision(p, s)]` says otherwise, `datetime` a UTC timestamp in
microseconds. `X | None` may be null.
"""

import types as python_types
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

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
    """

    kind: str
    nullable: bool = False
    digits: int = 0
    scale: int = 0
    element: "FieldType | None" = None
    fields: tuple[tuple[str, "FieldType"], ...] = ()
    key: "FieldType | None" = None
    origin: str = ""

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
    def is_number(self) -> bool:
        """Whether sums and means are defined."""
        return self.kind in ("int", "float", "decimal")

    @property
    def is_ordered(self) -> bool:
        """Whether `min` and `max` are defined."""
        return self.kind not in ("list", "map", "struct")

    def with_null(self, nullable: bool) -> "FieldType":
        """Returns the same type, with null legal or not."""
        if self.nullable == nullable:
            return self
        return replace(self, nullable=nullable)

    def with_origin(self, origin: str) -> "FieldType":
        """Returns the same type of a field with another origin."""
        return self if self.origin == origin else replace(self, origin=origin)

    def at(self, path: str) -> "FieldType | None":
        """Returns the type at a dotted path in a struct, nullable if any step of the path is."""
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
KEY_KINDS = ("bool", "int", "str", "date", "timestamp")
"""Types of operator keys and map keys: equality is the same in every engine."""
_SCALARS: dict[object, str] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    bytes: "bytes",
    date: "date",
    datetime: "timestamp",
}


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
    elif origin is Annotated and args[0] is Decimal:
        precision = next((a for a in args[1:] if isinstance(a, Precision)), Precision(38, 18))
        return FieldType("decimal", digits=precision.digits, scale=precision.scale)
    elif annotation is Decimal:
        return FieldType("decimal", digits=38, scale=18)
    elif origin is list and len(args) == 1:
        return FieldType("list", element=field_type(args[0], where))
    elif origin is dict and len(args) == 2:
        return FieldType("map", key=_map_key(args[0], where), element=field_type(args[1], where))
    elif isinstance(annotation, type) and is_dataclass(annotation):
        return record_type(annotation)
    elif isinstance(annotation, type) and annotation in _SCALARS:
        return FieldType(_SCALARS[annotation])
    raise DeclarationError(
        f"{where}: no stored type for {annotation!r}",
        next="use bool, int, float, Decimal, str, bytes, date, datetime, list[...], a dataclass, or one | None.",
    )


def _map_key(annotation: Any, where: str) -> FieldType:
    found = field_type(annotation, where)
    if found.nullable or found.kind not in KEY_KINDS:
        raise DeclarationError(
            f"{where}: not a key type of a map: {annotation!r}",
            next=f"key it by one of {', '.join(KEY_KINDS)}, not optional.",
        )
    return found


def record_type(cls: type) -> FieldType:
    """Returns the struct of a record dataclass; a field with default None may be missing in the JSON.

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
    for f, (_, found) in zip(fields(cls), named, strict=True):
        if holds_map(found):
            raise DeclarationError(
                f"{cls.__name__}.{f.name}: a record field cannot be a dict",
                next="declare a list of a dataclass with a key and a value.",
            )
        if isinstance(f.default, Origin):
            raise DeclarationError(
                f"{cls.__name__}.{f.name}: {f.default} fills only fields of the record of a source that has it",
                next="move the field to the record of a KafkaSource, outside nested dataclasses.",
            )
        has_default = f.default is not MISSING or f.default_factory is not MISSING
        if has_default and not (found.nullable and f.default is None):
            raise DeclarationError(
                f"{cls.__name__}.{f.name}: a default other than None is not supported in records",
                next=f"declare `{f.name}: ... | None = None`, and apply the default where you use the record.",
            )
    return FieldType("struct", fields=named)


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
    )
