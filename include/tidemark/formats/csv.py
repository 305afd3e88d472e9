"""Values that are one row of CSV, as RFC 4180 has it: exports, feeds of exchanges, lines of old systems."""

import csv
import io
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tidemark.errors import DeclarationError
from tidemark.formats.json import default_of, parse_scalar, plain_value
from tidemark.formats.record_format import BadRecord, RecordFormat, decode_text, reason_prefixes
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.core.types import FieldType

_BOOL = {"true": True, "false": False}


@dataclass(frozen=True)
class Csv(RecordFormat):
    """One row per value; a field of the record gets the column of its name. Columns that no field names are ignored.

    An empty column is null where null is legal, and the empty text for a `str`; a default fills a field that is no
    column. Numbers are written as in JSON, `bool` as true or false, everything else as in `formats.Json`: ISO-8601 and
    base64. Quoted columns may contain delimiters,
    line ends and doubled quotes. A value with two rows is refused, and so is one with more or fewer columns, or with a
    column of more than 131,072 characters.

    Attributes:
        columns: the names of all columns in their order, separated by commas.
        delimiter: one character, between columns.

    >>> from dataclasses import dataclass
    >>> from tidemark import KafkaSource, formats
    >>> @dataclass
    ... class Trade:
    ...     symbol: str
    ...     price: float
    ...     venue: str | None
    >>> source = KafkaSource("trades", Trade, format=formats.Csv("symbol,size,price,venue"))
    >>> source.format.decode_one(b'"A;B",100,12.5,', source.schema)
    {'symbol': 'A;B', 'price': 12.5, 'venue': None}
    """

    columns: str
    delimiter: str = ","

    name = "csv"
    reasons = reason_prefixes(
        Reason.NULL_VALUE,
        Reason.INVALID_UTF8,
        Reason.MALFORMED_CSV,
        Reason.NULL_FIELD,
        Reason.WRONG_TYPE,
        Reason.BAD_FORMAT,
        Reason.OUT_OF_RANGE,
        Reason.UNKNOWN_MEMBER,
    )

    def __post_init__(self) -> None:
        names = self._names
        if not all(names) or len(set(names)) != len(names):
            raise DeclarationError(
                f"Csv({self.columns!r}): a column has no name, or two have the same one",
                next='name all columns in their order, as in Csv("symbol,price").',
            )
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise DeclarationError(
                f"Csv: {self.delimiter!r} cannot separate columns", next="give one character that is no quote."
            )

    @cached_property
    def _names(self) -> list[str]:
        return [name.strip() for name in self.columns.split(",")]

    def bind(self, record: type) -> FieldType:
        """See `RecordFormat`.

        Raises:
            DeclarationError: a field is no column, or has a type that a text cannot be.
        """
        found = super().bind(record)
        for name, of in found.fields:
            if name not in self._names and of.default is None:
                raise DeclarationError(
                    f"{record.__name__}.{name} is no column of Csv({self.columns!r})",
                    next="name the field as one of its columns, or give it a default.",
                )
            if name in self._names and not of.is_scalar:
                raise DeclarationError(
                    f"{record.__name__}.{name}: a column of CSV is a single value",
                    next="declare one value of any type, or omit the field.",
                )
        return found

    def decode_one(self, value: bytes | None, record: FieldType) -> dict[str, Any]:
        """See `RecordFormat`."""
        found = dict(zip(self._names, self._row(decode_text(value)), strict=True))
        return {name: _value(found[name], of, name) if name in found else default_of(of) for name, of in record.fields}

    def encode(self, record: object) -> bytes:
        """See `RecordFormat`."""
        fields = plain_value(record)
        assert isinstance(fields, dict)  # noqa: S101  (a record is a dataclass or a mapping)
        made = io.StringIO()
        writer = csv.writer(made, delimiter=self.delimiter, lineterminator="\r\n")
        writer.writerow([_text(fields.get(name)) for name in self._names])
        return made.getvalue().encode("utf-8", "surrogatepass")

    def _row(self, text: str) -> list[str]:
        try:
            rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter, strict=True))
        except csv.Error as error:
            raise BadRecord(Reason.MALFORMED_CSV.value) from error
        row = rows[0] if rows else []
        if len(self._names) == 1 and not row:  # an empty line is one empty column
            row = [""]
        if len(rows) > 1 or len(row) != len(self._names):
            raise BadRecord(Reason.MALFORMED_CSV.value)
        return row


def _value(text: str, of: FieldType, path: str) -> Any:  # noqa: ANN401
    if text == "" and (of.nullable or of.kind != "str" or of.form):
        if of.nullable:
            return None
        raise BadRecord(Reason.NULL_FIELD.at(path))
    if of.kind == "bool":
        if text not in _BOOL:
            raise BadRecord(Reason.WRONG_TYPE.at(path))
        return _BOOL[text]
    return parse_scalar(text, of, path)


def _text(value: object) -> str:
    """A plain value as a column."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
