"""Renders untrusted bytes as inert text: cut, and without characters that steer a terminal or turn a line."""

import unicodedata
from codecs import getincrementaldecoder
from collections.abc import Callable

from tidemark.web.history_json import Json

LONGEST = 4096
"""Bytes of a key or a value that are shown."""
_KEPT = "\t\n"


def text_of(raw: bytes | None, render: Callable[[bytes], bytes] | None = None) -> Json | None:
    """`text`, its `encoding` (`utf-8`, or `hex` where it is none), the `size` in bytes, and whether it was cut.

    Args:
        raw: bytes of a key or a value.
        render: makes text of them, as the format of the values does; None = they are text, or nothing knows better.
    """
    if raw is None:
        return None
    whole = raw if render is None else render(raw)
    shown = whole[:LONGEST]
    told: Json = {"size": len(raw), "cut": len(whole) > len(shown)}
    try:
        # A character that the cut has divided is left out.
        text = getincrementaldecoder("utf-8")().decode(shown, final=not told["cut"])
    except UnicodeDecodeError:
        return {"text": shown.hex(), "encoding": "hex", **told}
    return {"text": "".join(map(_inert, text)), "encoding": "utf-8", **told}


def _inert(character: str) -> str:
    """Controls and marks of direction by their numbers."""
    if character in _KEPT or unicodedata.category(character) not in ("Cc", "Cf", "Zl", "Zp"):
        return character
    return f"\\u{ord(character):04x}"
