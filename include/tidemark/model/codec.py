"""Frozen dataclasses to JSON and back, by their annotations: every object of the store uses it.

Supported: str, int, float, bool, None, enums, nested dataclasses, `X | None`, `tuple[X, ...]`, `Mapping[str, X]`,
`Mapping[TopicPartition, X]`; `OperatorSchema` and `FieldType` bring their own form. Unknown and missing keys are
damage, but for fields that a later release added: with `metadata=ADDED` an empty one is left out, as if it had never
been.
"""

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from tidemark.errors import CorruptObjectError
from tidemark.model.offsets import OffsetRanges, TopicPartition
from tidemark.model.schema import OperatorSchema
from tidemark.model.type_json import type_from_json, type_to_json
from tidemark.model.types import FieldType

T = TypeVar("T")

_SCALARS = (str, int, float, bool)
ADDED = {"added": True}
"""Metadata of a dataclass field that objects of earlier releases lack; it needs a default."""


def to_json(value: Any) -> Any:
    """The JSON form of a value of one of the supported types."""
    if value is None or type(value) in _SCALARS:
        return value
    if isinstance(value, OperatorSchema):
        return value.to_json()
    if isinstance(value, FieldType):
        return type_to_json(value)
    if isinstance(value, OffsetRanges):
        return to_json(value.by_partition)
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        held = {name: getattr(value, name) for name in _names(type(value))}
        return {name: to_json(v) for name, v in held.items() if v or name not in _added(type(value))}
    if isinstance(value, Mapping):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(v) for v in value]
    return value


def from_json(cls: type[T], body: Any, where: str) -> T:
    """The value of type `cls` that `body` is the JSON form of.

    Args:
        cls: a dataclass.
        body: parsed JSON.
        where: the object's key, for the message.

    Raises:
        CorruptObjectError: a key is missing or unknown, or a value is of another type.
    """
    try:
        made = _read(cls, body)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise CorruptObjectError(
            f"object damaged: {where}: {error}",
            safe="nothing was written.",
            next="put the object back from a backup of the warehouse, or use the release that wrote it.",
        ) from error
    assert isinstance(made, cls)  # noqa: S101  (for the type checker; _read made it)
    return made


@cache
def _names(cls: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(cls)) if is_dataclass(cls) else ()


@cache
def _added(cls: type) -> frozenset[str]:
    return frozenset(f.name for f in fields(cls) if f.metadata.get("added")) if is_dataclass(cls) else frozenset()


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _read(kind: Any, body: Any) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        inner = next(a for a in args if a is not type(None))
        return None if body is None else _read(inner, body)
    if origin is tuple:
        return tuple(_read(args[0], v) for v in body)
    if origin is not None and issubclass(origin, Mapping):
        parse = TopicPartition.parse if args[0] is TopicPartition else str
        return {parse(k): _read(args[1], v) for k, v in body.items()}
    if kind is OperatorSchema:
        return OperatorSchema.from_json(body)
    if kind is FieldType:
        return type_from_json(body)
    if kind is OffsetRanges:
        return OffsetRanges(_read(_hints(OffsetRanges)["by_partition"], body))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(body)
    if is_dataclass(kind):
        return _read_dataclass(kind, body)
    return _read_scalar(kind, body)


def _read_dataclass(kind: Any, body: Any) -> Any:
    hints = _hints(kind)
    names = _names(kind)
    if not set(names) - _added(kind) <= set(body) <= set(names):
        raise ValueError(f"{kind.__name__}: keys {sorted(set(body) ^ set(names))} are missing or unknown")
    return kind(**{name: _read(hints[name], body[name]) for name in names if name in body})


def _read_scalar(kind: Any, body: Any) -> Any:
    if kind is Any:
        return body
    if kind is float and isinstance(body, int) and not isinstance(body, bool):
        return float(body)
    if not isinstance(body, kind) or (kind is int and isinstance(body, bool)):
        raise ValueError(f"{body!r} is no {kind.__name__}")
    return body
