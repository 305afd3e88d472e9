"""Segments and state handles: the state of one operator as a manifest names it."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidemark.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Segment:
    """Rows of one Delta table at one version whose `_checkpoint` lies in `(after, through]`.

    Attributes:
        path: the table, relative to the warehouse and `/`-separated, so that you can move a warehouse.
        version: the Delta version to open.
        after: checkpoint id before the first one in the segment (exclusive); 0 is the beginning of time.
        through: last checkpoint id in the segment (inclusive).
        rows: rows in the range, as committed.
        bytes: bytes of the live files of the range, as committed.
        files: number of those files.
    """

    after: int
    through: int
    path: str
    version: int
    rows: int
    bytes: int
    files: int

    def __post_init__(self) -> None:
        if not 0 <= self.after < self.through:
            raise UsageError(f"not a segment: ({self.after}, {self.through}]", next="give 0 <= after < through.")

    def difference(self, files: Iterable[tuple[int, int]]) -> str | None:
        """Returns how files differ from the committed ones; None if they do not.

        Args:
            files: bytes and rows of each file of the version in the range.
        """
        found = list(files)
        held = (len(found), sum(size for size, _ in found), sum(rows for _, rows in found))
        if held == (self.files, self.bytes, self.rows):
            return None
        return (
            f"it has {held[0]} files of {held[2]} rows and {held[1]} bytes in ({self.after}, {self.through}];"
            f" the manifest names {self.files}, {self.rows} and {self.bytes}"
        )


@dataclass(frozen=True, slots=True)
class StateHandle:
    """The gap-free list of segments that is an operator's state; empty = no state yet.

    Readers take the union of the segments, each cut to its range, and merge by key in the order of
    `_checkpoint`, never of level.
    """

    segments: tuple[Segment, ...] = ()

    def __post_init__(self) -> None:
        for lower, upper in zip(self.segments, self.segments[1:], strict=False):
            if lower.through != upper.after:
                raise UsageError(
                    f"gap in a state handle: ({lower.after}, {lower.through}] then ({upper.after}, {upper.through}]",
                    next="this is a defect of Tidemark: report it.",
                )

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.segments)

    def __bool__(self) -> bool:
        return bool(self.segments)

    @property
    def after(self) -> int:
        """Checkpoint id before the first one in the handle."""
        return self.segments[0].after if self.segments else 0

    @property
    def through(self) -> int:
        """Last checkpoint id that wrote rows; checkpoints without rows do not change it."""
        return self.segments[-1].through if self.segments else 0

    @property
    def rows(self) -> int:
        """Stored rows: at least the number of keys, more if runs are not yet compacted."""
        return sum(s.rows for s in self.segments)

    @property
    def bytes(self) -> int:
        """Full bytes of the state."""
        return sum(s.bytes for s in self.segments)

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of its tables, which contain `runs` and `base` of one stored schema."""
        return tuple(dict.fromkeys(s.path.rpartition("/")[0] for s in self.segments))

    def segment_of(self, path: str) -> Segment | None:
        """Returns the segment in table `path`, if any; at most one: the newest."""
        return next((s for s in reversed(self.segments) if s.path == path), None)

    def has_prefix(self, other: "StateHandle") -> bool:
        """Whether `other` covers exactly a leading part of this handle's range, ending at one of its runs.

        A compaction of `other` may be adopted under this condition: the compacted range begins where this one begins,
        and ends inside it or at its end.
        """
        return bool(other) and bool(self) and other.after == self.after and other.through <= self.through


LOG = "_delta_log"
"""The folder of a table's log."""
TORN = ".torn"
"""Suffix of a commit that a power cut has torn and a writer has set aside; it is deleted with its neighbours."""
_NUMBERED = re.compile(r"(\d{20})\.(json|checkpoint\.parquet|crc|json\.torn)", re.ASCII)


def log_version(name: str) -> int | None:
    """Returns the version that a file of a log belongs to; None for `_last_checkpoint` and unknown files."""
    found = _NUMBERED.fullmatch(name)
    return None if found is None else int(found[1])
