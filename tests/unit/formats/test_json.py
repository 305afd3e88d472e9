"""`Json()` against a decoder written straight down; `tests/engine/decoding_cases.py` has the corners by name."""

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.support.format_cases import Answer, FormatCase
from tidemark import formats


@dataclass(frozen=True)
class Place:
    """Inside a reading."""

    city: str


@dataclass(frozen=True)
class Reading:
    """Fields in the order in which an oracle looks at them."""

    device: str
    count: int
    place: Place | None = None
    ok: bool | None = None
    tags: list[str] | None = None


def oracle(value: bytes) -> Answer:
    try:
        text = value.decode()
        found = json.loads(text, object_pairs_hook=_once, parse_constant=_never, parse_float=lambda number: (number,))
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeError:
        return "invalid_utf8"
    except ValueError:
        return "malformed_json"
    if not isinstance(found, dict):
        return "not_an_object"
    reasons = [_text(found, "device", ""), _whole(found), _place(found), _is_bool(found), _tags(found)]
    return next((reason for reason in reasons if reason), None) or {
        "device": found["device"],
        "count": found["count"],
        "place": found.get("place") and {"city": found["place"]["city"]},
        "ok": found.get("ok"),
        "tags": found.get("tags"),
    }


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name twice")
    return dict(pairs)


def _never(name: str) -> None:
    raise ValueError(name)


def _needed(found: dict[str, Any], name: str, prefix: str) -> str | None:
    if name not in found:
        return f"missing_field: {prefix}{name}"
    return f"null_field: {prefix}{name}" if found[name] is None else None


def _text(found: dict[str, Any], name: str, prefix: str) -> str | None:
    wrong = None if isinstance(found.get(name), str) else f"wrong_type: {prefix}{name}"
    return _needed(found, name, prefix) or wrong


def _whole(found: dict[str, Any]) -> str | None:
    count = found.get("count")
    if reason := _needed(found, "count", ""):
        return reason
    if isinstance(count, tuple) and "e" not in count[0].lower() and not -(2**63) <= float(count[0]) < 2**63:
        return "out_of_range: count"
    if type(count) is not int or len(str(abs(count))) > 38:
        return "wrong_type: count"
    return None if -(2**63) <= count < 2**63 else "out_of_range: count"


def _place(found: dict[str, Any]) -> str | None:
    place = found.get("place")
    if place is None:
        return None
    return _text(place, "city", "place.") if isinstance(place, dict) else "wrong_type: place"


def _is_bool(found: dict[str, Any]) -> str | None:
    return None if found.get("ok") is None or isinstance(found["ok"], bool) else "wrong_type: ok"


def _tags(found: dict[str, Any]) -> str | None:
    tags = found.get("tags")
    if tags is None:
        return None
    if not isinstance(tags, list):
        return "wrong_type: tags"
    bad = next((tag for tag in tags if not isinstance(tag, str)), "")
    return None if isinstance(bad, str) else ("null_field: tags[]" if bad is None else "wrong_type: tags[]")


def _fields(device: str, count: int, city: str | None, ok: bool | None, tags: list[str] | None) -> dict[str, Any]:
    place = None if city is None else {"city": city}
    return {"device": device, "count": count, "place": place, "ok": ok, "tags": tags}


CASE = FormatCase(
    format=formats.Json(),
    record=Reading,
    fields=st.builds(
        _fields,
        st.text(),
        st.integers(-(2**63), 2**63 - 1),
        st.none() | st.text(),
        st.none() | st.booleans(),
        st.none() | st.lists(st.text(), max_size=3),
    ),
    oracle=oracle,
    bytes=(
        b'{"device": "x", "count": 1, "place": {"city": "Ulm"}, "ok": true, "tags": ["a", "b"]}',
        b'{"device": "\\u00e9\\\\", "count": -12.5, "tags": []}',
        b'{"count": 9223372036854775807, "device": null, "other": [1, {"a": 2}]}',
        "{\"device\": \"zwölf\", \"count\": 0, \"place\": {}, \"ok\": \"true\"}".encode(),
        b"[]",
    ),
)  # fmt: skip
