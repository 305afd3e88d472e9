"""Converts Arrow columns to Python values and back, a column at a time: calls per record are expensive."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.model.core.types import FieldType
from tidemark.processing.instances import InstanceMaker
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


def struct_array(rows: Sequence[Mapping[str, Any] | None], of: FieldType) -> pa.StructArray:
    """Returns the column of a struct type, put together from a column of each field.

    Args:
        rows: stored values by name; None = null.
        of: the struct.
    """
    try:
        getters: list[Any] = [itemgetter(name) for name, _ in of.fields]
        columns, mask = [list(map(get, rows)) for get in getters], None
    except TypeError:  # a null
        mask = pa.array([row is None for row in rows])
        columns = [[None if row is None else row[name] for row in rows] for name, _ in of.fields]
    made = [_array(values, inner) for values, (_, inner) in zip(columns, of.fields, strict=True)]
    return pa.StructArray.from_arrays(made, fields=list(arrow_type(of)), mask=mask)


def _array(values: Sequence[Any], of: FieldType) -> pa.Array:
    return struct_array(values, of) if of.kind == "struct" else pa.array(values, arrow_type(of))


def stored_reader(of: FieldType) -> Reader:
    """Returns a function that reads a column to stored values; structs become dicts."""
    names = [name for name, _ in of.fields]

    def made(columns: Iterable[list[Any]]) -> list[Any]:
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    return _reader(of, [stored_reader(inner) for _, inner in of.fields], made)


def object_reader(shape: Shape) -> Reader:
    """Returns a function that reads a column to values; structs become instances of their dataclasses."""
    if shape.type.kind != "struct":
        if shape.type.key is not None:
            return _maps(object_reader(shape.inner[0]), object_reader(shape.inner[1]))
        if shape.type.element is not None:
            return _lists(object_reader(shape.inner[0]))
        return _loaded(stored_reader(shape.type), shape.load)
    return _reader(shape.type, [object_reader(inner) for inner in shape.inner], instances(shape))


def instances(shape: Shape) -> Callable[[Iterable[list[Any]]], list[Any]]:
    """Returns a function that makes instances of a struct's dataclass from columns, one per field in order."""
    cls, names = shape.cls, shape.names
    if hasattr(cls, "__post_init__") or "__slots__" in vars(cls) or any(b is not object for b in cls.__bases__):
        return lambda columns: [cls(**dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]
    return InstanceMaker(cls, names).make_all


def _reader(of: FieldType, inner: Sequence[Reader], made: Callable[[Iterable[list[Any]]], list[Any]]) -> Reader:
    if of.kind == "timestamp":
        return _timestamps
    if of.kind == "struct":
        return lambda column: _structs(column, inner, made)
    if of.key is not None and of.element is not None:
        return _maps(stored_reader(of.key), stored_reader(of.element))
    if of.element is not None:
        return _lists(stored_reader(of.element))
    return _plain


def _loaded(read: Reader, load: Callable[[Any], Any] | None) -> Reader:
    if load is None:
        return read
    return lambda column: [None if plain is None else load(plain) for plain in read(column)]


def _plain(column: Any) -> list[Any]:
    if column.null_count == 0 and pa.types.is_primitive(column.type) and not pa.types.is_date(column.type):
        found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return found
    return list(column.to_pylist())


def _timestamps(column: Any) -> list[Any]:
    micros = column.cast(pa.int64())
    # A list of numpy's has `timedelta`, whose sum with a time with a zone is made without a call in Python.
    known = micros.fill_null(0) if micros.null_count else micros
    found: list[Any] = list(map(_EPOCH.__add__, known.to_numpy().view("timedelta64[us]").tolist()))
    if micros.null_count:
        for n in np.flatnonzero(micros.is_null()).tolist():
            found[n] = None
    return found


def _structs(column: Any, inner: Sequence[Reader], made: Callable[[Iterable[list[Any]]], list[Any]]) -> list[Any]:
    if column.null_count == 0:
        return made([read(part) for read, part in zip(inner, column.flatten(), strict=True)])
    known = column.is_valid()
    valid = column.filter(known)
    rows = iter(made([read(part) for read, part in zip(inner, valid.flatten(), strict=True)]))
    return [next(rows) if is_valid else None for is_valid in known.to_pylist()]


def _lists(read: Reader) -> Reader:
    return lambda column: _sliced(column, lambda first, count: read(column.values.slice(first, count)))


def _maps(read_key: Reader, read_item: Reader) -> Reader:
    def entries(column: Any, first: int, count: int) -> list[Any]:
        keys, items = read_key(column.keys.slice(first, count)), read_item(column.items.slice(first, count))
        return list(zip(keys, items, strict=True))

    def maps(column: Any) -> list[Any]:
        found = _sliced(column, lambda first, count: entries(column, first, count))
        return [None if row is None else dict(row) for row in found]

    return maps


def _sliced(column: Any, read: Callable[[int, int], list[Any]]) -> list[Any]:
    """Returns the elements of each row of a list or map column; None where it is null."""
    if not len(column):
        # Arrow for Java sends no offset for an empty column, so the one that is read would be whatever follows.
        return []
    offsets = column.offsets.to_pylist()
    first = offsets[0]
    values = read(first, offsets[-1] - first)
    found: list[Any] = [values[a - first : b - first] for a, b in zip(offsets, offsets[1:], strict=False)]
    if column.null_count:
        known = column.is_valid().to_pylist()
        return [row if valid else None for valid, row in zip(known, found, strict=True)]
    return found
