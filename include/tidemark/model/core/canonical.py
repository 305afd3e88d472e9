"""Canonical JSON: one byte string per value, so that checksums and read-backs are comparable."""

import json
import re
from typing import Any

from tidemark.errors import CorruptObjectError

FORMAT = 1
"""Format version of every object in the warehouse."""
_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
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
