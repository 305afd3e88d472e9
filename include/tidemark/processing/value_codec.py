"""Converts values between the author's form and the stored form, without loss, or refuses them when they are assigned.

Stored ("plain") forms are those that Arrow takes and DuckDB returns: numbers, text, bytes, dates, aware UTC datetimes,
decimals of the declared scale, lists, and dicts for structs. Members of an Enum are stored by value, UUIDs and times as
text.
"""

import decimal
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from tidemark.model.core.default_values import stored_form
from tidemark.model.core.types import FieldType
from tidemark.processing.shapes import Shape, is_changeable

Dump = Callable[[Any], Any]
_WIDE = decimal.Context(prec=100, traps=[decimal.InvalidOperation])


class DoesNotFit(OverflowError):  # noqa: N818  (an answer about a value; who knows the key makes an error of it)
    """A value of the right kind that its declared type cannot hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """Converts a value to its stored form and back.

    Attributes:
        dump: returns the stored form of a value. Raises TypeError for another type, DoesNotFit for a value out of
            range.
        load: returns the value of a stored form; None = they are the same.
        size: returns the approximate bytes of a stored form; None = eight.
        changeable: whether a value is mutable.
    """

    dump: Dump
    load: Callable[[Any], Any] | None = None
    size: Callable[[Any], int] | None = None
    changeable: bool = False

    def copy(self, plain: Any) -> Any:
        """Returns the value of a stored form, sharing nothing with it."""
        return plain if self.load is None or plain is None else self.load(plain)

    def bytes_of(self, plain: Any) -> int:
        """Returns the approximate bytes of a stored form."""
        return 8 if self.size is None or plain is None else self.size(plain)


def codec_of(shape: Shape) -> Codec:
    """Returns the codec of a shape; cached, because every value needs it."""
    made = _collection(shape) if shape.inner or shape.type.kind == "struct" else _scalar(shape)
    return Codec(
        dump=_or_none(made.dump) if shape.type.nullable else made.dump,
        load=made.load,
        size=made.size,
        changeable=made.changeable,
    )


def _or_none(dump: Dump) -> Dump:
    def dumped(value: Any) -> Any:
        return None if value is None else dump(value)

    return dumped


def _refused(value: Any, of: str) -> TypeError:
    return TypeError(f"{value!r:.200} is not of type {of}")


def _exactly(kind: type, name: str) -> Callable[[FieldType], Codec]:
    def dump(value: Any) -> Any:
        if type(value) is kind:
            return value
        raise _refused(value, name)

    return lambda _: Codec(dump=dump)


def _of_int(_: FieldType) -> Codec:
    def dump(value: Any) -> int:
        if type(value) is not int:
            raise _refused(value, "int")
        if not -(2**63) <= value < 2**63:
            raise DoesNotFit(f"{value} does not fit 64 bits")
        return value

    return Codec(dump=dump)


def _of_float(_: FieldType) -> Codec:
    def dump(value: Any) -> float:
        if type(value) is float:
            return value
        if type(value) is int:
            return float(value)
        raise _refused(value, "float")

    return Codec(dump=dump)


def _of_text(_: FieldType) -> Codec:
    def dump(value: Any) -> str:
        if type(value) is not str:
            raise _refused(value, "str")
        if not value.isascii():
            # Half of a surrogate pair is not Unicode, and no engine stores it.
            value.encode()
        return value

    return Codec(dump=dump, size=len)


def _of_bytes(_: FieldType) -> Codec:
    return Codec(dump=_exactly(bytes, "bytes")(_).dump, size=len)


def _of_timestamp(_: FieldType) -> Codec:
    def dump(value: Any) -> datetime:
        if not isinstance(value, datetime):
            raise _refused(value, "datetime")
        if value.tzinfo is UTC:
            return value
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)

    return Codec(dump=dump)


def _of_decimal(of: FieldType) -> Codec:
    unit, bound = Decimal(1).scaleb(-of.scale), Decimal(10) ** (of.digits - of.scale)

    def dump(value: Any) -> Decimal:
        number = Decimal(value) if type(value) is int else value
        if not isinstance(number, Decimal) or not number.is_finite():
            raise _refused(value, "Decimal")
        found = _WIDE.quantize(number, unit) if number.copy_abs() < bound else None
        if found is None or found != number:
            raise DoesNotFit(f"{value} does not fit {of.sql}")
        return found

    return Codec(dump=dump)


def _scalar(shape: Shape) -> Codec:
    of, made = shape.type, _SCALARS[shape.type.kind](shape.type)
    if shape.cls is not None:
        return replace(made, dump=_of_form(of) if of.form else _of_enum(shape.cls), load=shape.load)
    return replace(made, dump=_of_literal(of, made.dump)) if of.members else made


def _of_form(of: FieldType) -> Dump:
    def dump(value: Any) -> str:
        try:
            return stored_form(value, of)
        except TypeError:
            raise _refused(value, of.form) from None

    return dump


def _of_enum(cls: Any) -> Dump:
    def dump(value: Any) -> Any:
        if type(value) is not cls:
            raise _refused(value, cls.__name__)
        return value.value

    return dump


def _of_literal(of: FieldType, plain: Dump) -> Dump:
    def dump(value: Any) -> Any:
        if plain(value) not in of.members:
            raise _refused(value, of.shown)
        return value

    return dump


_SCALARS: dict[str, Callable[[FieldType], Codec]] = {
    "bool": _exactly(bool, "bool"),
    "int": _of_int,
    "float": _of_float,
    "str": _of_text,
    "bytes": _of_bytes,
    "date": _exactly(date, "date"),
    "timestamp": _of_timestamp,
    "decimal": _of_decimal,
}


def _collection(shape: Shape) -> Codec:
    if shape.type.kind == "list":
        return _of_list(shape)
    if shape.type.kind == "map":
        return _of_map(shape)
    return _of_struct(shape, shape.cls)


def _of_list(shape: Shape) -> Codec:
    element = codec_of(shape.inner[0])
    dump_one, load_one, size_of = element.dump, element.copy, element.bytes_of

    def dump(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise _refused(value, "list")
        return [dump_one(v) for v in value]

    return Codec(
        dump=dump,
        load=lambda plain: [load_one(v) for v in plain],
        size=lambda plain: 8 + sum(map(size_of, plain)),
        changeable=True,
    )


def _of_map(shape: Shape) -> Codec:
    keys, values = map(codec_of, shape.inner)

    def dump(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise _refused(value, "dict")
        made = {keys.dump(k): values.dump(v) for k, v in value.items()}
        return dict(sorted(made.items()))

    return Codec(
        dump=dump,
        load=lambda plain: {keys.copy(k): values.copy(v) for k, v in plain.items()},
        size=lambda plain: sum(keys.bytes_of(k) + values.bytes_of(v) for k, v in plain.items()),
        changeable=True,
    )


def _of_struct(shape: Shape, cls: Any) -> Codec:
    parts = [(name, codec_of(inner)) for name, inner in zip(shape.names, shape.inner, strict=True)]

    def dump(value: Any) -> dict[str, Any]:
        if not isinstance(value, cls):
            raise _refused(value, cls.__name__)
        return {name: _part(cls, name, codec.dump, getattr(value, name)) for name, codec in parts}

    return Codec(
        dump=dump,
        load=lambda plain: cls(**{name: codec.copy(plain[name]) for name, codec in parts}),
        size=lambda plain: sum(codec.bytes_of(plain[name]) for name, codec in parts),
        changeable=is_changeable(shape),
    )


def _part(cls: Any, name: str, dump: Dump, value: Any) -> Any:
    try:
        return dump(value)
    except (TypeError, DoesNotFit, UnicodeEncodeError) as error:
        raise type_of(error)(f"{cls.__name__}.{name}: {error}") from None


def type_of(error: Exception) -> type[Exception]:
    """Returns the class with which to raise the error again with more words."""
    return DoesNotFit if isinstance(error, DoesNotFit) else TypeError
