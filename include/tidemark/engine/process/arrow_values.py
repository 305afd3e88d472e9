"""Converts Arrow columns to Python values and back, a column at a time: calls per record are expensive."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from tidemark.model.core.types import FieldType
from tidemark.processing.shapes import Shape

Reader = Callable[[Any], list[Any]]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PRIMITIVES = {
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    "str": pa.string(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def arrow_type(of: FieldType) -> pa.DataType:
    """Returns the Arrow type of a stored type."""
    if of.kind == "decimal":
        return pa.decimal128(of.digits, of.scale)
    if of.kind == "struct":
        return pa.struct([(name, arrow_type(inner)) for name, inner in of.fields])
    if of.element is not None:
        element = arrow_type(of.element)
        return pa.list_(element) if of.key is None else pa.map_(arrow_type(of.key), element)
    return _PRIMITIVES[of.kind]


def stored_reader(of: FieldType) -> Reader:
    """Returns a function that reads a column to stored values; structs become dicts."""
    names = [name for name, _ in of.fields]
    return _reader(of, [stored_reader(inner) for _, inner in of.fields], lambda *v: dict(zip(names, v, strict=True)))


def object_reader(shape: Shape) -> Reader:
    """Returns a function that reads a column to values; structs become instances of their dataclasses."""
    if shape.type.kind != "struct":
        if shape.type.element is not None:
            return _lists(object_reader(shape.inner[0]))
        return stored_reader(shape.type)
    return _reader(shape.type, [object_reader(inner) for inner in shape.inner], builder(shape))


def builder(shape: Shape) -> Callable[..., Any]:
    """Returns a function that builds an instance of a struct's dataclass from its fields, in order."""
    cls, names = shape.cls, shape.names
    if hasattr(cls, "__post_init__") or "__slots__" in vars(cls) or any(b is not object for b in cls.__bases__):
        return lambda *values: cls(**dict(zip(names, values, strict=True)))
    new = object.__new__

    def built(*values: Any) -> Any:
        # As the generated __init__ does, which for a frozen class calls object.__setattr__ for each field.
        made = new(cls)
        made.__dict__.update(zip(names, values, strict=True))
        return made

    return built


def _reader(of: FieldType, inner: Sequence[Reader], made: Callable[..., Any]) -> Reader:
    if of.kind == "timestamp":
        return _timestamps
    if of.kind == "struct":
        return lambda column: _structs(column, inner, made)
    if of.element is not None:
        return _lists(stored_reader(of.element))
    return _plain


def _plain(column: Any) -> list[Any]:
    if column.null_count == 0 and pa.types.is_primitive(column.type) and not pa.types.is_date(column.type):
        found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return found
    return list(column.to_pylist())


def _timestamps(column: Any) -> list[Any]:
    micros = _plain(column.cast(pa.int64()))
    return [None if n is None else _EPOCH + timedelta(0, 0, n) for n in micros]


def _structs(column: Any, inner: Sequence[Reader], made: Callable[..., Any]) -> list[Any]:
    children = [read(part) for read, part in zip(inner, column.flatten(), strict=True)]
    if column.null_count == 0:
        return list(map(made, *children))
    known = column.is_valid().to_pylist()
    rows = zip(*children, strict=True)
    return [made(*row) if valid else None for valid, row in zip(known, rows, strict=True)]


def _lists(read: Reader) -> Reader:
    def lists(column: Any) -> list[Any]:
        offsets = column.offsets.to_pylist()
        first = offsets[0] if offsets else 0
        values = read(column.values.slice(first, (offsets[-1] if offsets else 0) - first))
        found: list[Any] = [values[a - first : b - first] for a, b in zip(offsets, offsets[1:], strict=False)]
        if column.null_count:
            known = column.is_valid().to_pylist()
            return [row if valid else None for valid, row in zip(known, found, strict=True)]
        return found

    return lists
