"""The findings of a check of restore points: bad files and objects, and the restore points that each breaks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidemark.model.checkpoint.segments import StateHandle

Flaws = Mapping[str, str]
"""The damage, by file or object, relative to the warehouse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRestorePoint:
    """A restore point, and everything that it needs.

    Attributes:
        name: `chk-17`, `savepoint june`, `timeline t2`.
        handles: handles of state, dead letters and sinks.
        flaws: flaws of its own objects: manifest, id, stored queries, schemas of a registry.
    """

    name: str
    handles: tuple[StateHandle, ...] = ()
    flaws: Flaws = field(default_factory=dict)

    def with_name(self, name: str) -> "CheckedRestorePoint":
        """Returns the same under another name: a savepoint breaks with the checkpoint that it pins."""
        return CheckedRestorePoint(name=name, handles=self.handles, flaws=self.flaws)


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """One bad file or object.

    Attributes:
        where: path relative to the warehouse.
        why: the damage, in words.
        breaks: names of the restore points that need it; empty for a record that none needs.
    """

    where: str
    why: str
    breaks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """The amount of work: segments of tables, data files and their bytes."""

    segments: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The outcome of a check.

    Attributes:
        points: names of the checked restore points.
        inspected: the amount of work.
        damages: the findings, ordered by location.
    """

    points: tuple[str, ...]
    inspected: Inspected
    damages: tuple[Damage, ...]

    @property
    def broken(self) -> tuple[str, ...]:
        """Names of the broken restore points, in the order of the check."""
        return tuple(dict.fromkeys(name for damage in self.damages for name in damage.breaks))


def damages_of(found: Sequence[tuple[str, Flaws]], others: Iterable[tuple[str, str]] = ()) -> tuple[Damage, ...]:
    """Returns one entry per location, with all restore points that it breaks.

    Args:
        found: restore points by name, with their flaws.
        others: (location, why) of records that no restore point needs.
    """
    whys = dict(others)
    breaks: dict[str, list[str]] = {where: [] for where in whys}
    for name, flaws in found:
        for where, why in flaws.items():
            whys.setdefault(where, why)
            breaks.setdefault(where, []).append(name)
    return tuple(Damage(where=where, why=whys[where], breaks=tuple(breaks[where])) for where in sorted(whys))
