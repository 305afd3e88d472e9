"""Canonical forms, so that checksums and read-backs are comparable: the JSON of a value, the text of a function."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from types import CodeType, FunctionType
from typing import Any

from tidemark.errors import CorruptObjectError

FORMAT = 1
"""Format version of every object in the warehouse."""
_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_PLAIN = (str, bytes, int, float, date, time, timedelta, Decimal, Enum)
"""Types whose `repr` is the same in every process."""
_KIND = re.compile(rb',"format":\d+,"kind":"(\w+)"}\n\Z')


def encode(kind: str, body: dict[str, Any]) -> bytes:
    """Returns the canonical bytes of an object: sorted keys, no spaces, UTF-8.

    `body` is inside an envelope with `kind`, `format` and `checksum`, so fields of these names cannot collide.
    """
    return _sealed(kind, _dump(body))


def decode(kind: str, key: str, raw: bytes) -> dict[str, Any]:
    """Verifies an object and returns its body.

    Args:
        kind: the expected kind.
        key: key of the object, for the message.
        raw: its bytes.

    Raises:
        CorruptObjectError: it is truncated, altered, of another kind or in an unknown format.
    """
    try:
        whole = json.loads(raw)
    except (ValueError, UnicodeDecodeError) as error:
        raise _corrupt(key, f"it is not JSON ({error})") from error
    if not isinstance(whole, dict):
        raise _corrupt(key, "it is not a JSON object")
    found, body = whole.get("kind"), whole.get("body")
    if found == kind and isinstance(body, dict) and raw == _sealed(kind, _dump(body)):
        return body
    recorded = whole.pop("checksum", None)
    if whole.get("format") != FORMAT and recorded == checksum(whole):
        raise _corrupt(key, f"its format is {whole.get('format')!r}, this release reads {FORMAT}")
    if recorded != checksum(whole) or raw != _dump({**whole, "checksum": recorded}) + b"\n":
        raise _corrupt(key, "its checksum does not match its content")
    if found != kind:
        raise _corrupt(key, f"it is a {found}, not a {kind}")
    if not isinstance(body, dict):
        raise _corrupt(key, "it has no body")
    return body


def kind_of(key: str, raw: bytes) -> str:
    """Returns the kind that an object claims, unverified.

    Raises:
        CorruptObjectError: it is not a JSON object, or has no kind.
    """
    # The kind is the last name, so it is at the end of every complete object: no need to parse megabytes for it.
    at_end = _KIND.search(raw, max(0, len(raw) - 64))
    if at_end:
        return at_end[1].decode()
    try:
        return str(json.loads(raw)["kind"])
    except (ValueError, TypeError, KeyError) as error:
        raise _corrupt(key, "it names no kind") from error


def sha256_of(raw: bytes) -> str:
    """sha256 of bytes, as lower-case hex."""
    from hashlib import sha256  # loads OpenSSL, which a pipeline file does not need

    return sha256(raw).hexdigest()


def checksum(value: Any) -> str:
    """sha256 over the canonical JSON of a value, as lower-case hex."""
    return sha256_of(_dump(value))


def _sealed(kind: str, body: bytes) -> bytes:
    """Wraps the canonical bytes of a body in the envelope; the body, by far the longest part, is dumped only once."""
    before, behind = b'{"body":' + body, b'"format":%d,"kind":%b}' % (FORMAT, _dump(kind))
    return b'%b,"checksum":"%b",%b\n' % (before, sha256_of(before + b"," + behind).encode(), behind)


def _dump(value: Any) -> bytes:
    return _JSON.encode(value).encode()


def _corrupt(key: str, why: str) -> CorruptObjectError:
    back = "put the object back from a backup of the warehouse"
    passed = "; without one, tidemark verify names the checkpoint, and tidemark checkpoint give-up skips it."
    return CorruptObjectError(
        f"object damaged: {key}: {why}",
        safe="nothing was written; objects are never edited, so a copy of this one from a backup is valid.",
        next=back + (passed if key.startswith("timelines/") else ", or restore an older restore point."),
    )


def code_text(function: object) -> str:
    """Returns the text of a function: its name, constants and byte code, and what its own module adds to it.

    Functions of the same module that it calls count with their own text, and plain values with theirs, so correcting a
    limit in a constant or a helper changes the code. Classes, and everything in other modules, count by name only.
    """
    return _text(function, set())


def _text(function: object, seen: set[CodeType]) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    if not isinstance(function, FunctionType):
        return name
    seen.add(function.__code__)
    used = [
        f"{of}={text}" for of, value in _used(function) if (text := _text_of_used(function, value, seen)) is not None
    ]
    return " ".join([name, _code(function.__code__), *([f"[{', '.join(used)}]"] if used else [])])


def _used(function: FunctionType) -> Iterator[tuple[str, object]]:
    """Returns the names that a function, or one nested in it, may look up when it is called, with their values."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # the cell is still empty
            yield name, cell.cell_contents
    yield "defaults", function.__defaults__ or ()
    yield "keyword defaults", function.__kwdefaults__ or {}
    there = function.__globals__
    yield from ((name, there[name]) for name in sorted(_names(code)) if name in there)


def _names(code: CodeType) -> set[str]:
    inner = (_names(c) for c in code.co_consts if isinstance(c, CodeType))
    return set(code.co_names).union(*inner)


def _text_of_used(function: FunctionType, value: object, seen: set[CodeType]) -> str | None:
    """Returns the text of a value that a function uses; None if it is empty or counts by its name only."""
    if isinstance(value, FunctionType):
        known = value.__module__ != function.__module__ or value.__code__ in seen
        return None if known else _text(value, seen)
    return _plain(value) if _is_plain(value) and value not in ((), {}) else None


def _is_plain(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(_is_plain(k) and _is_plain(v) for k, v in value.items())
    if isinstance(value, tuple | list | set | frozenset):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, _PLAIN)


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_plain(k)}: {_plain(v)}' for k, v in value.items())}}}"
    if isinstance(value, set | frozenset):
        # The order of a set of texts differs between processes.
        return f"set({sorted(map(_plain, value))})"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_plain, value))})"
    return repr(value)


def _code(code: CodeType) -> str:
    return f"{code.co_code.hex()} {[_constant(c) for c in code.co_consts]} {code.co_names}"


def _constant(value: object) -> str:
    if isinstance(value, frozenset):
        return f"frozenset({sorted(map(repr, value))})"
    return _code(value) if isinstance(value, CodeType) else repr(value)
