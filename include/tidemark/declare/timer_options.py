"""Timers of a process: its options, those that are refused, and the field that stores them."""

from collections.abc import Callable
from datetime import datetime
from inspect import Parameter, signature
from typing import TYPE_CHECKING

from tidemark.declare.watermark import check_clock
from tidemark.errors import DeclarationError
from tidemark.model.core.clocks import WATERMARK
from tidemark.model.core.types import field_type
from tidemark.model.schema.operator_schema import OF_TIMERS, StoredField

if TYPE_CHECKING:
    from tidemark.declare.operators import Process

TIMERS = "timers"
"""Name of the keyword-only parameter, and of the column that shows them."""
HINT = dict[str, datetime]
"""The timers of a key: when each fires, by name."""
_MOST = 100_000
"""Timers of a key at one time."""
_SIGNATURE = "on_timer=function(key, name, at, remembered)"


def timer_field() -> StoredField:
    """Returns the field that stores the timers of each key, as a map that the author's state does not have."""
    found = field_type(HINT, TIMERS)
    assert found.element is not None  # noqa: S101  (for the type checker: a dict)
    return StoredField(
        name=TIMERS, kind="map", source="", over=found.element, type=found, limit=_MOST, options=OF_TIMERS
    )


def takes(function: Callable[..., object], name: str) -> bool:
    """Whether a function has a keyword-only parameter."""
    found = signature(function).parameters.get(name)
    return found is not None and found.kind is Parameter.KEYWORD_ONLY


def takes_more(function: Callable[..., object], than: int) -> bool:
    """Whether a function has more positional parameters without a default than so many."""
    found = signature(function).parameters.values()
    positional = [p for p in found if p.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    return len(positional) > than and positional[than].default is Parameter.empty


def check_timers(process: "Process") -> None:
    """Checks what a process declares of timers.

    Raises:
        DeclarationError: an option needs `on_timer`, or does not go with it; the message names it.
    """
    lateness = process.lateness_ms
    if process.on_timer is None:
        given = {"fires_by": process.fires_by != WATERMARK, "lateness": lateness != 0}
        given["a function that takes timers"] = takes(process.function, TIMERS)
        if named := [name for name, is_given in given.items() if is_given]:
            what = f"{named[0]}=" if named[0] in ("fires_by", "lateness") else named[0]
            raise DeclarationError(f"{process.uid}: {what} without on_timer", next=f"give {_SIGNATURE}.")
        return
    if not callable(process.on_timer):
        raise DeclarationError(f"{process.uid}: on_timer={process.on_timer!r}", next=f"give {_SIGNATURE}.")
    if not takes(process.function, TIMERS):
        raise DeclarationError(
            f"{process.uid}: the function does not take timers, so none is ever set",
            next="give it a keyword-only parameter: def function(key, records, remembered, *, timers).",
        )
    check_clock(f"{process.uid}: fires_by", process.fires_by)
    _refuse(process)


def _refuse(process: "Process") -> None:
    if process.on_error != "fail":
        raise DeclarationError(
            f'{process.uid}: on_error="dead_letter" with on_timer: a timer has no record to put aside',
            next="leave one of them out.",
        )
    if any(d.name == TIMERS for d in process.state.descriptors):
        raise DeclarationError(
            f"{process.uid}: a state field is called {TIMERS}, the column of the timers", next="rename the field."
        )
