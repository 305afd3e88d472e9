"""The syntax of the portable SQL subset: names, literals, operators, functions, and their nesting.

Everything outside the lists below is refused by name, because the two engines treat it differently, or because they
have not been compared yet.
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache

FUNCTIONS = ("abs", "coalesce", "greatest", "least", "nullif", "sqrt")
"""Scalar functions; `greatest` and `least` skip nulls in both engines."""
OPERATORS = ("+", "-", "*", "/", "||", "=", "<>", "<", "<=", ">", ">=")
"""Binary operators, besides AND, OR, NOT, IS [NOT] NULL, [NOT] BETWEEN, [NOT] IN, CASE."""
CASTS = ("BIGINT", "DOUBLE")
"""Targets of CAST."""
TIME_PARTS = ("year", "quarter", "month", "day", "hour", "minute", "second", "isodow")
"""Parts of a date or time, each a function, and a name in `extract(part FROM x)`."""
RECORD_FUNCTIONS = ("date_trunc", "length", "lower", "substr", "upper", *TIME_PARTS)
"""Further functions in expressions over one record (`record_expression`)."""
RECORD_OPERATORS = ("%", "LIKE")
"""Further operators in expressions over one record."""
RECORD_CASTS = ("DATE", "STRING")
"""Further targets of CAST in expressions over one record."""
_WORDS = frozenset(
    ("AND", "OR", "NOT", "IS", "NULL", "BETWEEN", "IN", "CASE", "WHEN", "THEN", "ELSE", "END", "CAST", "AS", "TRUE")
    + ("FALSE", "DATE", "DISTINCT", "OVER", "FILTER", "WHERE")
)
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)|(?P<text>'(?:[^']|'')*')"""
    r"""|(?P<name>[A-Za-z][A-Za-z0-9_]*(?:\.[A-Za-z][A-Za-z0-9_]*)*)|(?P<sign><>|<=|>=|\|\||[-+*/%=<>(),]))"""
)
_LEVELS: tuple[tuple[str, ...], ...] = (("=", "<>", "<", "<=", ">", ">="), ("+", "-", "||"), ("*", "/", "%"))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NotPortable(ValueError):  # noqa: N818  (an answer of the parser; a declaration makes an error of it)
    """Why a text is not in the subset; names the part."""


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression: an operator or function with its arguments, a name, or a literal."""

    op: str
    args: tuple["Node", ...] = ()
    text: str = ""


@cache
def parse(text: str) -> Node:
    """Parses a text into an expression.

    Raises:
        NotPortable: it is not in the subset.
    """
    parser = _Parser(_tokens(text))
    found = parser.expression()
    if parser.next[0] != "end":
        raise NotPortable(f"unexpected {parser.next[1]!r}")
    return found


def names_in(node: Node) -> set[str]:
    """Returns the names in an expression."""
    found = {node.text} if node.op == "name" else set()
    return found.union(*map(names_in, node.args))


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    stripped = text.rstrip()
    while at < len(stripped):
        match = _TOKEN.match(stripped, at)
        if match is None:
            raise NotPortable(f"{stripped[at:].lstrip()[:1]!r} is not in the subset")
        kind = str(match.lastgroup)
        value = match[kind]
        if kind == "text" and re.search(r'[\\"\x00-\x1f]', value):
            raise NotPortable(f"{value}: engines differ on backslashes, double quotes and control characters in texts")
        if kind == "name" and value.upper() in _WORDS and not _is_field(value, stripped[match.end() :]):
            kind, value = "word", value.upper()
        found.append((kind, value))
        at = match.end()
    return found


def _is_field(word: str, rest: str) -> bool:
    """Whether a word is a name: `date` without a text after it."""
    return word.upper() == "DATE" and not rest.lstrip().startswith("'")


class _Parser:
    """Parses tokens, weakest operator first."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = [*tokens, ("end", "the end")]
        self._at = 0

    @property
    def next(self) -> tuple[str, str]:
        """Returns the next token."""
        return self._tokens[self._at]

    def expression(self) -> Node:
        """Parses a whole expression."""
        left = self._conjunction()
        while self._took("OR"):
            left = Node("OR", (left, self._conjunction()))
        return left

    def _conjunction(self) -> Node:
        left = self._negation()
        while self._took("AND"):
            left = Node("AND", (left, self._negation()))
        return left

    def _negation(self) -> Node:
        return Node("NOT", (self._negation(),)) if self._took("NOT") else self._predicate()

    def _predicate(self) -> Node:
        left = self._binary(0)
        if self._took("IS"):
            negated = self._took("NOT")
            self._take("NULL")
            found = Node("IS NULL", (left,))
            return Node("NOT", (found,)) if negated else found
        negated = self._took("NOT")
        if self._took("BETWEEN"):
            low = self._binary(1)
            self._take("AND")
            found = Node("BETWEEN", (left, low, self._binary(1)))
        elif self._took("IN"):
            found = Node("IN", (left, *self._arguments()))
        elif self._took_name("LIKE"):
            found = Node("LIKE", (left, self._binary(1)))
        elif negated:
            raise NotPortable(f"unexpected {self.next[1]!r} after NOT")
        else:
            return left
        return Node("NOT", (found,)) if negated else found

    def _binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return Node("-", (self._binary(level),)) if self._took("-") else self._primary()
        left = self._binary(level + 1)
        while self.next[0] == "sign" and self.next[1] in _LEVELS[level]:
            op = self._taken()
            left = Node(op, (left, self._binary(level + 1)))
        return left

    def _primary(self) -> Node:
        kind, text = self.next
        if self._took("("):
            found = self.expression()
            self._take(")")
            return found
        if self._took("CASE"):
            return self._cases()
        if self._took("CAST"):
            return self._casting()
        if self._took("DATE"):
            return Node("literal", text=f"DATE {_date(self._taken())}")
        if kind in ("number", "text") or text in ("TRUE", "FALSE", "NULL"):
            return Node("literal", text=self._taken())
        if kind != "name":
            raise NotPortable(f"unexpected {text!r}")
        return self._named(text)

    def _named(self, text: str) -> Node:
        """Parses what begins with a name: a field, a call, or a literal time."""
        self._at += 1
        if self.next[0] == "text" and text.upper() == "TIMESTAMP":
            return Node("literal", text=f"TIMESTAMP {_time(self._taken())}")
        if self.next[1] != "(":
            return Node("name", text=text)
        if text.lower() == "extract":
            return self._extracted()
        if text.lower() not in (*FUNCTIONS, *RECORD_FUNCTIONS):
            known = ", ".join((*FUNCTIONS, *RECORD_FUNCTIONS))
            raise NotPortable(f"function {text!r} is not in the subset; there are {known}")
        return Node(text.lower(), self._arguments())

    def _extracted(self) -> Node:
        self._take("(")
        part = self._taken().lower()
        if part not in TIME_PARTS:
            raise NotPortable(f"extract of {part!r} is not in the subset; there are {', '.join(TIME_PARTS)}")
        if not self._took_name("FROM"):
            raise NotPortable(f"expected 'FROM', found {self.next[1]!r}")
        found = self.expression()
        self._take(")")
        return Node(part, (found,))

    def _arguments(self) -> tuple[Node, ...]:
        self._take("(")
        found = [self.expression()]
        while self._took(","):
            found.append(self.expression())
        self._take(")")
        return tuple(found)

    def _cases(self) -> Node:
        args: list[Node] = []
        while self._took("WHEN"):
            args.append(self.expression())
            self._take("THEN")
            args.append(self.expression())
        if not args:
            raise NotPortable("CASE without WHEN, or of a value: write CASE WHEN x = … THEN … END")
        args.append(self.expression() if self._took("ELSE") else Node("literal", text="NULL"))
        self._take("END")
        return Node("CASE", tuple(args))

    def _casting(self) -> Node:
        self._take("(")
        found = self.expression()
        self._take("AS")
        target = self._taken().upper()
        if target not in (*CASTS, *RECORD_CASTS):
            known = ", ".join((*CASTS, *RECORD_CASTS))
            raise NotPortable(f"CAST to {target} is not in the subset; there are {known}")
        self._take(")")
        return Node("CAST", (found,), target)

    def _took(self, text: str) -> bool:
        if self.next[0] in ("word", "sign") and self.next[1] == text:
            self._at += 1
            return True
        return False

    def _took_name(self, word: str) -> bool:
        """Takes a word that is no word elsewhere, so that a field may have its name."""
        if self.next[0] == "name" and self.next[1].upper() == word:
            self._at += 1
            return True
        return False

    def _take(self, text: str) -> None:
        if not self._took(text):
            raise NotPortable(f"expected {text!r}, found {self.next[1]!r}")

    def _taken(self) -> str:
        kind, text = self.next
        if kind == "end":
            raise NotPortable("the text ends too early")
        self._at += 1
        return text


def _time(text: str) -> str:
    """Returns a literal time in UTC as microseconds since the epoch."""
    try:
        found = datetime.fromisoformat(text[1:-1])
    except ValueError as error:
        raise NotPortable(f"TIMESTAMP {text} is not a time: write '2020-01-31T12:00:00Z'") from error
    aware = found if found.tzinfo else found.replace(tzinfo=UTC)
    return str((aware - _EPOCH) // timedelta(microseconds=1))


def _date(text: str) -> str:
    try:
        if not re.fullmatch("'[0-9]{4}-[0-9]{2}-[0-9]{2}'", text):
            raise ValueError(text)
        date.fromisoformat(text[1:-1])
    except ValueError as error:
        raise NotPortable(f"DATE {text} is not a date") from error
    return text
