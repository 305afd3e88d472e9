"""Decodes JSON objects with msgspec, several times as fast as `json` does; it leaves everything doubtful to `json`.

msgspec is as strict as `json` about syntax and types, except for one thing: of two members of one name the last one
counts. So an object is only accepted if its text has no more names than were decoded.
"""

import re
import types
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Annotated, Any, NotRequired, Required, TypedDict

from tidemark.formats.record_format import BadRecord
from tidemark.model.core.types import FieldType

Convert = Callable[[Any, FieldType, str], Any]
"""Converts a parsed value to a type, at a path; raises BadRecord."""

_PLAIN: Mapping[str, Any] = {"bool": bool, "int": int, "float": float, "str": str}
_typed_dict: Any = TypedDict
_TEXTS = ("str", "timestamp", "date", "bytes")
_ESCAPED_COLON = b"\\u003"
_BACKSLASH, _QUOTE = b'\\"'
_UNKNOWN = -1
_INSTANT = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?(Z|[+]00:00)")
"""The forms of a time that most producers write, in UTC; Python reads them as `json` does."""


class TypedReader:
    """Decodes the objects of one record type.

    Args:
        record: the record type.
        parse: parses the text of a value that msgspec leaves as text; raises BadRecord.
        convert: converts a parsed value.
        default: returns the value of a missing field.
    """

    def __init__(
        self,
        record: FieldType,
        parse: Callable[[str], object],
        convert: Convert,
        default: Callable[[FieldType], Any],
    ) -> None:
        import msgspec

        self._doubts = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
        self._raw: Any = msgspec.Raw
        self._types: Mapping[str, Any] = {**_PLAIN, "int": Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]}
        self._parse, self._convert, self._default = parse, convert, default
        self._read = msgspec.json.Decoder(self._hint(record)).decode
        self._finish = self._finished(record, "")
        self._quotes = self._quotes_of(record)
        self._any, self._encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode

    def read(self, value: bytes) -> dict[str, Any] | None:
        """Returns the fields of an object, or None in doubt: then `json` finds the reason, or the fields."""
        try:
            found: dict[str, Any] = self._read(value)
            is_plain = _BACKSLASH not in value
            if is_plain and value.count(_QUOTE) == self._quotes(found) or self._has_each_name_once(value, is_plain):
                return self._finish(found)
            return None
        except self._doubts:
            return None

    @staticmethod
    def _quotes_of(record: FieldType) -> Callable[[dict[str, Any]], int]:
        """Returns the function that counts the quotation marks of an object that has each field once and no others.

        Names have two each, and texts. A value without a backslash has no others, so one more member, or one inside of
        a field, would add some.
        """
        names, texts = len(record.fields), sum(_is_text(of) for _, of in record.fields)
        optional = [name for name, of in record.fields if _is_text(of) and of.nullable]

        def quotes(found: dict[str, Any]) -> int:
            if len(found) != names:
                return _UNKNOWN
            return 2 * (names + texts - sum(found[name] is None for name in optional))

        return quotes

    def _has_each_name_once(self, value: bytes, is_plain: bool) -> bool:
        """Whether no object in a valid JSON text has a name twice; False in doubt."""
        if not is_plain and _ESCAPED_COLON in value:
            return False
        # Text that msgspec writes has a colon for each name, and those inside of texts.
        return bool(self._encode(self._any(value)).count(b":") == value.count(b":"))

    def _hint(self, of: FieldType) -> Any:  # noqa: ANN401
        """Returns the type by which msgspec decodes a type, so that it accepts nothing that `json` refuses."""
        if of.kind == "struct":
            fields = {name: self._member(inner) for name, inner in of.fields}
            return _typed_dict("Record", fields)
        if of.kind in _PLAIN and not of.form:
            return self._types[of.kind]
        if of.element is not None and _is_final(of.element) and of.key is None:
            return types.GenericAlias(list, (self._types[of.element.kind],))
        return str if _is_text(of) else self._raw

    def _member(self, of: FieldType) -> Any:  # noqa: ANN401
        hint = self._hint(of)
        if hint is self._raw:
            return NotRequired[hint]  # msgspec 0.22 refuses all texts of a member that is required
        return (NotRequired if _is_optional(of) else Required)[hint | None if of.nullable else hint]

    def _finished(self, of: FieldType, prefix: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
        """Returns the function that converts what msgspec has not, and adds the fields that are missing."""
        steps = [(name, self._step(inner, f"{prefix}{name}")) for name, inner in of.fields]
        needed = [(name, step) for name, step in steps if step is not None]
        optional = [(name, inner) for name, inner in of.fields if _is_optional(inner)]
        demanded = [name for name, inner in of.fields if not _is_optional(inner) and not _is_decoded(inner)]
        default = self._default

        def finish(found: dict[str, Any]) -> dict[str, Any]:
            for name in demanded:
                if name not in found:
                    raise BadRecord
            for name, step in needed:
                if name in found:
                    found[name] = step(found[name])
            for name, inner in optional:
                if name not in found:
                    found[name] = default(inner)
            return found

        return finish

    def _step(self, of: FieldType, path: str) -> Callable[[Any], Any] | None:
        if of.kind == "struct":
            inner = self._finished(of, f"{path}.")
            return lambda found: None if found is None else inner(found)
        if _is_text(of) and (of.kind != "str" or of.form or of.members):
            convert = self._convert
            if of.kind == "timestamp":
                return _instants(lambda found: convert(found, of, path))
            return lambda found: convert(found, of, path)
        if of.members:
            return partial(_check_member, of.members)
        if of.kind == "float":
            return _without_sign_of_zero
        if _is_decoded(of):
            return None
        return lambda raw: self._convert(self._parse(bytes(raw).decode()), of, path)


def _instants(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns the function that reads a time in UTC, and lets `convert` read any other, or say why it is refused."""
    is_usual, read = _INSTANT.fullmatch, datetime.fromisoformat

    def instant(found: str | None) -> Any:  # noqa: ANN401
        return read(found) if found is not None and is_usual(found) else convert(found)

    return instant


def _is_optional(of: FieldType) -> bool:
    return of.nullable or of.default is not None


def _is_text(of: FieldType) -> bool:
    return of.kind in _TEXTS


def _is_decoded(of: FieldType) -> bool:
    """Whether msgspec decodes a type, rather than to leave its text."""
    is_list = of.key is None and of.element is not None and _is_final(of.element)
    return of.kind == "struct" or of.kind in _PLAIN or _is_text(of) or is_list


def _is_final(of: FieldType) -> bool:
    """Whether what msgspec decodes as a type is its value already."""
    return of.kind in ("bool", "int", "str") and not of.form and not of.members and not of.nullable


def _check_member(members: tuple[Any, ...], found: Any) -> Any:  # noqa: ANN401
    if found is not None and found not in members:
        raise BadRecord
    return found


def _without_sign_of_zero(found: float | None) -> float | None:
    return None if found is None else found + 0.0
