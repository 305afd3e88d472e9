"""Retention rules as text, as `str` of a `Retention` writes them and `--keep` takes them, parsed back.

Python's own grammar parses the text, and only a short list of nodes is allowed; nothing is ever evaluated.
"""

import ast
from collections.abc import Callable
from datetime import timedelta
from functools import reduce

from tidemark.declare.retention import Retention
from tidemark.errors import DeclarationError

_NEXT = (
    "write members joined by |, as in \"keep_last(10) | keep_for(timedelta(days=7)) | daily(30, timezone='UTC')\";"
    " there are keep_last, keep_for, hourly, daily, monthly and delete_on_stop."
)
_LONGEST = 1000
_UNITS = frozenset({"weeks", "days", "hours", "minutes", "seconds", "milliseconds", "microseconds"})
_MEMBERS: dict[str, Callable[..., Retention]] = {
    "keep_last": Retention.keep_last,
    "keep_for": Retention.keep_for,
    "hourly": Retention.hourly,
    "daily": Retention.daily,
    "monthly": Retention.monthly,
    "delete_on_stop": Retention.delete_on_stop,
}


def parse_retention(text: str) -> Retention | None:
    """Parses a retention rule; an empty text is None, which keeps everything.

    Raises:
        DeclarationError: the text is not a rule, or a number or time zone in it is invalid.
    """
    if not text.strip():
        return None
    try:
        tree = ast.parse(text.strip()[: _LONGEST + 1], mode="eval") if len(text) <= _LONGEST else None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _refused(text) from error
    if tree is None:
        raise _refused(text[:40])
    return reduce(lambda one, other: one | other, [_member(part, text) for part in _parts(tree.body)])


def _parts(node: ast.expr) -> list[ast.expr]:
    parts = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        parts.append(node.right)
        node = node.left
    return [node, *reversed(parts)]


def _member(node: ast.expr, text: str) -> Retention:
    make = _MEMBERS.get(_called(node, "Retention") or "")
    if make is None or not isinstance(node, ast.Call):
        raise _refused(text)
    given = [_value(argument, text) for argument in node.args]
    named = {keyword.arg: _value(keyword.value, text) for keyword in node.keywords if keyword.arg}
    try:
        return make(*given, **named)
    except TypeError as error:
        raise _refused(text) from error


def _value(node: ast.expr, text: str) -> object:
    if isinstance(node, ast.Constant) and type(node.value) in (int, str):
        return node.value
    if _called(node, "datetime") != "timedelta" or not isinstance(node, ast.Call):
        raise _refused(text)
    parts = {k.arg: k.value for k in node.keywords}
    values = {unit: n.value for unit, n in parts.items() if unit in _UNITS and isinstance(n, ast.Constant)}
    numbers = {unit: n for unit, n in values.items() if unit is not None and type(n) is int}
    if node.args or len(numbers) != len(node.keywords):
        raise _refused(text)
    try:
        return timedelta(**numbers)
    except OverflowError as error:
        raise _refused(text) from error


def _called(node: ast.expr, owner: str) -> str | None:
    """Returns the name that a call calls, bare or as an attribute of `owner`."""
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id == owner:
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else None


def _refused(text: str) -> DeclarationError:
    return DeclarationError(f"not a retention rule: {text!r}", next=_NEXT)
