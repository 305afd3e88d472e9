"""Stored types and wider ones, with values: old rows as the current declaration reads them."""

from decimal import Decimal
from typing import Any

from tidemark.model.core.types import FieldType

INT, TEXT = FieldType("int"), FieldType("str")
NARROW, WIDE = FieldType("decimal", digits=6, scale=2), FieldType("decimal", digits=20, scale=2)


def struct(**fields: FieldType) -> FieldType:
    return FieldType("struct", nullable=True, fields=tuple(fields.items()))


def listed(of: FieldType) -> FieldType:
    return FieldType("list", nullable=True, element=of)


def filled(of: FieldType, default: str) -> FieldType:
    return FieldType(of.kind, of.nullable, of.digits, of.scale, of.element, of.fields, default=default)


def mapped(of: FieldType) -> FieldType:
    return FieldType("map", nullable=True, key=TEXT, element=of)


ODD = 'it\'s \\ "é"\n'
OLD = struct(a=NARROW, b=listed(struct(c=INT)))
NEW = struct(
    z=filled(FieldType("bool"), "true"),
    b=listed(
        struct(
            c=INT,
            text=filled(TEXT, '"it\'s \\\\ \\"\\u00e9\\"\\n"'),
            raw=filled(FieldType("bytes"), '"aGk="'),
            at=filled(FieldType("timestamp"), '"2020-01-01T00:00:00+00:00"'),
            day=filled(FieldType("date"), '"2020-02-29"'),
            share=filled(FieldType("float"), "0.5"),
            price=filled(NARROW, '"1.50"'),
            none=INT.with_null(True),
        )
    ),
    a=WIDE,
    tags=filled(listed(TEXT), '["x","y z"]'),
    empty=filled(listed(INT), "[]"),
)
CASES: list[tuple[FieldType, FieldType, list[Any]]] = [
    (NARROW, WIDE, [Decimal("1.50"), None]),
    (listed(struct(a=INT)), listed(struct(a=INT, b=INT.with_null(True))), [[{"a": 1}, None], [], None]),
    (struct(a=INT, b=TEXT), struct(b=TEXT, a=INT), [{"a": 1, "b": "x"}, None]),
    (mapped(NARROW), mapped(WIDE), [{"a": Decimal("1.50")}, {}, None]),
    (
        mapped(listed(struct(a=NARROW))),
        mapped(listed(struct(b=TEXT.with_null(True), a=WIDE))),
        [{"x": [{"a": Decimal("1.50")}, None], "y": [], "z": None}, {}, None],
    ),
    (OLD, NEW, [{"a": Decimal("1.50"), "b": [{"c": 1}, None]}, {"a": None, "b": None}, None]),
]
