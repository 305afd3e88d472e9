"""The stored schema of one operator: key columns, accumulator columns, and what each field makes of them.

It is bound from a declaration (record type + state class), written into every manifest, and read back from there,
so that state can be read without the code that made it (H1).
"""

from dataclasses import dataclass
from typing import Any

from tidemark.errors import DeclarationError
from tidemark.model.canonical import checksum
from tidemark.model.types import FieldType
from tidemark.state import StateDescriptor

KEY_GROUPS = 128
"""Key groups of a new operator (C2); `_key_group` is only the sort prefix inside a file."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A key column: its name in the table, the record path it comes from, its type (never null)."""

    name: str
    source: str
    type: FieldType


@dataclass(frozen=True, slots=True)
class StoredField:
    """A state field bound to the record field it folds.

    Attributes:
        name: the field.
        kind: the descriptor's kind.
        source: record path, empty for `count`.
        over: type of the record field (`int` for `count`).
        type: type of the finished value.
        ignore_nulls: see `StateDescriptor`.
        limit: see `StateDescriptor`.
    """

    name: str
    kind: str
    source: str
    over: FieldType
    type: FieldType
    ignore_nulls: bool = False
    limit: int = 1000

    @property
    def exact(self) -> bool:
        """Whether regrouping gives equal bits; false for floating-point sums and means (flink.md 1.1)."""
        return not (self.kind in ("sum", "mean") and self.over.kind == "float")

    @property
    def accumulators(self) -> tuple[tuple[str, FieldType], ...]:
        """The columns of the table that hold the field's accumulator, in order."""
        if self.kind == "count":
            return ((self.name, FieldType("int")),)
        if self.kind == "mean":
            return ((f"{self.name}__sum", _summed(self.over)), (f"{self.name}__count", FieldType("int")))
        if self.kind == "distinct":
            return ((self.name, FieldType("list", element=self.over.with_null(False))),)
        if self.kind in ("first", "latest"):
            return ((self.name, _ordered(self.over)),)
        if self.kind == "sum":
            return ((self.name, _summed(self.over)),)
        return ((self.name, self.type.with_null(True)),)


@dataclass(frozen=True, slots=True)
class OperatorSchema:
    """Keys and fields of one operator, in declaration order."""

    uid: str
    keys: tuple[KeyColumn, ...]
    fields: tuple[StoredField, ...]
    key_groups: int = KEY_GROUPS

    @property
    def fingerprint(self) -> str:
        """sha256 over the JSON form: equal fingerprints share tables."""
        return checksum(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """The form that manifests carry."""
        return {
            "uid": self.uid,
            "key_groups": self.key_groups,
            "keys": [{"name": k.name, "source": k.source, "type": type_to_json(k.type)} for k in self.keys],
            "fields": [
                {
                    "name": f.name,
                    "kind": f.kind,
                    "source": f.source,
                    "over": type_to_json(f.over),
                    "type": type_to_json(f.type),
                    "ignore_nulls": f.ignore_nulls,
                    "limit": f.limit,
                }
                for f in self.fields
            ],
        }

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "OperatorSchema":
        """The inverse of `to_json`."""
        return cls(
            uid=body["uid"],
            key_groups=body["key_groups"],
            keys=tuple(KeyColumn(k["name"], k["source"], type_from_json(k["type"])) for k in body["keys"]),
            fields=tuple(
                StoredField(
                    f["name"],
                    f["kind"],
                    f["source"],
                    type_from_json(f["over"]),
                    type_from_json(f["type"]),
                    f["ignore_nulls"],
                    f["limit"],
                )
                for f in body["fields"]
            ),
        )


def bind_key(where: str, source: str, record: FieldType) -> KeyColumn:
    """The key column that a record path names.

    Raises:
        DeclarationError: no such field, or a type that is no key (keys are bool, int, str, date or timestamp).
    """
    found = record.at(source)
    if found is None or found.kind not in ("bool", "int", "str", "date", "timestamp"):
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
    return StoredField(
        declared.name,
        declared.kind,
        declared.source,
        over,
        declared.type,
        declared.ignore_nulls,
        declared.limit,
    )


def type_to_json(t: FieldType) -> dict[str, Any]:
    """A type as JSON."""
    body: dict[str, Any] = {"kind": t.kind, "nullable": t.nullable}
    if t.kind == "decimal":
        body |= {"digits": t.digits, "scale": t.scale}
    if t.element is not None:
        body["element"] = type_to_json(t.element)
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
    if kind == "distinct":
        return FieldType("list", element=over.with_null(False))
    if kind == "sum":
        # The declared digits may be wider than the record's; the sum itself is kept in 38 digits.
        return (
            declared.type
            if declared.type.kind == over.kind == "decimal" and declared.type.scale == over.scale
            else over
        )
    return over


def _summed(over: FieldType) -> FieldType:
    if over.kind == "decimal":
        return FieldType("decimal", nullable=True, digits=38, scale=over.scale)
    return over.with_null(True)


def _ordered(over: FieldType) -> FieldType:
    return FieldType(
        "struct",
        nullable=True,
        fields=(
            ("at", FieldType("timestamp")),
            ("topic", FieldType("str")),
            ("partition", FieldType("int")),
            ("offset", FieldType("int")),
            ("value", over.with_null(True)),
        ),
    )
