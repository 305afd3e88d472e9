"""Reads Avro's binary encoding as the fields of a record: a reader per type, put together once per schema and record.

A reader is a function of the bytes and a position; it returns the value and the position behind it. Values that no
field takes are passed over without making objects. Bytes are never trusted: a length may not reach beyond the end, a
recursion has a depth, and items that take no bytes are not counted one by one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from threading import local
from typing import Any

from tidemark.formats.binary.avro_binary import Malformed, Read, read_long, read_null, read_text
from tidemark.formats.binary.avro_scalars import logical_value, raw_reader, refuse, scalar_reader, then
from tidemark.formats.binary.avro_schema import AvroType
from tidemark.formats.json import default_of, entries_of
from tidemark.formats.record_format import BadRecord
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.core.types import FieldType

DEEPEST = 64
"""How often a type may contain itself; beyond it a value is malformed."""


class Mismatch(ValueError):  # noqa: N818
    """No value of a type can be read as a field; the text is the field's path."""


@lru_cache(maxsize=256)
def record_reader(of: AvroType, record: FieldType) -> Read:
    """Returns the reader of a record's fields from values of a schema.

    Fields are found by name. Types promote as in Avro's schema resolution: int and long to float, string to bytes and
    back; besides, int and long to decimal, enum to text. A field that the schema lacks has its default, or is null.

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


def _judged(read: Read, skip: Read) -> Read:
    """Returns a reader that gives the reason in place of a refused value: of a map's reasons the least counts."""

    def judged(raw: bytes, at: int) -> tuple[Any, int]:
        try:
            return read(raw, at)
        except BadRecord as error:
            return error, skip(raw, at)[1]

    return judged


def _raised(found: Any) -> Any:  # noqa: ANN401
    if isinstance(found, BadRecord):
        raise found
    return found


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
        convert = logical_value(of)
        return read if convert is None else then(read, convert)

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
            return refuse(Reason.NULL_FIELD, path) if not to.nullable else read_null
        if to.kind == "struct" and of.kind == "record":
            return self.record(of, to, f"{path}.")
        if to.element is not None and of.items is not None and (of.kind == "map") == (to.kind == "map"):
            return self._items(of.items, to, to.element, path)
        found = scalar_reader(of, to, path)
        if found is None:
            raise Mismatch(path)
        return found

    def _items(self, of: AvroType, to: FieldType, element: FieldType, path: str) -> Read:
        inner = f"{path}[]" if to.key is None else f"{path}{{}}"
        if of.takes_no_bytes():
            raise Mismatch(inner)
        read = self.value(of, element, inner)
        if to.key is None:
            return _array(read)
        judged = _map(_judged(read, self._skips.read(of)))
        return then(judged, partial(entries_of, key=to.key, convert=_raised, path=inner))

    def _of_union(self, of: AvroType, to: FieldType, path: str) -> Read:
        branches, fits = list[Read](), False
        for branch in of.branches:
            try:
                branches.append(self.value(branch, to, path))
                fits = fits or branch.kind != "null" or to.nullable
            except Mismatch:
                branches.append(refuse(Reason.WRONG_TYPE, path))
        if not fits:
            raise Mismatch(path)
        return _union(branches)
