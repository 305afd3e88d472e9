"""The portable subset of SQL: expressions with the same meaning in Spark and DuckDB.

A text is parsed (`model.portable_sql.syntax`), typed, and written again with every cast and every parenthesis.
Constructs that the two engines treat differently are refused with an explanation (`docs/how-to/aggregates.md` has the
table).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidemark.model.core.types import FieldType
from tidemark.model.portable_sql.syntax import CASTS, FUNCTIONS, Node, NotPortable

BOOL, INT, FLOAT, STR = (FieldType(kind, nullable=True) for kind in ("bool", "int", "float", "str"))


@dataclass(frozen=True, slots=True)
class Typed:
    """A part with its SQL text and its type; null has none."""

    sql: str
    type: FieldType | None


Names = Callable[[str], str]
"""The SQL of a name."""


Typing = Callable[[Node, list[Typed]], Typed]
"""Types an operator or a function whose arguments are typed."""


def type_expression(
    node: Node, types: Mapping[str, FieldType], sql: Names, typing: Mapping[str, Typing] | None = None
) -> Typed:
    """Returns an expression in full, and its type.

    Args:
        node: the expression.
        types: types of the names that it may use.
        sql: returns the SQL of a name.
        typing: the operators and functions that may be used; by default those of aggregates.

    Raises:
        NotPortable: a name is unknown, types do not match, or engines differ on it.
    """
    if node.op == "name":
        if node.text not in types:
            raise NotPortable(f"no {node.text!r} here; there are {', '.join(sorted(types))}")
        return Typed(sql(node.text), types[node.text].stored.with_null(True))
    known = AGGREGATE_TYPING if typing is None else typing
    if node.op == "literal":
        return known["literal"](node, [])
    args = [type_expression(arg, types, sql, typing) for arg in node.args]
    _refuse_unguarded(node)
    if node.op not in known:
        raise NotPortable(f"{node.op!r} is not in the subset of aggregates, only of where= and key_by=")
    return known[node.op](node, args)


def is_guarded(node: Node) -> bool:
    """Whether a divisor cannot be zero: another literal, or `nullif(…, 0)`."""
    if node.op == "literal":
        return _is_number(node.text) and float(node.text) != 0
    return node.op == "nullif" and node.args[1].op == "literal" and _is_zero(node.args[1].text)


def _refuse_unguarded(node: Node) -> None:
    if node.op == "/" and not is_guarded(node.args[1]):
        raise NotPortable("division by a possible zero (Spark fails, DuckDB gives null): write x / nullif(y, 0)")
    if node.op == "sqrt":
        least = node.args[0]
        bounded = least.op == "greatest" and any(a.op == "literal" and _is_zero(a.text) for a in least.args)
        if not (bounded or least.op == "abs"):
            raise NotPortable(
                "sqrt of a possibly negative value (NaN in Spark, an error in DuckDB): sqrt(greatest(x, 0))"
            )


def type_literal(node: Node, _: list[Typed]) -> Typed:
    """Types a literal."""
    text = node.text
    if text in ("TRUE", "FALSE"):
        return Typed(text, BOOL)
    if text == "NULL":
        return Typed("NULL", None)
    if text.startswith("DATE"):
        return Typed(text, FieldType("date", nullable=True))
    if text.startswith("TIMESTAMP"):
        raise NotPortable("a TIMESTAMP literal is not in the subset of aggregates, only of where= and key_by=")
    if text.startswith("'"):
        return Typed(text, STR)
    if text.isdecimal():
        if int(text) >= 2**63:
            raise NotPortable(f"{text} does not fit 64 bits")
        return Typed(f"CAST({text} AS BIGINT)", INT)
    return Typed(f"CAST('{text}' AS DOUBLE)", FLOAT)


def type_arithmetic(node: Node, args: list[Typed]) -> Typed:
    """Types `+ - * / ||`: of whole numbers, floats, and texts."""
    kinds = {a.type.kind if a.type else "null" for a in args}
    if node.op == "||":
        if kinds != {"str"}:
            raise NotPortable(f"|| of {in_words(kinds)}: it joins texts")
        return Typed(f"({' || '.join(a.sql for a in args)})", STR)
    if not kinds <= {"int", "float"}:
        hint = ": write CAST(x AS DOUBLE)" if "decimal" in kinds else ""
        raise NotPortable(f"{node.op} of {in_words(kinds)}{hint}")
    wanted = INT if kinds == {"int"} and node.op != "/" else FLOAT
    parts = [cast(a, wanted) for a in args]
    if len(parts) == 1:
        return Typed(f"({node.op} {parts[0]})", wanted)
    return Typed(f"({f' {node.op} '.join(parts)})", wanted)


def type_comparison(node: Node, args: list[Typed]) -> Typed:
    """Types a comparison of values of one type."""
    if {a.type.kind for a in args if a.type} == {"decimal", "int"}:
        whole = [n for n, a in zip(node.args, args, strict=True) if a.type and a.type.kind == "int"]
        if not all(n.op == "literal" for n in whole):
            raise NotPortable(f"{node.op} of decimal and int: write CAST(x AS DOUBLE)")
        parts = [n.text if n in whole else a.sql for n, a in zip(node.args, args, strict=True)]
    else:
        wanted = one_type(node.op, args)
        parts = [cast(a, wanted) for a in args]
    if node.op == "BETWEEN":
        return Typed(f"({parts[0]} BETWEEN {parts[1]} AND {parts[2]})", BOOL)
    if node.op == "IN":
        return Typed(f"({parts[0]} IN ({', '.join(parts[1:])}))", BOOL)
    return Typed(f"({parts[0]} {node.op} {parts[1]})", BOOL)


def _logic(node: Node, args: list[Typed]) -> Typed:
    if node.op != "IS NULL" and any(a.type not in (BOOL, None) for a in args):
        raise NotPortable(f"{node.op} of a value that is not a condition")
    if node.op == "IS NULL":
        return Typed(f"({args[0].sql} IS NULL)", BOOL)
    return Typed(f"(NOT {args[0].sql})" if node.op == "NOT" else f"({args[0].sql} {node.op} {args[1].sql})", BOOL)


def type_call(node: Node, args: list[Typed]) -> Typed:
    """Types a call of one of `FUNCTIONS`."""
    least, most = {"nullif": (2, 2), "abs": (1, 1), "sqrt": (1, 1)}.get(node.op, (2, 99))
    if not least <= len(args) <= most:
        raise NotPortable(f"{node.op} with {len(args)} arguments")
    wanted = FLOAT if node.op == "sqrt" else one_type(node.op, args)
    if node.op in ("abs", "sqrt") and not wanted.is_number:
        raise NotPortable(f"{node.op} of a {wanted.kind}")
    if node.op == "sqrt" and args[0].type not in (INT, FLOAT):
        raise NotPortable("sqrt of what is neither int nor float: write CAST(x AS DOUBLE)")
    return Typed(f"{node.op}({', '.join(cast(a, wanted) for a in args)})", wanted)


def _case(node: Node, args: list[Typed]) -> Typed:
    """Arguments are condition, value, condition, value, …, and the ELSE value."""
    pairs = list(zip(args[:-1:2], args[1::2], strict=True))
    if any(condition.type != BOOL for condition, _ in pairs):
        raise NotPortable("WHEN of a value that is not a condition")
    wanted = one_type("CASE", [*(value for _, value in pairs), args[-1]])
    whens = " ".join(f"WHEN {condition.sql} THEN {cast(value, wanted)}" for condition, value in pairs)
    return Typed(f"CASE {whens} ELSE {cast(args[-1], wanted)} END", wanted)


def type_cast(node: Node, args: list[Typed]) -> Typed:
    """Types a CAST to one of `CASTS`."""
    if node.text not in CASTS:
        raise NotPortable(f"CAST to {node.text} is not in the subset of aggregates, only of where= and key_by=")
    kind = args[0].type.kind if args[0].type else "null"
    wanted, allowed = (INT, ("int",)) if node.text == "BIGINT" else (FLOAT, ("int", "float", "decimal"))
    if kind not in allowed:
        raise NotPortable(f"CAST of {kind} to {node.text}")
    return Typed(cast(args[0], wanted), wanted)


def one_type(op: str, args: list[Typed]) -> FieldType:
    """Returns the one type of several parts; a float if some are whole numbers and some floats."""
    types = [a.type for a in args if a.type is not None]
    if not types:
        raise NotPortable(f"{op} of nothing but NULL")
    if all(t in (INT, FLOAT) for t in types):
        return INT if all(t == INT for t in types) else FLOAT
    if any(t != types[0] for t in types) or not types[0].is_ordered:
        raise NotPortable(f"{op} of {in_words({t.kind for t in types})}, which are not one type")
    return types[0]


def cast(part: Typed, wanted: FieldType) -> str:
    """Returns the SQL of a part in another type."""
    if part.type is None or part.type == wanted:
        return part.sql if part.type is not None else f"CAST(NULL AS {wanted.sql})"
    # Through text, because engines convert wide decimals to doubles with different rounding.
    inner = f"CAST({part.sql} AS STRING)" if part.type.kind == "decimal" else part.sql
    return f"CAST({inner} AS {wanted.sql})"


def in_words(kinds: set[str]) -> str:
    """Returns kinds of types for a message."""
    return " and ".join(sorted(kinds))


def _is_number(text: str) -> bool:
    return text[0].isdecimal()


def _is_zero(text: str) -> bool:
    return _is_number(text) and float(text) == 0


AGGREGATE_TYPING: dict[str, Typing] = {
    "literal": type_literal,
    **dict.fromkeys(("+", "-", "*", "/", "||"), type_arithmetic),
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "BETWEEN", "IN"), type_comparison),
    **dict.fromkeys(("AND", "OR", "NOT", "IS NULL"), _logic),
    **dict.fromkeys(FUNCTIONS, type_call),
    "CASE": _case,
    "CAST": type_cast,
}
