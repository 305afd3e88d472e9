"""Separates real finds of a planted bug from errors in the code that plants it."""

import re
from collections.abc import Iterable

SLIPS = ("AttributeError", "NameError", "TypeError", "UnboundLocalError")
"""A planted function raises these if its signature no longer fits the code. They say nothing about the protocol."""
_SLIP = re.compile(rf"\b({'|'.join(SLIPS)})( escaped\b|\()")


def violations(found: Iterable[str]) -> list[str]:
    """The finds of a schedule that violate a promise of the protocol."""
    return [line for line in found if not _SLIP.search(line)]
