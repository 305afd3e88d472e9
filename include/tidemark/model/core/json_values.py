"""Stored values as JSON and back, without loss; manifests carry operator state in this form."""

import base64
import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from tidemark.model.core.types import FieldType


def value_to_json(of: FieldType, plain: Any) -> Any:
    """Returns the JSON form of a stored value; decimals, dates, times and non-finite floats are text, bytes base64.

    Args:
        of: its type.
        plain: the value, None if the type allows it.
    """
    if plain is None:
        return None
    if of.kind == "struct":
        return {name: value_to_json(inner, plain[name]) for name, inner in of.fields}
    if of.key is not None and of.element is not None:
        return {key_to_json(of.key, k): value_to_json(of.element, v) for k, v in dict(plain).items()}
    if of.element is not None:
        return [value_to_json(of.element, v) for v in plain]
    return _DUMP.get(of.kind, _same)(plain)


def key_to_json(of: FieldType, plain: Any) -> str:
    """Returns the name in a JSON object of a stored map key: text as it is, others in their JSON form."""
    body = value_to_json(of, plain)
    return body if isinstance(body, str) else json.dumps(body)


def value_from_json(of: FieldType, body: Any) -> Any:
    """The inverse of `value_to_json`."""
    if body is None:
        return None
    if of.kind == "struct":
        return {name: value_from_json(inner, _part(body, name, inner)) for name, inner in of.fields}
    if of.element is not None:
        return [value_from_json(of.element, v) for v in body]
    return _LOAD.get(of.kind, _same)(body)


def _part(body: dict[str, Any], name: str, of: FieldType) -> Any:
    """Returns a field; a value that was stored before its dataclass got the field has the default."""
    return json.loads(of.default) if name not in body and of.default is not None else body.get(name)


def _same(value: Any) -> Any:
    return value


def _float_to_json(value: float) -> float | str:
    # JSON has no numbers for these three.
    return value if value - value == 0 else repr(value)


_DUMP: dict[str, Callable[[Any], Any]] = {
    "float": _float_to_json,
    "bytes": lambda v: base64.b64encode(v).decode(),
    "date": date.isoformat,
    "timestamp": lambda v: v.astimezone(UTC).isoformat(),
    "decimal": lambda v: format(v, "f"),
}
_LOAD: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "bytes": base64.b64decode,
    "date": date.fromisoformat,
    "timestamp": lambda text: datetime.fromisoformat(text).astimezone(UTC),
    "decimal": Decimal,
}
