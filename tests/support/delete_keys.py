"""Message keys of deletes, and the operator keys that they denote; None if a message key denotes none."""

from datetime import UTC, date, datetime

from tidemark.model.core.types import FieldType

Columns = tuple[tuple[str, FieldType], ...]
STR: Columns = (("name", FieldType("str")),)
INT: Columns = (("id", FieldType("int")),)
BOOL: Columns = (("ok", FieldType("bool")),)
DAY: Columns = (("day", FieldType("date")),)
AT: Columns = (("at", FieldType("timestamp")),)
TWO: Columns = (("id", FieldType("int")), ("name", FieldType("str")))
DAYS: Columns = (("day", FieldType("date")), ("ok", FieldType("bool")))
NOON = datetime(2020, 1, 1, 12, tzinfo=UTC)

CASES: list[tuple[Columns, bytes | None, tuple[object, ...] | None]] = [
    (STR, b"a", ("a",)),
    (STR, b"", ("",)),
    (STR, b'"a"', ('"a"',)),
    (STR, b'{"name":"a"}', ('{"name":"a"}',)),
    (STR, "\u00fc \u0000\U0001f600".encode(), ("\u00fc \u0000\U0001f600",)),
    (STR, b"a\\ud800", ("a\\ud800",)),
    (STR, b"\xff", None),
    (STR, None, None),
    (INT, b"7", (7,)),
    (INT, b"-7", (-7,)),
    (INT, b"0", (0,)),
    (INT, b"-9223372036854775808", (-(2**63),)),
    (INT, b"9223372036854775808", None),
    (INT, b"07", None),
    (INT, b"7.0", None),
    (INT, b"7e0", None),
    (INT, b" 7", None),
    (INT, b"7\n", None),
    (INT, b'"7"', None),
    (INT, b"", None),
    (INT, b"null", None),
    (BOOL, b"true", (True,)),
    (BOOL, b"false", (False,)),
    (BOOL, b"True", None),
    (BOOL, b"1", None),
    (DAY, b"2020-02-29", (date(2020, 2, 29),)),
    (DAY, b"2021-02-29", None),
    (DAY, b'"2020-02-29"', None),
    (DAY, b"0000-01-01", None),
    (AT, b"2020-01-01T12:00:00Z", (NOON,)),
    (AT, b"2020-01-01 12:00", (NOON,)),
    (AT, b"2020-01-01T14:00:00+02:00", (NOON,)),
    (AT, b"1577880000000", None),
    (TWO, b'[1,"a"]', (1, "a")),
    (TWO, b' { "name" : "a", "id": 1, "more": [] } ', (1, "a")),
    (TWO, b'{"id":1}', None),
    (TWO, b'{"id":1,"name":null}', None),
    (TWO, b'{"id":"1","name":"a"}', None),
    (TWO, b'["a",1]', None),
    (TWO, b'[1,"a",2]', None),
    (TWO, b"[1]", None),
    (TWO, b'[1,"a"] x', None),
    (TWO, b'[1,"\\ud800"]', None),
    (TWO, b'{"id":1,"id":2,"name":"a"}', None),
    (TWO, b"1", None),
    (TWO, b"1,a", None),
    (TWO, b"", None),
    (TWO, None, None),
    (TWO, b'[1.0,"a"]', None),
    (DAYS, b'["2020-02-29",true]', (date(2020, 2, 29), True)),
    (DAYS, b'{"ok":false,"day":"2020-02-29"}', (date(2020, 2, 29), False)),
    (DAYS, b'["2020-02-30",true]', None),
    (DAYS, b'["2020-02-29",1]', None),
]
