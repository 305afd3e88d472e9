"""Untrusted bytes as inert text, for terminals and pages."""

import unicodedata
from codecs import getincrementaldecoder
from collections.abc import Callable

from tidemark.answers.row_sources import ShownText

LONGEST_TEXT = 4096
"""Bytes shown of a key or a value."""
# Renders untrusted bytes as inert text: cut, and without characters that steer a terminal or turn a line.
_KEPT = "\t\n"


def text_of(raw: bytes | None, render: Callable[[bytes], bytes] | None = None) -> ShownText | None:
    """Bytes as text, with `encoding` `utf-8`, or `hex` if they are no UTF-8; None for None.

    Args:
        raw: bytes of a key or a value.
        render: decodes values of a record format for people; None = the bytes are text.
    """
    if raw is None:
        return None
    whole = raw if render is None else render(raw)
    shown = whole[:LONGEST_TEXT]
    is_cut = len(whole) > len(shown)
    try:
        # A character that the cut divides is left out.
        text = getincrementaldecoder("utf-8")().decode(shown, final=not is_cut)
    except UnicodeDecodeError:
        return ShownText(text=shown.hex(), encoding="hex", size=len(raw), cut=is_cut)
    return ShownText(text="".join(map(_inert, text)), encoding="utf-8", size=len(raw), cut=is_cut)


def _inert(character: str) -> str:
    """Replaces control and direction characters by their code points."""
    if character in _KEPT or unicodedata.category(character) not in ("Cc", "Cf", "Zl", "Zp"):
        return character
    return f"\\u{ord(character):04x}"
