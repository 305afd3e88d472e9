"""Which levels to compact: a pure choice over the files of a handle (design section 5, F4).

The files of a handle lie in groups, one per compaction output or run, oldest first. A compaction merges a suffix of
the groups, all runs included, into one group, so that the result lies under the newest `_checkpoint` it contains. It
takes an older group in only when that is no larger than `RATIO` times what is being merged anyway: each row is then
rewritten a number of times that grows with the logarithm of the state, and the whole base only after the newer rows
have grown to a share of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from tidemark.model.schema import OperatorSchema
from tidemark.model.segments import Segment, StateHandle
from tidemark.model.writes import LiveFile

RUNS = 8
"""Runs that make a compaction due."""
RATIO = 2
"""An older group is merged along when it has at most this many times the rows of all newer ones."""
BROADCAST_ROWS = 2_000_000
"""Most rows above the oldest group whose keys a reader hands to every task."""
DEEPEST = 6
"""Greatest `_level`; it is a word for people, nothing is decided by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Files of one run or one compaction output.

    Attributes:
        segment: the segment of the handle that holds them.
        level: 0 for a run.
        checkpoint: their `_checkpoint`, the newest that they contain.
        files: the files.
    """

    segment: Segment
    level: int
    checkpoint: int
    files: tuple[LiveFile, ...]

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(f.file.rows for f in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """What to merge, and what stays.

    Attributes:
        input: the handle that was read, whole.
        kept: groups that stay, oldest first.
        merged: groups to merge, oldest first.
        level: `_level` of the result.
    """

    input: StateHandle
    kept: tuple[Group, ...]
    merged: tuple[Group, ...]
    level: int

    @property
    def cut(self) -> int:
        """Checkpoint id that the merged rows begin above."""
        return self.kept[-1].checkpoint if self.kept else self.input.after

    @property
    def through(self) -> int:
        """Newest checkpoint id of the result."""
        return self.input.through

    @property
    def is_deepest(self) -> bool:
        """Whether nothing lies below: only then operands become values, and tombstones may go."""
        return not self.kept and self.input.after == 0

    def parent(self, base: str) -> Segment | None:
        """The segment of table `base` that the commit starts from: the one that the input names."""
        return self.input.segment_of(base)

    def drop(self, base: str) -> tuple[str, ...]:
        """Files of the parent segment that the result replaces."""
        return tuple(f.path for g in self.merged if g.segment.path == base for f in g.files)

    def after(self, base: str) -> int:
        """Lower bound of the segment that the commit leaves: the parent's, unless that is empty now."""
        parent = self.parent(base)
        stays = any(g.segment.path == base for g in self.kept)
        return parent.after if parent is not None and stays else self.cut

    def output(self, segment: Segment) -> StateHandle:
        """The handle that answers the same: what stays in other tables, then the committed segment."""
        others = [s for s in self.input if s.path != segment.path and s.after < self.cut]
        return StateHandle((*(self._cut_off(s) for s in others), segment))

    def _cut_off(self, segment: Segment) -> Segment:
        groups = [g for g in self.kept if g.segment == segment]
        return replace(
            segment,
            through=min(segment.through, self.cut),
            rows=sum(g.rows for g in groups),
            bytes=sum(f.file.size for g in groups for f in g.files),
            files=sum(len(g.files) for g in groups),
        )


def groups_of(handle: StateHandle, files: Mapping[Segment, Sequence[LiveFile]]) -> list[Group]:
    """The groups of a handle, oldest first.

    Args:
        handle: the handle.
        files: of each of its segments, those in its range.
    """
    groups = []
    for segment in handle:
        ordered = sorted(files[segment], key=lambda f: (f.checkpoint, -f.level, f.path))
        for (checkpoint, negative), found in groupby(ordered, key=lambda f: (f.checkpoint, -f.level)):
            groups.append(Group(segment=segment, level=-negative, checkpoint=checkpoint, files=tuple(found)))
    return groups


def bottom_of(schema: OperatorSchema, groups: Sequence[Group]) -> int | None:
    """Checkpoint id of the oldest group, where a reader does well to merge only what lies above it.

    None where the newer groups are more than a fifth of it, or too many keys to be known to every task, or where a
    key has several rows in one group (a process with maps).
    """
    if len(groups) < 2 or groups[0].segment.after or schema.maps or not _may_move(groups, 1):
        return None
    newer = sum(g.rows for g in groups[1:])
    return groups[0].checkpoint if newer <= min(groups[0].rows // 5, BROADCAST_ROWS) else None


def due(handle: StateHandle, groups: Sequence[Group], *, runs: int = RUNS, ratio: int = RATIO) -> Compaction | None:
    """The compaction that a handle is due for, or None.

    Args:
        handle: the handle of a completed manifest.
        groups: its groups, by `groups_of`.
        runs: how many runs make it due; 1 compacts whatever there is.
        ratio: see `RATIO`; a very large one rewrites everything.
    """
    start = len(groups)
    while start and groups[start - 1].level == 0:
        start -= 1
    if len(groups) - start < max(runs, 1):
        return None
    rows = sum(g.rows for g in groups[start:])
    while start and _may_move(groups, start - 1) and groups[start - 1].rows <= ratio * rows:
        start -= 1
        rows += groups[start].rows
    merged, kept = tuple(groups[start:]), tuple(groups[:start])
    level = min(DEEPEST, max(g.level for g in merged) + 1)
    return Compaction(input=handle, kept=kept, merged=merged, level=level)


def _may_move(groups: Sequence[Group], at: int) -> bool:
    """Whether the suffix may begin at a group: not in the middle of files that share one checkpoint."""
    return at == 0 or groups[at - 1].checkpoint < groups[at].checkpoint
