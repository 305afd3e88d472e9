"""What a record of `pipelines/events.py` is worth, in plain Python: applied, or a dead letter and why."""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

SOME_TIME = datetime(2024, 3, 1, tzinfo=UTC)
_LEGAL = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d(:?\d\d)?)?", re.ASCII)
_FIELDS = (("who", str, True), ("kind", str, False), ("amount", int, False), ("at", str, False))


@dataclass(frozen=True)
class Judged:
    """The record, or the reason why there is none."""

    record: dict[str, Any] | None = None
    reason: str | None = None


class _TwiceError(ValueError):
    pass


def judge(value: bytes | None) -> Judged:
    """Decodes strictly: one UTF-8 JSON object, every declared field of its declared type."""
    if value is None:
        return Judged(reason="null_value")
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return Judged(reason="invalid_utf8")
    try:
        body = json.loads(text, object_pairs_hook=_once, parse_constant=_refused)
    except (ValueError, RecursionError):
        return Judged(reason="malformed_json")
    if not isinstance(body, dict):
        return Judged(reason="not_an_object")
    for name, kind, nullable in _FIELDS:
        why = _misfit(body, name, kind, nullable=nullable)
        if why is not None:
            return Judged(reason=f"{why}: {name}")
    at = datetime.fromisoformat(body["at"].replace("Z", "+00:00"))
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    if at > datetime.now(UTC) + timedelta(days=1):
        return Judged(reason="in_the_future")
    return Judged(record={**body, "at": at})


def _misfit(body: dict[str, Any], name: str, kind: type, *, nullable: bool) -> str | None:
    if name not in body:
        return None if nullable else "missing_field"
    found = body[name]
    if found is None:
        return None if nullable else "null_field"
    if type(found) is not kind:
        return "wrong_type"
    if isinstance(found, int) and not -(2**63) <= found < 2**63:
        return "out_of_range"
    if name == "at" and isinstance(found, str):
        return _bad_time(found)
    return None


def _bad_time(text: str) -> str | None:
    if not _LEGAL.fullmatch(text):
        return "bad_format"
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return "out_of_range"
    return None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise _TwiceError
    return dict(pairs)


def _refused(constant: str) -> None:
    raise ValueError(constant)
