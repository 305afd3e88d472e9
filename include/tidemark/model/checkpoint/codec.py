"""Frozen dataclasses to JSON and back, by their annotations: every object of the store, and the answers of Tidemark.

Supported are str, int, float, bool, None, enums, nested dataclasses, `X | None`, `tuple[X, ...]`, `Mapping[str, X]` and
`Mapping[TopicPartition, X]`; `OperatorSchema` and `FieldType` have their own form. Unknown and missing keys are damage,
except for fields that a later release added: with `metadata=ADDED` an empty field is omitted, as if it did not exist.
"""

import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from tidemark.errors import CorruptObjectError
from tidemark.model.core.offsets import OffsetRanges, TopicPartition
from tidemark.model.core.types import FieldType, type_from_json, type_to_json
from tidemark.model.schema.operator_schema import OperatorSchema

T = TypeVar("T")

Convert = Callable[[Any], Any]
"""Codecs by type, created once: manifests contain the same few types many times."""
_SCALARS = frozenset({str, int, float, bool, type(None)})
ADDED = {"added": True}
"""Metadata of a dataclass field that objects of earlier releases lack; the field needs a default."""


def to_json(value: Any) -> Any:
    """Returns the JSON form of a value of one of the supported types."""
    kind: Any = type(value)
    return value if kind in _SCALARS else _writer(kind)(value)


def from_json(cls: type[T], body: Any, where: str) -> T:
    """Returns the value of type `cls` for its JSON form `body`.

    Args:
        cls: a dataclass.
        body: parsed JSON.
        where: key of the object, for the message.

    Raises:
        CorruptObjectError: a key is missing or unknown, or a value has another type.
    """
    kind: Any = cls
    try:
        made = _reader(kind)(body)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise CorruptObjectError(
            f"object damaged: {where}: {error}",
            safe="nothing was written.",
            next="put the object back from a backup of the warehouse, or use the release that wrote it.",
        ) from error
    assert isinstance(made, cls)  # noqa: S101  (for the type checker; _read made it)
    return made


def body_of(answer: object) -> Any:
    """Returns an answer, or a list of answers, as JSON values; fields keep their order.

    A field whose name would be a keyword of Python ends in an underscore, which the body leaves out.
    """
    if is_dataclass(answer) and not isinstance(answer, type):
        return {f.name.removesuffix("_"): body_of(getattr(answer, f.name)) for f in fields(answer)}
    if isinstance(answer, Mapping):
        return {name: body_of(value) for name, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [body_of(value) for value in answer]
    return answer


@cache
def _writer(cls: type) -> Convert:
    if issubclass(cls, OperatorSchema):
        return OperatorSchema.to_json
    if issubclass(cls, FieldType):
        return type_to_json
    if issubclass(cls, OffsetRanges):
        return lambda value: to_json(value.by_partition)
    if issubclass(cls, Enum):
        return lambda value: value.value
    if is_dataclass(cls):
        return _dataclass_writer(cls)
    if issubclass(cls, Mapping):
        return lambda value: {str(k): to_json(v) for k, v in value.items()}
    if issubclass(cls, tuple | list):
        return lambda value: [to_json(v) for v in value]
    return lambda value: value


def _dataclass_writer(cls: type) -> Convert:
    names, added = _names(cls), _added(cls)

    def write(value: Any) -> dict[str, Any]:
        held = [(name, getattr(value, name)) for name in names]
        return {name: to_json(v) for name, v in held if v or name not in added}

    return write


@cache
def _names(cls: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(cls)) if is_dataclass(cls) else ()


@cache
def _added(cls: type) -> frozenset[str]:
    return frozenset(f.name for f in fields(cls) if f.metadata.get("added")) if is_dataclass(cls) else frozenset()


@cache
def _readers(cls: type) -> dict[str, Convert]:
    """Codecs per field, created at the first read, so that a type may contain itself."""
    hints = get_type_hints(cls)
    return {name: _reader(hints[name]) for name in _names(cls)}


@cache
def _reader(kind: Any) -> Convert:
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        inner = _reader(next(a for a in args if a is not type(None)))
        return lambda body: None if body is None else inner(body)
    if origin is tuple:
        element = _reader(args[0])
        return lambda body: tuple([element(v) for v in body])
    if origin is not None and issubclass(origin, Mapping):
        parse, held = TopicPartition.parse if args[0] is TopicPartition else str, _reader(args[1])
        return lambda body: {parse(k): held(v) for k, v in body.items()}
    if kind is OperatorSchema:
        return OperatorSchema.from_json
    if kind is FieldType:
        return type_from_json
    if kind is OffsetRanges:
        return lambda body: OffsetRanges(_readers(OffsetRanges)["by_partition"](body))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    return _dataclass_reader(kind) if is_dataclass(kind) else _scalar_reader(kind)


def _dataclass_reader(kind: Any) -> Convert:
    known = frozenset(_names(kind))
    needed = known - _added(kind)

    def read(body: Any) -> Any:
        found = set(body)
        if not needed <= found <= known:
            raise ValueError(f"{kind.__name__}: keys {sorted(found ^ known)} are missing or unknown")
        return kind(**{name: make(body[name]) for name, make in _readers(kind).items() if name in found})

    return read


def _scalar_reader(kind: Any) -> Convert:
    def read(body: Any) -> Any:
        if type(body) is kind or kind is Any:
            return body
        if kind is float and isinstance(body, int) and not isinstance(body, bool):
            return float(body)
        if not isinstance(body, kind) or (kind is int and isinstance(body, bool)):
            raise ValueError(f"{body!r} is not a {kind.__name__}")
        return body

    return read
