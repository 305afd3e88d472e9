"""Schemas of Avro as values: parsed from JSON, with names resolved as the specification of Avro 1.11 has them."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


class AvroSchemaError(ValueError):
    """The text is no schema of Avro."""


@dataclass(slots=True, eq=False, kw_only=True)
class AvroType:
    """One type of a schema.

    Attributes:
        kind: a primitive's name, or `fixed enum array map record union`.
        name: full name of a fixed, an enum or a record.
        logical: the logical type, if it says one.
        scale: digits behind the point of a decimal.
        size: bytes of a fixed.
        symbols: of an enum.
        items: type of an array's items, or of a map's values.
        branches: of a union.
        fields: of a record, in the order of their bytes. The only part that may lead back to the type itself.
        defaults: the declared defaults of a record's fields, for writers.
    """

    kind: str
    name: str = ""
    logical: str = ""
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    items: "AvroType | None" = None
    branches: tuple["AvroType", ...] = ()
    fields: list[tuple[str, "AvroType"]] = field(default_factory=list)
    defaults: dict[str, Any] = field(default_factory=dict)

    def takes_no_bytes(self, seen: tuple["AvroType", ...] = ()) -> bool:
        """Whether its values may be encoded in no bytes, so that bytes do not limit how many follow each other."""
        if self.kind == "record":
            return self not in seen and all(of.takes_no_bytes((*seen, self)) for _, of in self.fields)
        return self.kind == "null" or (self.kind == "fixed" and not self.size)


@lru_cache(maxsize=256)
def parse_schema(text: str, references: tuple[str, ...] = ()) -> AvroType:
    """Returns the type that a schema describes.

    Args:
        text: the schema as JSON.
        references: the schemas whose names it uses, each after those that it uses itself.

    Raises:
        AvroSchemaError: one of them is no schema.

    >>> parse_schema('{"type": "array", "items": "long"}').items.kind
    'long'
    """
    parser = _Parser({})
    try:
        for known in references:
            parser.parse(json.loads(known), "")
        return parser.parse(json.loads(text), "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise AvroSchemaError(f"no schema of Avro: {error}") from error


@dataclass(frozen=True, slots=True)
class _Parser:
    """The names that are known so far."""

    names: dict[str, AvroType]

    def parse(self, body: Any, namespace: str) -> AvroType:  # noqa: ANN401
        if isinstance(body, str):
            return self._named(body, namespace)
        if isinstance(body, list):
            return AvroType(kind="union", branches=tuple(self.parse(branch, namespace) for branch in body))
        kind = body["type"]
        if not isinstance(kind, str):  # {"type": {"type": "array", ...}}
            return self.parse(kind, namespace)
        match kind:
            case "array" | "map":
                items = body["items" if kind == "array" else "values"]
                return AvroType(kind=kind, items=self.parse(items, namespace))
            case "record" | "error" | "enum" | "fixed":
                return self._define(body, kind, namespace)
            case _ if kind in PRIMITIVES:
                return AvroType(kind=kind, **_logical(body))
            case _:
                return self._named(kind, namespace)

    def _named(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(kind=name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self.names.get(full) or self.names.get(name)
        if found is None:
            raise AvroSchemaError(f"no type is called {name}")
        return found

    def _define(self, body: dict[str, Any], kind: str, namespace: str) -> AvroType:
        name: str = body["name"]
        if "." not in name and (given := body.get("namespace", namespace)):
            name = f"{given}.{name}"
        if name in self.names:
            raise AvroSchemaError(f"two types are called {name}")
        made = AvroType(kind="record" if kind == "error" else kind, name=name, **_logical(body))
        self.names[name] = made
        if kind == "enum":
            made.symbols = _texts(body["symbols"])
        elif kind == "fixed":
            made.size = int(body["size"])
            if made.size < 0:
                raise AvroSchemaError(f"{name} has a negative size")
        else:
            inner = name.rpartition(".")[0]
            made.fields.extend((field["name"], self.parse(field["type"], inner)) for field in body["fields"])
            made.defaults.update((field["name"], field["default"]) for field in body["fields"] if "default" in field)
        return made


def _logical(body: dict[str, Any]) -> dict[str, Any]:
    """A logical type that is not valid is ignored, as the specification demands."""
    logical = body.get("logicalType", "")
    if logical != "decimal":
        return {"logical": logical if isinstance(logical, str) else ""}
    precision, scale = body.get("precision"), body.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision or not precision:
        return {}
    return {"logical": logical, "scale": scale}


def _texts(found: Iterable[Any]) -> tuple[str, ...]:
    made = tuple(found)
    if not all(isinstance(text, str) for text in made):
        raise AvroSchemaError("a symbol is no text")
    return made
