"""Finds out whether a dead letter belongs to an erased key, from its raw bytes (adr/0041).

A dead letter could not be decoded, or has no usable key, so its columns do not say whose record it is. What can be read
of it decides: a member of the JSON object that has the name of the key column; else any value; else the text itself.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from tidemark.model.schema.key_groups import key_text

_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile("[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{6})?")
_DEEP = 200
"""JSON that is nested deeper than this is searched as text."""


def belongs_to(
    key: bytes | None, value: bytes | None, columns: Mapping[str, object], headers: Sequence[bytes | None] = ()
) -> bool:
    """Whether a dead letter belongs to a key.

    Args:
        key: raw message key.
        value: raw message value.
        columns: the values of the key, by column.
        headers: raw values of the headers.
    """
    raw = [part for part in (key, value, *headers) if part]
    read = [(part, _parsed(part)) for part in raw]
    return bool(raw) and all(any(_holds(part, found, name, of) for part, found in read) for name, of in columns.items())


def _holds(raw: bytes, found: "list[tuple[str, Any]] | None", name: str, value: object) -> bool:
    texts = _texts(value)
    if found is None:
        return any(_is_word(raw, text.encode()) for text in texts)
    named = [held for path, held in found if path == name]
    return any(_text(held) in texts for held in named or (held for _, held in found))


def _parsed(raw: bytes) -> "list[tuple[str, Any]] | None":
    """Every scalar of a JSON text with its path; None if the bytes are no JSON text."""
    try:
        body = json.loads(raw.decode(), object_pairs_hook=_Members)
        return list(_scalars(body, "", _DEEP))
    except (ValueError, RecursionError):
        return None


class _Members(list[tuple[str, Any]]):
    """The members of an object, so that none hides another one of the same name."""


def _scalars(body: Any, path: str, left: int) -> Iterator[tuple[str, Any]]:
    if not left:
        raise ValueError("nested too deep")
    if isinstance(body, _Members):
        for name, inner in body:
            yield from _scalars(inner, f"{path}.{name}" if path else name, left - 1)
    elif isinstance(body, list):
        for inner in body:
            yield from _scalars(inner, f"{path}.", left - 1)
    elif body is not None:
        yield path, body


def _text(value: Any) -> str:
    return value if isinstance(value, str) else key_text(value)


def _texts(value: object) -> frozenset[str]:
    """The texts by which a record may name a value of a key column."""
    found = {key_text(value)}
    if isinstance(value, datetime):
        found |= {value.isoformat(), value.isoformat().replace("+00:00", "Z")}
    elif isinstance(value, date):
        found.add(value.isoformat())
    elif isinstance(value, Decimal):
        found |= {key_text(value.normalize()), str(float(value))}
    elif isinstance(value, str) and _UUID.fullmatch(value):
        found.add(value.upper())
    elif isinstance(value, str) and _TIME.fullmatch(value):
        found.add(value.removesuffix(":00") if len(value) == len("12:00:00") else value.rstrip("0"))
    return frozenset(found)


def _is_word(raw: bytes, text: bytes) -> bool:
    """Whether the bytes hold the text, and not as a part of a longer word or number."""
    return bool(text) and re.search(rb"(?<![\w])" + re.escape(text) + rb"(?![\w])", raw) is not None
