"""Declared values: defaults of record fields and initial values of state, checked when they are declared.

A declared value travels as JSON text in the form of `formats.Json`: manifests and fingerprints carry it, Spark and
Python decode it like a record that says it, and so it means the same everywhere.
"""

import json
from dataclasses import is_dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any
from uuid import UUID

from tidemark.errors import DeclarationError
from tidemark.model.core.json_values import value_to_json
from tidemark.model.core.types import FieldType

_SCALARS: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (float, int),
    "decimal": (Decimal, int),
    "str": (str,),
    "bytes": (bytes,),
    "date": (date,),
    "timestamp": (datetime,),
}


def value_text(value: object, of: FieldType, where: str) -> str:
    """Returns a declared value as JSON text.

    Args:
        value: as the author writes it: an Enum member, a UUID, a list, an instance of a dataclass.
        of: the declared type.
        where: the field, for the message.

    Raises:
        DeclarationError: it is not of the declared type.
    """
    try:
        return json.dumps(value_to_json(of, stored_value(value, of)), allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise DeclarationError(
            f"{where}: {value!r:.200} is not of the declared type {of.shown}",
            next="give a value of the annotated type.",
        ) from error


def stored_value(value: Any, of: FieldType) -> Any:
    """Returns a value of the author in stored form: Enum members by value, UUIDs and times as text, structs as dicts.

    Raises:
        TypeError, ValueError: it is not of the type.
    """
    if value is None:
        if of.nullable:
            return None
        raise TypeError("null is not allowed")
    if of.kind == "struct":
        if not is_dataclass(value):
            raise TypeError(f"{value!r} is not an instance of a dataclass")
        return {name: stored_value(getattr(value, name), inner) for name, inner in of.fields}
    if of.element is not None:
        return _collection(value, of, of.element)
    return _scalar(value, of)


def _collection(value: Any, of: FieldType, element: FieldType) -> Any:
    if of.key is None and isinstance(value, list):
        return [stored_value(v, element) for v in value]
    if of.key is not None and isinstance(value, dict):
        return {stored_value(k, of.key): stored_value(v, element) for k, v in value.items()}
    raise TypeError(f"{value!r} is not a {of.kind}")


def _scalar(value: Any, of: FieldType) -> Any:
    if of.form:
        return stored_form(value, of)
    plain = value.value if isinstance(value, Enum) and of.members else value
    if type(plain) not in _SCALARS[of.kind] or (of.members and plain not in of.members):
        raise TypeError(f"{value!r} is not of type {of.shown}")
    if of.kind == "float" and plain - plain != 0:
        raise ValueError(f"{plain} is not finite")
    if of.kind == "int" and not -(2**63) <= plain < 2**63:
        raise ValueError(f"{plain} does not fit 64 bits")
    if of.kind == "timestamp":
        return plain if plain.tzinfo else plain.replace(tzinfo=UTC)
    if of.kind == "str":
        plain.encode()
    return fitting_decimal(plain, of) if of.kind == "decimal" else plain


def stored_form(value: object, of: FieldType) -> str:
    """Returns the canonical text of a UUID or a time.

    Raises:
        TypeError: it is something else, or a time with a zone.
    """
    if type(value) is not {"uuid": UUID, "time": time}[of.form] or getattr(value, "tzinfo", None):
        raise TypeError(f"{value!r} is not a {of.form}")
    return value.isoformat() if isinstance(value, time) else str(value)


def fitting_decimal(number: Decimal | int | str, of: FieldType) -> Decimal:
    """Returns a number with the scale of a decimal type.

    Raises:
        ValueError: it is no number, or it does not fit.
    """
    try:
        found = Decimal(number)
    except InvalidOperation:
        raise ValueError(f"{number!r} is not a number") from None
    whole, _, fraction = format(found, "f").partition(".")
    if not found.is_finite() or len(fraction.rstrip("0")) > of.scale or len(whole.lstrip("-0")) > of.digits - of.scale:
        raise ValueError(f"{number} does not fit {of.sql}")
    exact = Decimal(f"{whole}.{fraction[: of.scale].ljust(of.scale, '0')}")
    return exact or exact.copy_abs()
