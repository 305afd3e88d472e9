"""Expressions over one record: the condition of `where=` and the columns of `key_by=`.

They are the portable subset of aggregates and more (`docs/how-to/filter-and-reshape.md` has the table). A record must
never make a query fail, so whole numbers that leave 64 bits are null here, where an aggregate refuses the batch.
"""

import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from tidemark.errors import DeclarationError
from tidemark.model.core.types import KEY_KINDS, FieldType
from tidemark.model.portable_sql.dialects import DUCKDB, SPARK, Dialect
from tidemark.model.portable_sql.expressions import (
    AGGREGATE_TYPING,
    BOOL,
    INT,
    STR,
    Typed,
    Typing,
    cast,
    in_words,
    type_arithmetic,
    type_call,
    type_cast,
    type_comparison,
    type_expression,
    type_literal,
)
from tidemark.model.portable_sql.syntax import TIME_PARTS, Node, NotPortable, names_in, parse

DATE, TIMESTAMP = FieldType("date", nullable=True), FieldType("timestamp", nullable=True)
DATE_UNITS = ("year", "quarter", "month", "week", "day")
"""Units of `date_trunc` for dates and times; a week begins on Monday."""
TIME_UNITS = ("hour", "minute", "second")
"""Further units of `date_trunc` for times."""
_TIME_ONLY = ("hour", "minute", "second")
_DIGITS = 38


@dataclass(frozen=True, slots=True)
class RecordExpression:
    """An expression, bound to the type of a record.

    Attributes:
        text: as its author wrote it.
        inputs: paths of the record fields in it, and their types, in order.
    """

    text: str
    inputs: tuple[tuple[str, FieldType], ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the record fields in it."""
        return tuple(path for path, _ in self.inputs)

    @property
    def type(self) -> FieldType:
        """The type of its value, nullable."""
        found = self._typed(str, DUCKDB).type
        assert found is not None  # noqa: S101  (for the type checker: `bound` refuses NULL)
        return found

    def sql(self, column: Callable[[str], str], dialect: Dialect) -> str:
        """Returns it in full.

        Args:
            column: returns the SQL of a record field.
            dialect: of the engine that evaluates it.
        """
        return self._typed(column, dialect).sql

    def _typed(self, column: Callable[[str], str], dialect: Dialect) -> Typed:
        return type_expression(parse(self.text), dict(self.inputs), column, _typing(dialect))

    def to_json(self, of: Callable[[FieldType], Any]) -> dict[str, Any]:
        """Returns the form for manifests; `of` returns that of a type."""
        return {"text": self.text, "inputs": [[path, of(t)] for path, t in self.inputs]}

    @classmethod
    def from_json(cls, body: Mapping[str, Any], of: Callable[[Any], FieldType]) -> "RecordExpression":
        """The inverse of `to_json`."""
        return cls(body["text"], tuple((path, of(t)) for path, t in body["inputs"]))


def bind_where(uid: str, text: str, record: FieldType) -> RecordExpression:
    """Returns the condition of an operator over its records.

    Raises:
        DeclarationError: it is not in the subset, names an unknown field, or is no condition.
    """
    at = f"{uid}: where={text!r}"
    made = bind_expression(at, text, record)
    if made.type != BOOL:
        raise DeclarationError(
            f"{at} is {made.type.sql}, not a condition", next="write a condition, as in 'amount > 0'."
        )
    return made


def bind_expression(at: str, text: str, record: FieldType) -> RecordExpression:
    """Returns an expression over a record.

    Raises:
        DeclarationError: it is not in the subset, or names an unknown field.
    """
    if not isinstance(text, str):
        raise DeclarationError(f"{at}: not a text", next="write an expression, as in 'lower(shop)'.")
    try:
        names = sorted(names_in(parse(text)))
        inputs = []
        for name in names:
            found = record.at(name)
            if found is None:
                known = ", ".join(field for field, _ in record.fields)
                raise DeclarationError(f"{at}: the record has no field {name!r}", next=f"name one of: {known}.")
            inputs.append((name, found.with_null(True)))
        made = RecordExpression(text, tuple(inputs))
        if made._typed(str, DUCKDB).type is None:
            raise NotPortable("it is always null")
        made._typed(str, SPARK)
    except NotPortable as error:
        raise DeclarationError(
            f"{at}: {error}",
            next="write it in the portable subset (docs/how-to/filter-and-reshape.md), or use a Process.",
        ) from error
    return made


def bind_key_type(at: str, made: RecordExpression) -> FieldType:
    """Returns the type of a key column that an expression makes.

    Raises:
        DeclarationError: its type cannot be a key.
    """
    found = made.type
    if found.kind not in KEY_KINDS:
        remedy = "a float is not equal to itself in every engine" if found.kind == "float" else "no such key"
        raise DeclarationError(
            f"{at}: a {found.kind} cannot be a key ({remedy})", next=f"make one of: {', '.join(KEY_KINDS)}."
        )
    return found.with_null(False)


@cache
def _typing(dialect: Dialect) -> dict[str, Typing]:
    return AGGREGATE_TYPING | {
        "literal": partial(_literal, dialect),
        **{op: partial(_whole_numbers, dialect) for op in ("+", "-", "*")},
        **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "BETWEEN", "IN"), _comparison),
        "%": _remainder,
        "LIKE": _like,
        "abs": partial(_absolute, dialect),
        "lower": partial(_letters, string.ascii_uppercase, string.ascii_lowercase),
        "upper": partial(_letters, string.ascii_lowercase, string.ascii_uppercase),
        "length": _length,
        "substr": _substr,
        "date_trunc": partial(_date_trunc, dialect),
        **dict.fromkeys(TIME_PARTS, partial(_time_part, dialect)),
        "CAST": _cast_to,
    }


def _literal(dialect: Dialect, node: Node, args: list[Typed]) -> Typed:
    if not node.text.startswith("TIMESTAMP"):
        return type_literal(node, args)
    function = "timestamp_micros" if dialect is SPARK else "make_timestamptz"
    return Typed(f"{function}({node.text.removeprefix('TIMESTAMP ')})", TIMESTAMP)


def _whole_numbers(dialect: Dialect, node: Node, args: list[Typed]) -> Typed:
    """Adds, subtracts and multiplies; null if whole numbers leave 64 bits."""
    found = type_arithmetic(node, args)
    if found.type != INT:
        return found
    parts = [cast(a, INT) for a in args]
    parts = parts if len(parts) == 2 else ["CAST(0 AS BIGINT)", *parts]
    if dialect is SPARK:
        function = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}[node.op]
        return Typed(f"{function}({parts[0]}, {parts[1]})", INT)
    wide = f" {node.op} ".join(f"CAST({part} AS HUGEINT)" for part in parts)
    return Typed(f"TRY_CAST({wide} AS BIGINT)", INT)


def _absolute(dialect: Dialect, node: Node, args: list[Typed]) -> Typed:
    if len(args) != 1 or args[0].type != INT:
        return type_call(node, args)
    if dialect is DUCKDB:
        return Typed(f"TRY_CAST(abs(CAST({args[0].sql} AS HUGEINT)) AS BIGINT)", INT)
    negated = _whole_numbers(dialect, Node("-"), args).sql
    return Typed(f"CASE WHEN {args[0].sql} < 0 THEN {negated} ELSE {args[0].sql} END", INT)


def _remainder(node: Node, args: list[Typed]) -> Typed:
    divisor = node.args[1]
    if args[0].type != INT or args[1].type != INT or divisor.op != "literal" or int(divisor.text) < 1:
        raise NotPortable("% of anything but a whole number and a positive whole literal")
    return Typed(f"({args[0].sql} % {args[1].sql})", INT)


def _comparison(node: Node, args: list[Typed]) -> Typed:
    """Compares; decimals also with literals that have decimal places."""
    kinds = {a.type.kind for a in args if a.type}
    if "decimal" not in kinds or not kinds & {"float", "int"}:
        return type_comparison(node, args)
    decimals = [a.type for a in args if a.type and a.type.kind == "decimal"]
    literals = [_negated(n) for n, a in zip(node.args, args, strict=True) if a.type and a.type.kind in ("int", "float")]
    texts = [text for text in literals if text is not None]
    if kinds - {"decimal", "float", "int"} or len(texts) < len(literals) or any("e" in t.lower() for t in texts):
        raise NotPortable(f"{node.op} of {in_words(kinds)}: write CAST(x AS DOUBLE)")
    whole = max([*(t.digits - t.scale for t in decimals), *(len(t.lstrip("-").partition(".")[0]) for t in texts)])
    places = max([*(t.scale for t in decimals), *(len(t.partition(".")[2]) for t in texts)])
    if whole + places > _DIGITS:
        raise NotPortable(f"{node.op} of decimals that have more than {_DIGITS} digits together")
    wide = [
        f"CAST({a.sql if text is None else text} AS DECIMAL({_DIGITS},{places}))"
        for a, text in zip(args, (_negated(n) for n in node.args), strict=True)
    ]
    same = FieldType("decimal", nullable=True, digits=_DIGITS, scale=places)
    return type_comparison(node, [Typed(sql, same) for sql in wide])


def _negated(node: Node) -> str | None:
    """Returns the text of a literal number, also after a minus; None if it is something else."""
    if node.op == "-" and len(node.args) == 1 and (text := _negated(node.args[0])) is not None:
        return f"-{text}"
    return node.text if node.op == "literal" and node.text[0].isdecimal() else None


def _like(node: Node, args: list[Typed]) -> Typed:
    if args[0].type != STR or node.args[1].op != "literal" or args[1].type != STR:
        raise NotPortable("LIKE of anything but a text and a literal pattern")
    return Typed(f"({args[0].sql} LIKE {args[1].sql})", BOOL)


def _letters(changed: str, to: str, node: Node, args: list[Typed]) -> Typed:
    """Changes ASCII letters only: engines differ on all others, and one letter may become two."""
    _refuse_arguments(node, args, ("str",))
    return Typed(f"translate({args[0].sql}, '{changed}', '{to}')", STR)


def _length(node: Node, args: list[Typed]) -> Typed:
    _refuse_arguments(node, args, ("str",))
    return Typed(f"CAST(length({args[0].sql}) AS BIGINT)", INT)


def _substr(node: Node, args: list[Typed]) -> Typed:
    places = [int(a.text) if a.op == "literal" and a.text.isdecimal() else -1 for a in node.args[1:]]
    if not args or args[0].type != STR or len(places) not in (1, 2) or places[0] < 1 or min(places) < 0:
        raise NotPortable("substr of anything but a text, a literal start from 1, and a literal length")
    if max(places) >= 2**31:
        raise NotPortable("substr with a start or length beyond 32 bits")
    return Typed(f"substr({args[0].sql}, {', '.join(map(str, places))})", STR)


def _date_trunc(dialect: Dialect, node: Node, args: list[Typed]) -> Typed:
    of = args[-1].type
    if len(args) != 2 or node.args[0].op != "literal" or of not in (DATE, TIMESTAMP):
        raise NotPortable("date_trunc of anything but a literal unit and a date or time")
    unit = node.args[0].text.strip("'").lower()
    units = DATE_UNITS if of == DATE else (*DATE_UNITS, *TIME_UNITS)
    if unit not in units:
        raise NotPortable(f"date_trunc to {unit!r} of a {of.kind}; there are {', '.join(units)}")
    if of == TIMESTAMP:
        return Typed(f"date_trunc('{unit}', {args[1].sql})", TIMESTAMP)
    if dialect is DUCKDB:
        return Typed(f"CAST(date_trunc('{unit}', {args[1].sql}) AS DATE)", DATE)
    return Typed(args[1].sql if unit == "day" else f"trunc({args[1].sql}, '{unit}')", DATE)


def _time_part(dialect: Dialect, node: Node, args: list[Typed]) -> Typed:
    kinds = ("timestamp",) if node.op in _TIME_ONLY else ("date", "timestamp")
    _refuse_arguments(node, args, kinds)
    part = "DAYOFWEEK_ISO" if node.op == "isodow" and dialect is SPARK else node.op.upper()
    # Seconds with their fraction in one engine and without in the other, if they are extracted.
    called = f"second({args[0].sql})" if node.op == "second" else f"extract({part} FROM {args[0].sql})"
    return Typed(f"CAST({called} AS BIGINT)", INT)


def _cast_to(node: Node, args: list[Typed]) -> Typed:
    kind = args[0].type.kind if args[0].type else "null"
    if node.text == "STRING" and kind in ("bool", "date", "int", "str"):
        return Typed(f"CAST({args[0].sql} AS STRING)", STR)
    if node.text == "DATE" and kind in ("date", "timestamp"):
        return Typed(f"CAST({args[0].sql} AS DATE)", DATE)
    if node.text in ("STRING", "DATE"):
        raise NotPortable(f"CAST of {kind} to {node.text}")
    return type_cast(node, args)


def _refuse_arguments(node: Node, args: list[Typed], kinds: tuple[str, ...]) -> None:
    found = {a.type.kind if a.type else "null" for a in args}
    if len(args) != 1 or not found <= set(kinds):
        raise NotPortable(f"{node.op} of {in_words(found)}: it takes one {' or '.join(kinds)}")
