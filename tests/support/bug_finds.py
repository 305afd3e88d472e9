"""What counts as a find of a planted bug: a violation, never a slip of the plant's own code."""

import re
from collections.abc import Iterable

SLIPS = ("AttributeError", "NameError", "TypeError", "UnboundLocalError")
"""A plant whose signature does not fit the code any more raises these: it has shown nothing about the protocol."""
_SLIP = re.compile(rf"\b({'|'.join(SLIPS)})( escaped\b|\()")


def violations(found: Iterable[str]) -> list[str]:
    """Those finds of one schedule that break a promise."""
    return [line for line in found if not _SLIP.search(line)]
