"""Stored types as JSON, the form in manifests."""

from typing import Any

from tidemark.model.core.types import FieldType


def type_to_json(t: FieldType) -> dict[str, Any]:
    """A type as JSON."""
    body: dict[str, Any] = {"kind": t.kind, "nullable": t.nullable}
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
    )
