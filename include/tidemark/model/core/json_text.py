"""Emitted records as JSON, in the form that a `KafkaSource` of the same dataclass decodes."""

import base64
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal


def json_record(fields: Mapping[str, object]) -> bytes:
    """Returns a record as a JSON object: times in ISO 8601 with their zone, decimals as text, bytes in base64."""
    return json.dumps(_plain(fields), ensure_ascii=False, separators=(",", ":")).encode()


def key_bytes(value: object) -> bytes | None:
    """Returns a message key: text unchanged, other values in their JSON or ISO 8601 form; None stays None."""
    plain = _plain(value)
    if plain is None:
        return None
    return (plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)).encode()


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return format(value, "f") if isinstance(value, Decimal) else value
