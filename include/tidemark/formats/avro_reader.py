"""Reads Avro's binary encoding as the fields of a record: a reader per type, put together once per schema and record.

A reader is a function of the bytes and a position; it returns the value and the position behind it. Values that no
field takes are passed over without making objects. Bytes are never trusted: a length may not reach beyond the end, a
recursion has a depth, and items that take no bytes are not counted one by one.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from threading import local
from typing import Any

from tidemark.formats.avro_binary import (
    Malformed,
    Read,
    enum_reader,
    fixed_reader,
    read_boolean,
    read_bytes,
    read_double,
    read_float,
    read_long,
    read_null,
    read_text,
)
from tidemark.formats.avro_schema import AvroType
from tidemark.formats.json import check_names, check_scalar, default_of
from tidemark.formats.record_format import BadRecord
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.core.types import FieldType

DEEPEST = 64
"""How often a type may contain itself; beyond it a value is malformed."""

_EPOCH, _DAY0 = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1).toordinal()
_LONGEST_NUMBER = 64
"""Bytes of the longest number that is shown as one."""
_PER_SECOND = {"millis": 1000, "micros": 1_000_000, "nanos": 1_000_000_000}


class Mismatch(ValueError):  # noqa: N818
    """No value of a type can be read as a field; the text is the field's path."""


@lru_cache(maxsize=256)
def record_reader(of: AvroType, record: FieldType) -> Read:
    """Returns the reader of a record's fields from values of a schema.

    Fields are found by name. Types promote as in Avro's schema resolution: int and long to float, string to bytes and
    back; besides, int and long to decimal, enum to text. A field that the schema lacks is null.

    Raises:
        Mismatch: the schema cannot be read as the record.
    """
    if of.kind != "record":
        raise Mismatch("not a record")
    return _Readers().record(of, record, "")


@lru_cache(maxsize=256)
def skipper(of: AvroType) -> Read:
    """Returns the reader that passes over values; it finds out whether the bytes are one."""
    return _Plain(makes=False).read(of)


def single_fields(record: FieldType) -> Iterator[FieldType]:
    """Yields a record's fields as records of their own, in the order of their declaration, nested ones one by one."""
    for name, of in record.fields:
        for part in single_fields(of) if of.kind == "struct" else [of]:
            yield replace(record, fields=((name, part),))


@lru_cache(maxsize=256)
def plain_reader(of: AvroType) -> Read:
    """Returns the reader of values as they are, for people: dicts, lists, numbers, texts, dates, bytes."""
    return _Plain().read(of)


def _then(read: Read, convert: Callable[[Any], Any]) -> Read:
    def both(raw: bytes, at: int) -> tuple[Any, int]:
        found, at = read(raw, at)
        return convert(found), at

    return both


def _union(branches: Sequence[Read]) -> Read:
    many = min(2 * len(branches), 128)

    def read(raw: bytes, at: int) -> tuple[Any, int]:
        byte = raw[at]
        if byte < many and not byte & 1:  # most are one byte
            return branches[byte >> 1](raw, at + 1)
        n, at = read_long(raw, at)
        if not 0 <= n < len(branches):
            raise Malformed("no such branch")
        return branches[n](raw, at)

    return read


def _blocks(raw: bytes, at: int, *, takes_bytes: bool) -> tuple[int, int]:
    """Reads the count of the next block of an array or a map."""
    count, at = read_long(raw, at)
    if count < 0:
        _, at = read_long(raw, at)  # the block's bytes, for those who skip it
        count = -count
    if takes_bytes and count > len(raw) - at:
        raise Malformed("more items than bytes")
    return count, at


def _array(item: Read) -> Read:
    def read(raw: bytes, at: int) -> tuple[list[Any], int]:
        found = list[Any]()
        while True:
            count, at = _blocks(raw, at, takes_bytes=True)
            if not count:
                return found, at
            for _ in range(count):
                value, at = item(raw, at)
                found.append(value)

    return read


def _map(value: Read) -> Read:
    def read(raw: bytes, at: int) -> tuple[dict[str, Any], int]:
        found = dict[str, Any]()
        while True:
            count, at = _blocks(raw, at, takes_bytes=True)
            if not count:
                return found, at
            for _ in range(count):
                key, at = read_text(raw, at)
                found[key], at = value(raw, at)

    return read


def _fields(readers: Sequence[tuple[str, Read]], absent: Sequence[tuple[str, FieldType]]) -> Read:
    def read(raw: bytes, at: int) -> tuple[dict[str, Any], int]:
        found = dict[str, Any]()
        for name, field in readers:
            value, at = field(raw, at)
            if name:
                found[name] = value
        for name, of in absent:
            found[name] = default_of(of)
        return found, at

    return read


class _Deferred:
    """The reader of a type inside itself, which counts how deep it is."""

    def __init__(self) -> None:
        self._read: Read | None = None
        self._depth = local()

    def be(self, read: Read) -> Read:
        self._read = read
        return read

    def __call__(self, raw: bytes, at: int) -> tuple[Any, int]:
        depth = getattr(self._depth, "now", 0)
        if self._read is None or depth >= DEEPEST:
            raise Malformed("too deep")
        self._depth.now = depth + 1
        try:
            return self._read(raw, at)
        finally:
            self._depth.now = depth


class _Plain:
    """Makes readers of everything as it is; `makes=False` passes over it."""

    def __init__(self, *, makes: bool = True) -> None:
        self.makes = makes
        self._records: dict[AvroType, _Deferred] = {}

    def read(self, of: AvroType) -> Read:
        if of.kind == "record":
            return self._record(of)
        if of.kind == "union":
            return _union([self.read(branch) for branch in of.branches])
        if of.items is not None:
            if of.kind == "array" and of.items.takes_no_bytes():
                return _skip_empty
            return (_array if of.kind == "array" else _map)(self.read(of.items))
        read = raw_reader(of)
        if not self.makes:
            return read
        convert = _logical_value(of)
        return read if convert is None else _then(read, convert)

    def _record(self, of: AvroType) -> Read:
        if of in self._records:
            return self._records[of]
        deferred = self._records[of] = _Deferred()
        names = [name if self.makes else "" for name, _ in of.fields]
        return deferred.be(_fields(list(zip(names, (self.read(inner) for _, inner in of.fields), strict=True)), ()))


def _skip_empty(raw: bytes, at: int) -> tuple[list[Any], int]:
    """Passes over an array whose items take no bytes."""
    while True:
        count, at = _blocks(raw, at, takes_bytes=False)
        if not count:
            return [], at


def raw_reader(of: AvroType) -> Read:
    """Returns the reader of a type that is not composed, without its logical type."""
    if of.kind == "fixed":
        return fixed_reader(of.size)
    return enum_reader(of.symbols) if of.kind == "enum" else _RAW[of.kind]


_RAW: dict[str, Read] = {
    "null": read_null,
    "boolean": read_boolean,
    "int": read_long,
    "long": read_long,
    "float": read_float,
    "double": read_double,
    "bytes": read_bytes,
    "string": read_text,
}


def _logical_value(of: AvroType) -> Callable[[Any], Any] | None:
    """A value for people; one that no calendar has stays a number."""
    if of.logical == "decimal" and of.kind in ("bytes", "fixed"):
        return lambda raw: _decimal(raw, of.scale)
    if of.logical == "date" and of.kind == "int":
        return lambda n: _day(n) or n
    unit = _unit(of)
    if unit and of.kind == "long":
        return lambda n: _moment(n, unit) or n
    return None


class _Readers:
    """Makes readers of fields; composed types call back."""

    def __init__(self) -> None:
        self._skips = _Plain(makes=False)

    def record(self, of: AvroType, to: FieldType, prefix: str) -> Read:
        """Of a struct; a struct of Tidemark is finite, so this ends for recursive schemas too."""
        there = dict(of.fields)
        readers = dict[str, Read]()
        for name, wanted in to.fields:
            if name in there:
                readers[name] = self.value(there[name], wanted, prefix + name)
            elif not wanted.nullable and wanted.default is None:
                raise Mismatch(prefix + name)
        absent = [(name, wanted) for name, wanted in to.fields if name not in there]
        in_order = [
            (name, readers[name]) if name in readers else ("", self._skips.read(inner)) for name, inner in of.fields
        ]
        return _fields(in_order, absent)

    def value(self, of: AvroType, to: FieldType, path: str) -> Read:
        if of.kind == "union":
            return self._of_union(of, to, path)
        if of.kind == "null":
            return _refuse_null(path) if not to.nullable else read_null
        if to.kind == "struct" and of.kind == "record":
            return self.record(of, to, f"{path}.")
        if to.element is not None and of.items is not None and (of.kind == "map") == (to.kind == "map"):
            if of.items.takes_no_bytes():
                raise Mismatch(f"{path}[]")
            read = self.value(of.items, to.element, f"{path}[]")
            return _array(read) if to.key is None else _then(_map(read), partial(check_names, key=to.key, path=path))
        convert = _CONVERSIONS.get(to.kind)
        found = None if convert is None else convert(of, to, path)
        if found is None:
            raise Mismatch(path)
        return _then(found, partial(check_scalar, of=to, path=path)) if to.form or to.members else found

    def _of_union(self, of: AvroType, to: FieldType, path: str) -> Read:
        branches, fits = list[Read](), False
        for branch in of.branches:
            try:
                branches.append(self.value(branch, to, path))
                fits = fits or branch.kind != "null" or to.nullable
            except Mismatch:
                branches.append(_refuse(Reason.WRONG_TYPE, path))
        if not fits:
            raise Mismatch(path)
        return _union(branches)


def _refuse(reason: Reason, path: str) -> Read:
    def read(raw: bytes, at: int) -> tuple[Any, int]:  # noqa: ARG001
        raise BadRecord(reason.at(path))

    return read


def _refuse_null(path: str) -> Read:
    return _refuse(Reason.NULL_FIELD, path)


# Conversions: the reader of an Avro type that is not composed as a field; None = no value of it fits.
def _to_bool(of: AvroType, to: FieldType, path: str) -> Read | None:  # noqa: ARG001
    return read_boolean if of.kind == "boolean" else None


def _to_int(of: AvroType, to: FieldType, path: str) -> Read | None:  # noqa: ARG001
    return read_long if of.kind in ("int", "long") else None


def _to_float(of: AvroType, to: FieldType, path: str) -> Read | None:  # noqa: ARG001
    if of.kind in ("int", "long"):
        return _then(read_long, float)
    if of.kind not in ("float", "double"):
        return None

    def finite(found: float) -> float:
        if not math.isfinite(found):
            raise BadRecord(Reason.OUT_OF_RANGE.at(path))
        return found

    return _then(raw_reader(of), finite)


def _to_decimal(of: AvroType, to: FieldType, path: str) -> Read | None:
    most = 10**to.digits

    def fit(unscaled: int, scale: int) -> Decimal:
        if scale > to.scale:
            unscaled, rest = divmod(unscaled, 10 ** (scale - to.scale))
            if rest:
                raise BadRecord(Reason.OUT_OF_RANGE.at(path))
        else:
            unscaled *= 10 ** (to.scale - scale)
        if not -most < unscaled < most:
            raise BadRecord(Reason.OUT_OF_RANGE.at(path))
        return _scaled(unscaled, to.scale)

    if of.kind in ("int", "long"):
        return _then(read_long, lambda n: fit(n, 0))
    if of.logical != "decimal" or of.kind not in ("bytes", "fixed"):
        return None
    return _then(raw_reader(of), lambda raw: fit(int.from_bytes(raw, signed=True), of.scale))


def _to_text(of: AvroType, to: FieldType, path: str) -> Read | None:  # noqa: ARG001
    if of.kind == "bytes":
        return read_text if of.logical != "decimal" else None
    return raw_reader(of) if of.kind in ("string", "enum") else None


def _to_bytes(of: AvroType, to: FieldType, path: str) -> Read | None:  # noqa: ARG001
    if of.kind == "string":
        return _then(read_text, str.encode)
    return raw_reader(of) if of.kind in ("bytes", "fixed") else None


def _to_date(of: AvroType, to: FieldType, path: str) -> Read | None:  # noqa: ARG001
    if of.kind != "int" or of.logical != "date":
        return None
    return _then(read_long, lambda n: _in_range(_day(n), path))


def _to_timestamp(of: AvroType, to: FieldType, path: str) -> Read | None:  # noqa: ARG001
    unit = _unit(of)
    if of.kind != "long" or unit is None:
        return None
    return _then(read_long, lambda n: _in_range(_moment(n, unit), path))


_CONVERSIONS: dict[str, Callable[[AvroType, FieldType, str], Read | None]] = {
    "bool": _to_bool,
    "int": _to_int,
    "float": _to_float,
    "decimal": _to_decimal,
    "str": _to_text,
    "bytes": _to_bytes,
    "date": _to_date,
    "timestamp": _to_timestamp,
}


def _in_range(found: Any, path: str) -> Any:  # noqa: ANN401
    if found is None:
        raise BadRecord(Reason.OUT_OF_RANGE.at(path))
    return found


def _unit(of: AvroType) -> int | None:
    """Units per second of a timestamp. A local one has no zone; it counts as UTC, as a text without zone does."""
    head, _, tail = of.logical.rpartition("-")
    return _PER_SECOND.get(tail) if head in ("timestamp", "local-timestamp") else None


def _moment(n: int, per_second: int) -> datetime | None:
    """The microsecond that contains a time."""
    try:
        return _EPOCH + timedelta(microseconds=n * 1_000_000 // per_second)
    except OverflowError:
        return None


def _day(n: int) -> date | None:
    try:
        return date.fromordinal(_DAY0 + n)
    except (ValueError, OverflowError):
        return None


def _decimal(raw: bytes, scale: int) -> Decimal | bytes:
    return raw if len(raw) > _LONGEST_NUMBER else _scaled(int.from_bytes(raw, signed=True), scale)


def _scaled(unscaled: int, scale: int) -> Decimal:
    # Not by `scaleb`, which rounds to the digits of the thread's context.
    return Decimal(f"{unscaled}E-{scale}")
