"""Time to live of state: the five options of Flink's StateTtlConfig, on a clock that is part of the plan.

On event time, the access time of a record is the later of its event time and the watermark at the start of its batch,
so it never decreases over checkpoints, and "now" is the watermark after the batch. An event time ahead of the logical
time counts as that, so no record expires the state of others before its time (adr/0053). On logical time, both are the
logical time of the checkpoint. Neither reads a wall clock, so a replay expires the same rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from tidemark.errors import DeclarationError

Clock = Literal["event_time", "logical_time"]
"""The clock of a checkpoint that expires state."""
UpdateType = Literal["on_create_and_write", "on_read_and_write", "disabled"]
"""The operations that count as an access; folding a record is a write."""
Visibility = Literal["never_return_expired", "return_expired_if_not_cleaned_up"]
"""What a reader gets for an expired value that is still stored."""

_MS = timedelta(milliseconds=1)
_CHOICES: dict[str, tuple[str, ...]] = {
    "update": ("on_create_and_write", "on_read_and_write", "disabled"),
    "visibility": ("never_return_expired", "return_expired_if_not_cleaned_up"),
    "clock": ("event_time", "logical_time"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ttl:
    """How long a field of state lives after its last access.

    >>> from datetime import timedelta
    >>> from tidemark import state
    >>> class Session(state.Keyed):
    ...     clicks: int | None = state.count(ttl=timedelta(days=30))
    ...     page: str | None = state.latest("page", ttl=state.Ttl(ttl=timedelta(hours=1), update="on_read_and_write"))

    Attributes:
        ttl: positive, in whole milliseconds; a value is expired when last access + ttl <= now.
        update: `on_create_and_write` (default), `on_read_and_write`, or `disabled`: the field never expires.
        visibility: `never_return_expired` (default), or `return_expired_if_not_cleaned_up`: readers get an expired
            value until a later access or an export cleans it up. Compaction does not clean up such fields, so results
            never depend on its schedule.
        clock: `event_time` (default) or `logical_time`; the same for all fields of an operator.
        clean_up_in_background: whether a compaction of the deepest level drops expired state; accessed state is always
            cleaned up.
    """

    ttl: timedelta
    update: UpdateType = "on_create_and_write"
    visibility: Visibility = "never_return_expired"
    clock: Clock = "event_time"
    clean_up_in_background: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.ttl, timedelta) or self.ttl < _MS or self.ttl % _MS:
            raise DeclarationError(f"ttl={self.ttl!r}", next="give a positive timedelta of whole milliseconds.")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise DeclarationError(f"{name}={getattr(self, name)!r}", next=f"give one of {', '.join(choices)}.")

    @property
    def ms(self) -> int:
        """The time to live in milliseconds."""
        return self.ttl // _MS

    @property
    def hides(self) -> bool:
        """Whether an expired value counts as absent, so that history is cut before it is combined."""
        return self.visibility == "never_return_expired"

    @property
    def renews_on_read(self) -> bool:
        """Whether reading is an access."""
        return self.update == "on_read_and_write"

    def to_json(self) -> dict[str, Any]:
        """Returns the form for manifests."""
        return {
            "ttl_ms": self.ms,
            "update": self.update,
            "visibility": self.visibility,
            "clock": self.clock,
            "clean_up_in_background": self.clean_up_in_background,
        }

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "Ttl":
        """The inverse of `to_json`."""
        rest = {name: value for name, value in body.items() if name != "ttl_ms"}
        return cls(ttl=body["ttl_ms"] * _MS, **rest)


def checked_keep_for(what: str, given: "timedelta | None") -> None:
    """Checks how long rows of a sink, or dead letters, stay.

    Raises:
        DeclarationError: it is neither None nor a positive timedelta of whole milliseconds.
    """
    if given is not None and (not isinstance(given, timedelta) or given < _MS or given % _MS):
        raise DeclarationError(f"{what}={given!r}", next="give a positive timedelta of whole milliseconds, or omit it.")


def as_ttl(given: "timedelta | Ttl | None") -> Ttl | None:
    """Validates the `ttl=` of a declaration; a duration alone means the defaults, a disabled ttl means None."""
    if isinstance(given, timedelta):
        return Ttl(ttl=given)
    if given is not None and not isinstance(given, Ttl):
        raise DeclarationError(f"ttl={given!r}", next="give a timedelta or a state.Ttl.")
    return None if given is None or given.update == "disabled" else given


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """The current time at a checkpoint, on both clocks, in milliseconds since the epoch.

    Attributes:
        event_time_ms: the watermark after its batch; None before the first record: nothing expires.
        logical_time_ms: its logical time; None: nothing expires on this clock.
        frontiers: by uid the frontier of each operator with windows; those that end there or before are hidden.
    """

    event_time_ms: int | None = None
    logical_time_ms: int | None = None
    frontiers: Mapping[str, int] = field(default_factory=dict)

    def of(self, clock: Clock) -> int | None:
        """Returns the time on a clock."""
        return self.event_time_ms if clock == "event_time" else self.logical_time_ms
