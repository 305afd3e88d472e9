"""Removes secrets from texts, above all the token in the address of a Spark server.

This is the only such function. Every Tidemark error passes through it when it is created, every log line when it is
written, and every text about an address.
"""

import re
from collections.abc import MutableMapping
from typing import Any

HIDDEN = "***"
_NAMES = r"token|passw(?:or)?d|secret|authorization|credential|api[-_]?key|access[-_]?key"
_PARAMETER = re.compile(rf"(?i)((?:{_NAMES})[\w.-]*\s*=\s*)(?!\*\*\*)[^;&,\s'\")\]}}]+")
"""A parameter of an address, as in `sc://host:443/;token=abc;use_ssl=true` and `https://host?access_key=abc`."""
_BEARER = re.compile(r"(?i)(bearer\s+)(?!\*\*\*)[\w.~+/=-]{4,}")
_LOGIN = re.compile(r"(?i)(\b[a-z][a-z0-9+.-]*://[^\s/:@]+:)(?!\*\*\*)[^\s/@]+(?=@)")
"""The password in `postgresql://user:password@host`."""


def redact(text: str) -> str:
    """Returns the text with `***` in place of every token, password and key in its addresses."""
    for pattern in (_PARAMETER, _BEARER, _LOGIN):
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return text


def redacted_event(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Redacts every value of a log line, however deeply nested; a structlog processor."""
    return {name: _within(value) for name, value in event.items()}


def _within(value: object) -> object:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {name: _within(held) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_within(held) for held in value) if type(value) in (list, tuple) else value
    return redact(str(value)) if isinstance(value, BaseException) else value


def secrets_of(address: str) -> list[str]:
    """Returns the values that `redact` hides in an address, for loggers that mask a given list of values."""
    found = [m.group(0)[len(m.group(1)) :] for p in (_PARAMETER, _BEARER, _LOGIN) for m in p.finditer(address)]
    return [secret for secret in found if secret]
