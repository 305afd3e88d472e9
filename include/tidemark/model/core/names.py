"""Names that may reach a path or SQL (reliability.md section 10), and checkpoint ids as people write them."""

import re

from tidemark.errors import NameRefusedError, UsageError

_ALLOWED = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", re.ASCII)
_NUMBERED = re.compile(r"t\d+", re.ASCII)
_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}", re.ASCII)


def checked_name(kind: str, name: str) -> str:
    """Returns `name` if it is on the allow-list.

    Args:
        kind: what is named, for the message ("pipeline", "uid", "topic", "timeline", "savepoint").
        name: the candidate.

    Raises:
        NameRefusedError: letters, digits, `_`, `.` and `-` only, at most 63, no `..`; a final `@v<digits>`
            cannot occur because `@` is refused (Delta would read it as time travel).
    """
    if not _ALLOWED.fullmatch(name) or ".." in name:
        raise NameRefusedError(
            f"{kind} name refused: {name!r}",
            next="use letters, digits, '_', '.' and '-', at most 63, starting with a letter or digit, no '..'.",
        )
    return name


def checked_timeline(name: str) -> str:
    """Returns `name` if people may give it to a timeline.

    Raises:
        NameRefusedError: as `checked_name`; or `t<n>`, as Tidemark calls the first timeline and those of restores.
    """
    if _NUMBERED.fullmatch(checked_name("timeline", name)):
        raise NameRefusedError(f"timeline name refused: {name!r}", next="t<n> are names of restores: take another.")
    return name


def checked_field(name: str) -> str:
    """Returns `name` if it may be a column: a letter, then letters, digits and `_`, at most 63.

    Raises:
        NameRefusedError: anything else; a leading underscore belongs to Tidemark's own columns.
    """
    if not is_field(name):
        raise NameRefusedError(
            f"field name refused: {name!r}",
            next="use a letter, then letters, digits and '_', at most 63.",
        )
    return name


def parse_id(text: str) -> int:
    """The number of a checkpoint, written as `chk-17` or `17`.

    Raises:
        UsageError: neither.
    """
    digits = text.removeprefix("chk-")
    if not digits.isdecimal():
        raise UsageError(f"not a checkpoint id: {text!r}", next="write chk-17 or 17.")
    return int(digits)


def is_field(name: str) -> bool:
    """Whether `name` may be a column."""
    return _FIELD.fullmatch(name) is not None
