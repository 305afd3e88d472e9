"""Values and what must become of them: None where the record is good, else the reason (issue 3, fault 19)."""

import json

Case = tuple[str, bytes | None, str | None]
GOOD = b'{"device":"x","at":"2020-01-01T00:00:00Z","count":1}'


def good(**fields: object) -> bytes:
    """A good record with some fields replaced."""
    return json.dumps({"device": "x", "at": "2020-01-01T00:00:00Z", "count": 1, **fields}).encode()


def raw(field: str, text: str) -> bytes:
    """A good record with one field given as JSON text."""
    kept = {"device": '"x"', "at": '"2020-01-01T00:00:00Z"', "count": "1", field: text}
    return ("{" + ",".join(f'"{name}":{value}' for name, value in kept.items()) + "}").encode()


ENVELOPE: list[Case] = [
    ("plain", GOOD, None),
    ("white space around", b" " + GOOD + b" \n", None),
    ("null value", None, "null_value"),
    ("no bytes", b"", "malformed_json"),
    ("white space only", b"  ", "malformed_json"),
    ("cut off", GOOD[:-1], "malformed_json"),
    ("text behind", GOOD + b" x", "malformed_json"),
    ("a second object behind", GOOD + b"," + GOOD, "malformed_json"),
    ("a bracket behind", GOOD + b"] x", "malformed_json"),
    ("what a wrapper might look like", GOOD + b',"a"] }', "malformed_json"),
    ("single quotes", GOOD.replace(b'"', b"'"), "malformed_json"),
    ("no quotes", GOOD.replace(b'"device"', b"device"), "malformed_json"),
    ("a comment", GOOD[:-1] + b"/*c*/}", "malformed_json"),
    ("a name twice", GOOD[:-1] + b',"count":2}', "malformed_json"),
    ("a name twice, deeper", GOOD[:-1] + b',"z":{"a":1,"a":2}}', "malformed_json"),
    ("a byte order mark", b"\xef\xbb\xbf" + GOOD, "malformed_json"),
    ("a zero byte", b"\x00", "malformed_json"),
    (
        "nested deeper than any parser goes",
        good()[:-1] + b',"z":' + b"[" * 20000 + b"]" * 20000 + b"}",
        "malformed_json",
    ),
    ("nested 400 deep", good()[:-1] + b',"z":' + b"[" * 400 + b"]" * 400 + b"}", None),
    ("an array", b"[" + GOOD + b"]", "not_an_object"),
    ("a number", b"1", "not_an_object"),
    ("a string", b'"x"', "not_an_object"),
    ("JSON null", b"null", "not_an_object"),
    ("invalid UTF-8 in a string", GOOD.replace(b"x", b"\xff"), "invalid_utf8"),
    ("invalid UTF-8 in another field", GOOD[:-1] + b',"z":"\xc3\x28"}', "invalid_utf8"),
    ("invalid UTF-8 in a name", GOOD[:-1] + b',"\xff":2}', "invalid_utf8"),
    ("UTF-16", GOOD.decode().encode("utf-16"), "invalid_utf8"),
    ("half a surrogate pair", raw("device", r'"\ud800"'), "invalid_utf8"),
    ("a pair the wrong way round", raw("device", r'"\udc00\ud800"'), "invalid_utf8"),
    ("half a pair in another field", GOOD[:-1] + rb',"z":"\uD83D"}', "invalid_utf8"),
    ("a whole pair", raw("device", r'"\ud83d\ude00"'), None),
    ("an escaped backslash before u", raw("device", r'"\\ud800"'), None),
    ("an escaped zero", raw("device", r'"a\u0000b"'), None),
    ("fields nobody declared", good(extra=[1, {"x": None}]), None),
    ("nothing", b"{}", "missing_field: device"),
    ("5 MB", good(device="x" * 5_000_000), None),
]

FIELDS: list[Case] = [
    ("a number for a string", good(device=1), "wrong_type: device"),
    ("a boolean for a string", good(device=True), "wrong_type: device"),
    ("an object for a string", good(device={"a": 1}), "wrong_type: device"),
    ("an array for a string", good(device=[]), "wrong_type: device"),
    ("null for a string", good(device=None), "null_field: device"),
    ("an empty string", good(device=""), None),
    ("a string for an int", good(count="1"), "wrong_type: count"),
    ("a float for an int", good(count=1.5), "wrong_type: count"),
    ("1.0 for an int", good(count=1.0), "wrong_type: count"),
    ("an exponent for an int", raw("count", "1e2"), "wrong_type: count"),
    ("a boolean for an int", good(count=True), "wrong_type: count"),
    ("null for an int", good(count=None), "null_field: count"),
    ("no int", b'{"device":"x","at":"2020-01-01T00:00:00Z"}', "missing_field: count"),
    ("greatest int", good(count=2**63 - 1), None),
    ("least int", good(count=-(2**63)), None),
    ("beyond the greatest", good(count=2**63), "out_of_range: count"),
    ("below the least", good(count=-(2**63) - 1), "out_of_range: count"),
    ("null where it may be", good(group=None), None),
    ("an int for a float", good(degrees=1), None),
    ("a great int for a float", good(degrees=2**70), None),
    ("a string for a float", good(degrees="1.5"), "wrong_type: degrees"),
    ("a boolean for a float", good(degrees=True), "wrong_type: degrees"),
    ("beyond doubles", raw("degrees", "1e400"), "out_of_range: degrees"),
    ("NaN", raw("degrees", "NaN"), "malformed_json"),
    ("Infinity", raw("degrees", "Infinity"), "malformed_json"),
    ("below doubles", raw("degrees", "1e-400"), None),
    ("an int for a boolean", good(ok=1), "wrong_type: ok"),
    ("a string for a boolean", good(ok="true"), "wrong_type: ok"),
    ("a decimal number", good(amount=123.45), None),
    ("a decimal string", good(amount="-123.45"), None),
    ("zeros behind the scale", good(amount="1.2300"), None),
    ("too many digits", good(amount="12345678901.00"), "out_of_range: amount"),
    ("as many digits as there may be", good(amount="9999999999.99"), None),
    ("too fine", good(amount=1.234), "out_of_range: amount"),
    ("an exponent for a decimal", raw("amount", "1e2"), "out_of_range: amount"),
    ("words for a decimal", good(amount="x"), "bad_format: amount"),
    ("an exponent in a decimal string", good(amount="1e2"), "bad_format: amount"),
    ("a plus sign", good(amount="+1"), "bad_format: amount"),
    ("a boolean for a decimal", good(amount=True), "wrong_type: amount"),
    ("a date", good(day="2020-02-29"), None),
    ("no leap year", good(day="2021-02-29"), "out_of_range: day"),
    ("a short date", good(day="2020-2-3"), "bad_format: day"),
    ("a number for a date", good(day=20200203), "wrong_type: day"),
    ("the year 0", good(day="0000-01-01"), "out_of_range: day"),
    ("a time for a date", good(day="2020-01-01T00:00:00"), "bad_format: day"),
    ("base64", good(raw="aGk="), None),
    ("no bytes in base64", good(raw=""), None),
    ("base64 without padding", good(raw="aGk"), "bad_format: raw"),
    ("a number for bytes", good(raw=1), "wrong_type: raw"),
    ("an empty list", good(tags=[]), None),
    ("a list", good(tags=["a", "b"]), None),
    ("a number in a list of strings", good(tags=["a", 1]), "wrong_type: tags[]"),
    ("null in a list of strings", good(tags=["a", None]), "null_field: tags[]"),
    ("a string for a list", good(tags="a"), "wrong_type: tags"),
    ("an object for a list", good(tags={"a": 1}), "wrong_type: tags"),
    ("a list in a list of strings", good(tags=[["a"]]), "wrong_type: tags[]"),
    ("null where a list may have it", good(numbers=[1, None, 3]), None),
    ("a float in a list of ints", good(numbers=[1.5]), "wrong_type: numbers[]"),
    ("a struct", good(place={"city": "Ulm", "floor": None}), None),
    ("a struct with a stranger", good(place={"city": "Ulm", "z": 2}), None),
    ("an empty struct", good(place={}), "missing_field: place.city"),
    ("a wrong field in a struct", good(place={"city": 1}), "wrong_type: place.city"),
    ("null in a struct", good(place={"city": None}), "null_field: place.city"),
    ("an array for a struct", good(place=[]), "wrong_type: place"),
    ("a string for a struct", good(place="x"), "wrong_type: place"),
    ("a list of structs", good(places=[{"city": "Ulm"}, {"city": "Bonn", "floor": 2}]), None),
    ("a wrong field in a list of structs", good(places=[{"city": "Ulm"}, {"city": 2}]), "wrong_type: places[].city"),
    ("a hole in a list of structs", good(places=[{"floor": 1}]), "missing_field: places[].city"),
    ("a number in a list of structs", good(places=[1]), "wrong_type: places[]"),
    ("null in a list of structs", good(places=[None]), "null_field: places[]"),
]

TIMES: list[Case] = [
    (f"time {text!r}", good(at=text), reason and f"{reason}: at")
    for text, reason in [
        ("2020-01-01T00:00:00", None),
        ("2020-01-01T00:00:00Z", None),
        ("2020-01-01 00:00", None),
        ("2020-01-01T00:00Z", None),
        ("2020-01-01T00:00-05", None),
        ("2020-01-01T00:00:00.123456789+05:30", None),
        ("2020-01-01T00:00:00.1-0530", None),
        ("2020-01-01T00:00:00+05", None),
        ("0001-01-01T00:00:00Z", None),
        ("2020-01-01", "bad_format"),
        ("now", "bad_format"),
        ("epoch", "bad_format"),
        ("", "bad_format"),
        (" 2020-01-01T00:00:00", "bad_format"),
        ("2020-01-01T00:00:00\n", "bad_format"),
        ("2020-01-01T00:00:00 UTC", "bad_format"),
        ("2020-01-01T00:00:00 Europe/Berlin", "bad_format"),
        ("12020-01-01T00:00:00", "bad_format"),
        ("2020-01-01T00:00:00+05:30:15", "bad_format"),
        ("1577836800", "bad_format"),
        ("2020-01-01T25:00:00", "out_of_range"),
        ("2020-01-01T24:00:00", "out_of_range"),
        ("2020-01-01T23:60:00", "out_of_range"),
        ("2020-01-01T23:59:60", "out_of_range"),
        ("2020-13-01T00:00:00", "out_of_range"),
        ("2021-02-29T00:00:00", "out_of_range"),
        ("0000-01-01T00:00:00", "out_of_range"),
        ("0001-01-01T00:00:00+01:00", "out_of_range"),
        ("9999-12-31T23:59:59-01:00", "out_of_range"),
    ]
]
TIMES += [
    ("a number for a time", good(at=0), "wrong_type: at"),
    ("a time in the future", good(at="2023-11-16T00:00:00Z"), "in_the_future"),
    ("a time that is not yet late", good(at="2023-11-15T20:00:00Z"), None),
]

CASES = [*ENVELOPE, *FIELDS, *TIMES]
