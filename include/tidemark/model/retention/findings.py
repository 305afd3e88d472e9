"""What a check of restore points has found: bad files and objects, and what each of them breaks (G14, Q10)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidemark.model.checkpoint.segments import StateHandle

Flaws = Mapping[str, str]
"""Per file or object, relative to the warehouse, what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRestorePoint:
    """What somebody may go back to, and all that it needs.

    Attributes:
        name: `chk-17`, `savepoint june`, `timeline t2`.
        handles: of state, dead letters and sinks.
        flaws: of its own objects: manifest, id, stored queries.
    """

    name: str
    handles: tuple[StateHandle, ...] = ()
    flaws: Flaws = field(default_factory=dict)

    def called(self, name: str) -> "CheckedRestorePoint":
        """The same under another name: a savepoint breaks with the checkpoint that it pins."""
        return CheckedRestorePoint(name=name, handles=self.handles, flaws=self.flaws)


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """One bad file or object.

    Attributes:
        where: relative to the warehouse.
        why: what is wrong with it.
        breaks: names of the restore points that need it; none where it is a record that no restore point needs.
    """

    where: str
    why: str
    breaks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """How much was looked at: segments of tables, data files and their bytes."""

    segments: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The outcome of a check.

    Attributes:
        points: names of the restore points that were checked.
        inspected: how much was looked at.
        damages: what was found, in order of places.
    """

    points: tuple[str, ...]
    inspected: Inspected
    damages: tuple[Damage, ...]

    @property
    def broken(self) -> tuple[str, ...]:
        """Names of the restore points that something breaks, in the order of the check."""
        return tuple(dict.fromkeys(name for damage in self.damages for name in damage.breaks))


def damages_of(found: Sequence[tuple[str, Flaws]], others: Iterable[tuple[str, str]] = ()) -> tuple[Damage, ...]:
    """One entry per place, with everything that it breaks.

    Args:
        found: restore points by name, each with its flaws.
        others: (place, why) of records that no restore point needs.
    """
    whys = dict(others)
    breaks: dict[str, list[str]] = {where: [] for where in whys}
    for name, flaws in found:
        for where, why in flaws.items():
            whys.setdefault(where, why)
            breaks.setdefault(where, []).append(name)
    return tuple(Damage(where=where, why=whys[where], breaks=tuple(breaks[where])) for where in sorted(whys))
