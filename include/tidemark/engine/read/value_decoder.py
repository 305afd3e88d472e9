"""Decodes the values of one task in a Python worker: many JSON objects at once where that is certain, else one by one.

Arrow's JSON parser is four times as fast as one call per object. It is as strict as `json` about syntax and types,
refuses a name that an object has twice, and gives no answer at all if one object of many is refused. So an answer is
used only if it must be that of the strict decoder for each object.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from tidemark.engine.process.arrow_values import struct_array
from tidemark.formats.json import Json
from tidemark.formats.record_format import BadRecord, RecordFormat
from tidemark.model.core.types import FieldType

_TYPES = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "str": pa.string(), "timestamp": pa.string()}
_INSTANT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?Z$"
"""The forms of a time in UTC that most producers write; Arrow reads them as `json` does, except for the year 0."""
_MICROS = pa.timestamp("us", tz="UTC")
_MOST_BYTES = 64 * 2**20


def covers(record: FieldType) -> bool:
    """Whether Arrow can decode a record type: fields of plain types; one that may be null has no other default."""
    return bool(record.fields) and all(
        of.kind in _TYPES and not of.form and not of.members and not (of.nullable and of.default not in (None, "null"))
        for _, of in record.fields
    )


@dataclass(frozen=True)
class JsonColumns:
    """Decodes objects of one record type, which `covers` accepts.

    Attributes:
        record: the record type.
    """

    record: FieldType

    def read(self, values: pa.Array) -> pa.StructArray | None:
        """Returns the records of values, or None if it is not certain that `decode_one` would return the same.

        Args:
            values: bytes, none of them null, at least one.
        """
        # Between a closing brace and an opening one only an object can end. So if each value begins and ends with
        # these, no object reaches from one value into the next, and as many objects as values are one in each.
        framed = pc.and_(pc.starts_with(values, "{"), pc.ends_with(values, "}"))
        if values.nbytes > _MOST_BYTES or not pc.all(framed).as_py():
            return None
        try:
            table = self._parsed(_joined(values))
            if table.num_rows != len(values) or not _is_plain(table.columns[len(self.record.fields) :]):
                return None
            columns = [self._finished(table.column(name), of) for name, of in self.record.fields]
        except (pa.ArrowException, UnicodeDecodeError):
            return None
        return None if None in columns else pa.StructArray.from_arrays(columns, fields=self._fields)

    def _parsed(self, text: bytes) -> pa.Table:
        text.decode()  # Arrow does not check that texts are UTF-8
        options = pj.ReadOptions(use_threads=False, block_size=len(text) + 1)
        # A name that is not declared becomes a column, so that Arrow refuses it if an object has it twice.
        return pj.read_json(
            pa.BufferReader(text),
            read_options=options,
            parse_options=pj.ParseOptions(explicit_schema=self._schema, unexpected_field_behavior="infer"),
        )

    @cached_property
    def _schema(self) -> pa.Schema:
        return pa.schema([(name, _TYPES[of.kind]) for name, of in self.record.fields])

    @cached_property
    def _fields(self) -> list[pa.Field]:
        types = (_MICROS if of.kind == "timestamp" else _TYPES[of.kind] for _, of in self.record.fields)
        return [pa.field(name, of) for (name, _), of in zip(self.record.fields, types, strict=True)]

    @staticmethod
    def _finished(column: pa.ChunkedArray, of: FieldType) -> pa.Array | None:
        made = column.combine_chunks()
        if made.null_count and not of.nullable:
            return None
        if of.kind == "float":
            return pc.add(made, 0.0) if _is_finite(made) else None  # without the sign of zero
        if of.kind != "timestamp":
            return made
        usual = pc.all(pc.match_substring_regex(made, _INSTANT)).as_py()
        if usual is False or pc.any(pc.starts_with(made, "0000")).as_py():
            return None
        return made.cast(_MICROS)


def _joined(values: pa.Array) -> bytes:
    """Returns all values as one text, a line each."""
    every = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    text: bytes = pc.binary_join(every, b"\n")[0].as_py()
    return text


def _is_plain(columns: Sequence[Any]) -> bool:
    """Whether undeclared members are scalars of JSON: Arrow accepts NaN, and does not check names inside of others."""
    return all(not pa.types.is_nested(c.type) and _is_finite(c) for c in columns)


def _is_finite(column: Any) -> bool:  # noqa: ANN401
    return not pa.types.is_floating(column.type) or pc.all(pc.is_finite(column)).as_py() is not False


_FEW, _PARTS = 256, 8
"""Values that are decoded one by one if one of them needs it, and the parts of more that are tried again."""
_Decoded = tuple[pa.Array, pa.Array]
"""Why each value is refused, and its record, either of them null."""


class ValueDecoder:
    """Decodes the values of one task: many JSON objects at once, and one by one where one of them needs that.

    Args:
        format: the format.
        record: the struct of its records.
    """

    def __init__(self, format: RecordFormat, record: FieldType) -> None:
        self._decode, self._record = format.decode_one, record
        self._reader = JsonColumns(record) if type(format) is Json and covers(record) else None

    def decode(self, values: pa.Array) -> _Decoded:
        """Decodes the values of one batch, of which some may be null."""
        if self._reader is None or values.null_count == len(values):
            return self._one_by_one(values)
        parts = list(self._parts(self._reader, values.drop_null()))
        if not any(by_column for by_column, _ in parts):
            self._reader = None  # this topic's values always need the other way
        faults, found = (pa.concat_arrays(column) for column in zip(*(made for _, made in parts), strict=True))
        if not values.null_count:
            return faults, found
        is_null = values.is_null().to_numpy(zero_copy_only=False)
        places = pa.array(np.cumsum(~is_null) - 1, mask=is_null)
        (refused,), _ = self._one_by_one(pa.array([None], pa.binary()))
        return pc.if_else(pa.array(is_null), refused, faults.take(places)), found.take(places)

    def _parts(self, reader: JsonColumns, values: pa.Array) -> Iterator[tuple[bool, _Decoded]]:
        found = reader.read(values)
        if found is not None:
            yield True, (pa.nulls(len(values), pa.string()), found)
        elif len(values) <= _FEW:
            yield False, self._one_by_one(values)
        else:
            size = -(-len(values) // _PARTS)
            for start in range(0, len(values), size):
                yield from self._parts(reader, values.slice(start, size))

    def _one_by_one(self, values: pa.Array) -> _Decoded:
        faults, found, decode, record = list[str | None](), list[dict[str, Any] | None](), self._decode, self._record
        for value in values.to_pylist():
            try:
                found.append(decode(value, record))
                faults.append(None)
            except BadRecord as error:
                found.append(None)
                faults.append(str(error))
        return pa.array(faults, pa.string()), struct_array(found, record)
