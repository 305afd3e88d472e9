"""Values that are JSON objects, decoded strictly: a value that does not fit is a dead letter, never an error.

The Spark expressions are in `json_sql`; this module does the same in Python, reason for reason. Numbers stay text until
their declared type is known, because `1.0` is not an integer and `0.1` is not a double.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tidemark.formats.json_typed import TypedReader
from tidemark.formats.record_format import (
    FAULT,
    GOOD,
    BadRecord,
    PerRecordType,
    RecordFormat,
    decode_text,
    reason_prefixes,
)
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.core.types import FieldType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PAIRS = re.compile(r"(\\\\)|(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})")
_HALF = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_ZONE = "(Z|[+-][0-9]{2}(:?[0-9]{2})?)?"
_OFFSET = re.compile("[+-](?P<hours>[0-9]{2})(:?(?P<minutes>[0-9]{2}))?")
_FARTHEST = timedelta(hours=18)
"""Spark's range of offsets from UTC."""
_FORMATS = {
    "timestamp": re.compile(
        rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[T ][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}([.][0-9]{{1,9}})?)?{_ZONE}"
    ),
    "date": re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    "bytes": re.compile("([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"),
    "decimal": re.compile("-?[0-9]+([.][0-9]+)?"),
    "uuid": re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    "time": re.compile("[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,9})?)?"),
}
_DAY = re.compile("([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9].*)?")
"""The times of a day: there is no 24:00 and no leap second."""
_WHOLE = {"int": re.compile("-?(0|[1-9][0-9]*)"), "bool": re.compile("true|false")}
_NUMBER = re.compile("-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]+)?")
_MOST_DIGITS = 38


class _Number(str):
    """The text of a JSON number."""

    __slots__ = ()


@dataclass(frozen=True)
class Json(RecordFormat):
    """One JSON object per value, with the declared fields; undeclared fields are ignored. The default format.

    >>> from dataclasses import dataclass
    >>> from tidemark import KafkaSource
    >>> @dataclass
    ... class Payment:
    ...     account: str
    ...     amount: int
    >>> source = KafkaSource("payments", Payment)
    >>> source.format.decode_one(b'{"account": "a", "amount": 5, "note": "x"}', source.schema)
    {'account': 'a', 'amount': 5}
    """

    name = "json"
    workers_from = 65_537
    reasons = reason_prefixes(
        Reason.NULL_VALUE,
        Reason.INVALID_UTF8,
        Reason.MALFORMED_JSON,
        Reason.NOT_AN_OBJECT,
        Reason.MISSING_FIELD,
        Reason.NULL_FIELD,
        Reason.WRONG_TYPE,
        Reason.BAD_FORMAT,
        Reason.OUT_OF_RANGE,
        Reason.UNKNOWN_MEMBER,
    )

    def decode(self, raw: "DataFrame", record: FieldType) -> "DataFrame":
        """See `RecordFormat`."""
        from tidemark.formats.json_sql import Decoder, parsed_sql

        decoder = Decoder(record)
        return (
            raw.selectExpr("*", f"{parsed_sql()} AS _parsed")
            .selectExpr("*", *decoder.variants)
            .selectExpr("*", *decoder.json_types)
            .selectExpr("*", *decoder.values)
            .selectExpr("*", f"{decoder.reason} AS {FAULT}", f"{decoder.record} AS {GOOD}")
        )

    def decode_one(self, value: bytes | None, record: FieldType) -> dict[str, Any]:
        """See `RecordFormat`."""
        found = None if value is None else self._readers.of(record).read(value)
        return self._decode_strictly(value, record) if found is None else found

    @cached_property
    def _readers(self) -> PerRecordType[TypedReader]:
        return PerRecordType(_typed_reader)

    @staticmethod
    def _decode_strictly(value: bytes | None, record: FieldType) -> dict[str, Any]:
        text = decode_text(value)
        if _HALF.search(_PAIRS.sub("", text)):
            raise BadRecord(Reason.INVALID_UTF8.value)
        parsed = _parsed(text)
        if not isinstance(parsed, dict):
            raise BadRecord(Reason.NOT_AN_OBJECT.value)
        return _fields(parsed, record, "")

    def encode(self, record: object) -> bytes:
        """See `RecordFormat`."""
        return json.dumps(plain_value(record), ensure_ascii=False).encode("utf-8", "surrogatepass")

    def freeze(self) -> Mapping[str, str]:
        """Nothing: a plan without a pinned format is a plan for JSON, like all plans of release 0.1."""
        return {}


def _typed_reader(record: FieldType) -> TypedReader:
    return TypedReader(record, _parsed, _value, default_of)


def decode_key(key: bytes | None, columns: Sequence[tuple[str, FieldType]]) -> tuple[Any, ...]:
    """Returns the key in the message key of a delete, one value per key column.

    For one column the message key is its text: as it is for a string, in its JSON or ISO-8601 form for other types. For
    several columns it is a JSON array in their order, or an object by their names.

    Raises:
        BadRecord: the message key names no key.
    """
    try:
        text = (key or b"").decode()
        if key is None or _HALF.search(_PAIRS.sub("", text)) and len(columns) > 1:
            raise BadRecord(Reason.BAD_KEY.value)
        found = _named(text, columns)
        return tuple(_value(v, of, name) for v, (name, of) in zip(found, columns, strict=True))
    except (ValueError, KeyError) as error:
        raise BadRecord(Reason.BAD_KEY.value) from error


def decode_row_key(key: bytes | None, columns: Sequence[tuple[str, FieldType]]) -> tuple[Any, ...]:
    """Returns the key in the message key of a change, one value per key column.

    Args:
        key: what `RecordFormat.row_key` returned.
        columns: the key columns; the object must have exactly these members.

    Raises:
        BadRecord: the message key names no key.
    """
    try:
        text = decode_text(key)
        found = _parsed(text)
        if isinstance(found, dict) and set(found) == {"schema", "payload"}:
            found = found["payload"]
        if (
            _HALF.search(_PAIRS.sub("", text))
            or not isinstance(found, dict)
            or set(found) != {name for name, _ in columns}
        ):
            raise BadRecord(Reason.BAD_KEY.value)
        return tuple(_value(found[name], of, name) for name, of in columns)
    except BadRecord as error:
        raise BadRecord(Reason.BAD_KEY.value) from error


def _named(text: str, columns: Sequence[tuple[str, FieldType]]) -> list[Any]:
    if len(columns) > 1:
        parsed = _parsed(text)
        if isinstance(parsed, dict):
            return [parsed[name] for name, _ in columns]
        return parsed if isinstance(parsed, list) else []
    whole = _WHOLE.get(columns[0][1].kind)
    if whole is not None and not whole.fullmatch(text):
        raise BadRecord(Reason.BAD_KEY.value)
    return [text if whole is None else _parsed(text)]


def _parsed(text: str) -> object:
    try:
        found: object = json.loads(
            text, parse_int=_Number, parse_float=_Number, parse_constant=_no_constant, object_pairs_hook=_object
        )
    except (ValueError, RecursionError) as error:
        raise BadRecord(Reason.MALFORMED_JSON.value) from error
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object with a duplicate name")
    return found


def _fields(found: dict[str, Any], of: FieldType, prefix: str) -> dict[str, Any]:
    return {name: _field(found, name, t, f"{prefix}{name}") for name, t in of.fields}


def _field(found: dict[str, Any], name: str, of: FieldType, path: str) -> Any:
    if name not in found and of.default is not None:
        return default_of(of)
    if name not in found and not of.nullable:
        raise BadRecord(Reason.MISSING_FIELD.at(path))
    return _value(found.get(name), of, path)


def _value(value: Any, of: FieldType, path: str) -> Any:
    if value is None:
        if of.nullable:
            return None
        raise BadRecord(Reason.NULL_FIELD.at(path))
    if of.kind == "struct":
        return _fields(_of_type(value, dict, path), of, f"{path}.")
    if of.key is not None and of.element is not None:
        convert = partial(_value, of=of.element, path=f"{path}{{}}")
        return entries_of(_of_type(value, dict, path), of.key, convert, f"{path}{{}}")
    if of.element is not None:
        return [_value(v, of.element, f"{path}[]") for v in _of_type(value, list, path)]
    return _member(_scalar(value, of, path), of, path)


def entries_of(found: Mapping[str, Any], key: FieldType, convert: Callable[[Any], Any], path: str) -> dict[Any, Any]:
    """Returns a map in the order of its keys. Of several reasons the least counts, because members have no order.

    Args:
        found: values of any format by name.
        key: type of the names.
        convert: makes a value, or raises `BadRecord`.
        path: names the entries in the reason.

    Raises:
        BadRecord: a name is no key, or `convert` raised it.
    """
    made, reasons = dict[Any, Any](), list[str]()
    for name in sorted(found):
        try:
            known = _value(name, key, path)  # before its value, as in Spark
            made[known] = convert(found[name])
        except BadRecord as error:
            reasons.append(str(error))
    if reasons:
        raise BadRecord(min(reasons))
    return made


def _scalar(value: Any, of: FieldType, path: str) -> Any:
    if of.kind == "bool":
        return _of_type(value, bool, path)
    if of.kind in ("int", "float"):
        return _number(value, of, path)
    if of.kind == "str" and not of.form:
        return _text(value, path)
    return _formatted(value, of, path)


def _member(value: Any, of: FieldType, path: str) -> Any:
    if of.members and value not in of.members:
        raise BadRecord(Reason.UNKNOWN_MEMBER.at(path))
    return value


def default_of(of: FieldType) -> Any:
    """Returns the value of a missing field: its default, or null."""
    return None if of.default is None else _value(_parsed(of.default), of, "")


def check_scalar(value: Any, of: FieldType, path: str) -> Any:
    """Returns a text or an integer of another format as a UUID, a time, or a member of an Enum.

    Raises:
        BadRecord: it is none.
    """
    return _formatted(value, of, path) if of.form else _member(value, of, path)


def parse_scalar(text: str, of: FieldType, path: str) -> Any:
    """Returns the text, number, date, time or bytes in a text of another format than JSON, written as in JSON.

    Args:
        text: without quotes.
        of: a type that is neither `bool` nor composed.
        path: names the field in the reason.

    Raises:
        BadRecord: it is none, or it does not fit the type.
    """
    if of.kind not in ("int", "float"):
        return _member(_scalar(text, of, path), of, path)
    if not _NUMBER.fullmatch(text):
        raise BadRecord(Reason.WRONG_TYPE.at(path))
    return _member(_number(_Number(text), of, path), of, path)


def _of_type(value: Any, kind: type, path: str) -> Any:
    if not isinstance(value, kind):
        raise BadRecord(Reason.WRONG_TYPE.at(path))
    return value


def _text(value: Any, path: str) -> str:
    if type(value) is not str:
        raise BadRecord(Reason.WRONG_TYPE.at(path))
    return value


def _number(value: Any, of: FieldType, path: str) -> int | float:
    number = _of_type(value, _Number, path)
    if of.kind == "float":
        found = float(number) + 0.0  # no -0, which a whole number does not have either
        if found in (float("inf"), float("-inf")):
            raise BadRecord(Reason.OUT_OF_RANGE.at(path))
        return found
    if _is_inexact(number):
        raise BadRecord(Reason.WRONG_TYPE.at(path))
    whole = int(Decimal(number))
    if not -(2**63) <= whole < 2**63:
        raise BadRecord(Reason.OUT_OF_RANGE.at(path))
    if "." in number:
        raise BadRecord(Reason.WRONG_TYPE.at(path))
    return whole


def _is_inexact(number: str) -> bool:
    return "e" in number.lower() or sum(c.isdecimal() for c in number) > _MOST_DIGITS


def _formatted(value: Any, of: FieldType, path: str) -> Any:
    if isinstance(value, _Number) and of.kind == "decimal":
        if _is_inexact(value):
            raise BadRecord(Reason.OUT_OF_RANGE.at(path))
    else:
        _text(value, path)
    if not _FORMATS[of.form or of.kind].fullmatch(value):
        raise BadRecord(Reason.BAD_FORMAT.at(path))
    try:
        return _parse_scalar(str(value), of)
    except (ValueError, OverflowError, ArithmeticError) as error:
        raise BadRecord(Reason.OUT_OF_RANGE.at(path)) from error


def _parse_scalar(text: str, of: FieldType) -> Any:
    if of.form:
        return text.lower() if of.form == "uuid" else _time(text)
    if of.kind == "date":
        return date.fromisoformat(text)
    if of.kind == "timestamp":
        _refuse_offset(text[16:])
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    if of.kind == "bytes":
        from base64 import b64decode

        return b64decode(text, validate=True)
    whole, _, fraction = text.partition(".")
    if len(fraction.rstrip("0")) > of.scale or len(whole.lstrip("-").lstrip("0")) > of.digits - of.scale:
        raise ValueError("more digits than declared")
    number = Decimal(f"{whole}.{fraction[: of.scale].ljust(of.scale, '0')}")
    return number or number.copy_abs()  # engines know no -0


def _time(text: str) -> str:
    """Returns the text of a time as Python writes it: seconds always, microseconds unless they are 0."""
    if not _DAY.fullmatch(text):
        raise ValueError("not a time of a day")
    micros = text[9:15].ljust(6, "0")
    return (text[:8] if text[5:] else f"{text}:00") + (f".{micros}" if micros.strip("0") else "")


def _refuse_offset(text: str) -> None:
    """Refuses offsets that Python accepts: of 99 minutes, or of a day."""
    found = _OFFSET.search(text)
    if found is None:
        return
    hours, minutes = int(found["hours"]), int(found["minutes"] or 0)
    if minutes > 59 or timedelta(hours=hours, minutes=minutes) > _FARTHEST:  # noqa: PLR2004  (of an hour)
        raise ValueError("not a UTC offset on earth")


def plain_value(value: object) -> object:
    """Converts a value to JSON, in the forms that the decoder accepts."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain_value(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k.value if isinstance(k, Enum) else k): plain_value(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(v) for v in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        from base64 import b64encode

        return b64encode(value).decode()
    if isinstance(value, UUID):
        return str(value)
    return format(value, "f") if isinstance(value, Decimal) else value
