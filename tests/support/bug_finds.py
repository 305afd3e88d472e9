"""Separates real finds of a planted bug from errors in the code that plants it."""

import re
from collections.abc import Callable, Iterable

SLIPS = ("AttributeError", "NameError", "TypeError", "UnboundLocalError")
"""A planted function raises these if its signature no longer fits the code. They say nothing about the protocol."""
_SLIP = re.compile(rf"\b({'|'.join(SLIPS)})( escaped\b|\()")


def violations(found: Iterable[str]) -> list[str]:
    """The finds of a schedule that violate a promise of the protocol."""
    return [line for line in found if not _SLIP.search(line)]


def is_found(check: Callable[[int], object], seeds: Iterable[int]) -> bool:
    """Whether a random case fails while a fault is planted, and not because the planted function does not fit.

    Args:
        check: one case; it raises if something is wrong.
        seeds: of the cases, tried until one fails.
    """
    for seed in seeds:
        try:
            check(seed)
        except Exception as error:  # noqa: BLE001  (any violation counts, if it is no slip)
            assert violations([repr(error)]), f"seed {seed}: the planted function does not fit: {error!r}"
            return True
    return False
