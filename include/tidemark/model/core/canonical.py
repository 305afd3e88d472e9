"""Canonical JSON: one byte string per value, so that checksums and read-backs compare (E14)."""

import hashlib
import json
import re
from typing import Any

from tidemark.errors import CorruptObjectError

FORMAT = 1
"""Format version of every object below the warehouse."""
_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_KIND = re.compile(rb',"format":\d+,"kind":"(\w+)"}\n\Z')


def encode(kind: str, body: dict[str, Any]) -> bytes:
    """The canonical bytes of an object: sorted keys, no spaces, UTF-8.

    `body` lies in an envelope with `kind`, `format` and `checksum`, so that fields of these names cannot collide.
    """
    return _sealed(kind, _dump(body))


def decode(kind: str, key: str, raw: bytes) -> dict[str, Any]:
    """The body of an object, verified.

    Args:
        kind: what it must be.
        key: where it was found, for the message.
        raw: its bytes.

    Raises:
        CorruptObjectError: truncated, altered, of another kind or of an unknown format.
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
    """The kind that an object says it is, unverified.

    Raises:
        CorruptObjectError: no JSON object, or one without a kind.
    """
    # As the last of the names it stands at the end of every object that is whole: no need to parse megabytes for it.
    at_end = _KIND.search(raw, max(0, len(raw) - 64))
    if at_end:
        return at_end[1].decode()
    try:
        return str(json.loads(raw)["kind"])
    except (ValueError, TypeError, KeyError) as error:
        raise _corrupt(key, "it names no kind") from error


def sha256_of(raw: bytes) -> str:
    """sha256 of bytes, as lower-case hex."""
    return hashlib.sha256(raw).hexdigest()


def checksum(value: Any) -> str:
    """sha256 over the canonical JSON of a value, as lower-case hex."""
    return hashlib.sha256(_dump(value)).hexdigest()


def _sealed(kind: str, body: bytes) -> bytes:
    """The envelope around the canonical bytes of a body, which is by far its longest part and dumped only once."""
    before, behind = b'{"body":' + body, b'"format":%d,"kind":%b}' % (FORMAT, _dump(kind))
    return b'%b,"checksum":"%b",%b\n' % (before, sha256_of(before + b"," + behind).encode(), behind)


def _dump(value: Any) -> bytes:
    return _JSON.encode(value).encode()


def _corrupt(key: str, why: str) -> CorruptObjectError:
    back = "put the object back from a backup of the warehouse"
    passed = "; without one, tidemark verify names the checkpoint, and tidemark checkpoint give-up passes over it."
    return CorruptObjectError(
        f"object damaged: {key}: {why}",
        safe="nothing was written; objects are never edited, so a copy of this one from a backup is valid.",
        next=back + (passed if key.startswith("timelines/") else ", or restore an older restore point."),
    )
