"""Which levels to compact: a pure choice over the files of a handle (design section 5, D20, F4, F8, ADR 0008).

The files of a handle lie in groups, one per compaction output or run, oldest first. A compaction merges a suffix of
the groups, all runs included, into one group, so that the result lies under the newest `_checkpoint` it contains. It
takes an older group in

- when that is no larger than `ratio` times what is being merged anyway: each row is then rewritten a number of times
  that grows with the logarithm of the state;
- when it has many files that are much smaller than they should be;
- and all of them when the newer rows would otherwise take more space than `space` allows. What the state resolves to is
  not known without reading it; the oldest group holds each key once, so it stands for that, less what newer rows may
  have deleted. That whole rewrite is paid for by the newer rows, which are a fixed share of it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from tidemark.model.checkpoint.segments import Segment, StateHandle
from tidemark.model.checkpoint.table_writes import LiveFile
from tidemark.model.schema.operator_schema import OperatorSchema

FilesOf = Callable[[Segment], Sequence[LiveFile]]
"""`StateTables.files_of`: the files of a segment with their levels and checkpoints."""
BROADCAST_ROWS = 2_000_000
"""Most rows above the oldest group whose keys a reader hands to every task."""
DEEPEST = 6
"""Greatest `_level`; it is a word for people, nothing is decided by it."""
FEW_FILES = 3
"""So many files of a group are never too many."""


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

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(f.file.size for f in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelPolicy:
    """When groups are merged, and which.

    Attributes:
        runs: runs that make a compaction due; 0 merges everything that there is a reason to touch.
        ratio: an older group is merged along when it has at most this many times the rows of all newer ones.
        space: most rows, and bytes, that a compaction leaves, as a multiple of those of the resolved state (T2).
        file_bytes: size of file that a compaction aims at (Flink's `file-merging.max-file-size`).
    """

    runs: int = 8
    ratio: float = 2.0
    space: float = 2.0
    file_bytes: int = 32 * 2**20

    @classmethod
    def everything(cls) -> "LevelPolicy":
        """Rewrites down to the oldest group, due or not."""
        return cls(runs=0, ratio=math.inf)

    @property
    def small_bytes(self) -> int:
        """Below it a file is small, and newer rows are too few bytes to compact for their space alone."""
        return self.file_bytes // 4

    def is_scattered(self, group: Group) -> bool:
        """Whether a group has many files that are small."""
        return len(group.files) > FEW_FILES and group.bytes < len(group.files) * self.small_bytes

    def is_exceeded(self, schema: OperatorSchema, groups: Sequence[Group]) -> bool:
        """Whether the newer groups, left where they are, take more space than allowed.

        Where no row hides others the state has at least the rows of the oldest group. A tombstone takes at most one of
        them away, so that o rows below n newer ones leave at least o - n: then n may be (space - 1) / (space + 1) of o.
        """
        newer, share = groups[1:], self.space - 1
        if (schema.shadows or schema.kind == "process") and math.isfinite(share):
            share /= self.space + 1
        rows, size = sum(g.rows for g in newer), sum(g.bytes for g in newer)
        large = size >= self.small_bytes and size > share * groups[0].bytes if newer else False
        return large or (bool(newer) and rows > share * groups[0].rows)

    def files_for(self, groups: Sequence[Group]) -> int:
        """How many files a merge of groups is written to.

        It has at least the bytes of the largest group, if nothing is deleted, and at most those of all: the geometric
        mean is off by little whichever it is.
        """
        sizes = [g.bytes for g in groups]
        return max(1, math.ceil(math.sqrt(max(sizes) * sum(sizes)) / self.file_bytes))


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


def groups_of(handle: StateHandle, files_of: FilesOf) -> list[Group]:
    """The groups of a handle, oldest first; raises what `files_of` raises."""
    groups = []
    for segment in handle:
        ordered = sorted(files_of(segment), key=lambda f: (f.checkpoint, -f.level, f.path))
        for (checkpoint, negative), found in groupby(ordered, key=lambda f: (f.checkpoint, -f.level)):
            groups.append(Group(segment=segment, level=-negative, checkpoint=checkpoint, files=tuple(found)))
    return groups


def is_top_light(schema: OperatorSchema, groups: Sequence[Group]) -> bool:
    """Whether a reader does well to leave rows of the oldest group alone that no newer row touches.

    Not where the newer groups are more than a fifth of it, or too many keys to be known to every task, or where a key
    has several rows in one group (a process with maps).
    """
    if len(groups) < 2 or groups[0].segment.after or schema.maps or not _may_move(groups, 1):
        return False
    return sum(g.rows for g in groups[1:]) <= min(groups[0].rows // 5, BROADCAST_ROWS)


def amplification(groups: Sequence[Group]) -> float:
    """Rows or bytes of a handle, whichever is more, as a multiple of those of its oldest group; 1 where that is all.

    What the state resolves to has at least the rows of the oldest group, unless keys were deleted or have expired.
    """
    if not groups or not groups[0].rows:
        return 1.0
    rows, size = sum(g.rows for g in groups), sum(g.bytes for g in groups)
    return max(rows / groups[0].rows, size / max(groups[0].bytes, 1))


def due(
    schema: OperatorSchema, handle: StateHandle, groups: Sequence[Group], policy: LevelPolicy | None = None
) -> Compaction | None:
    """The compaction that a handle is due for, or None.

    Args:
        schema: the stored schema.
        handle: the handle of a completed manifest.
        groups: its groups, by `groups_of`.
        policy: when and which; the default one without it.
    """
    start = _start(schema, groups, policy or LevelPolicy())
    if start is None:
        return None
    merged, kept = tuple(groups[start:]), tuple(groups[:start])
    level = min(DEEPEST, max(g.level for g in merged) + 1)
    return Compaction(input=handle, kept=kept, merged=merged, level=level)


def _start(schema: OperatorSchema, groups: Sequence[Group], policy: LevelPolicy) -> int | None:
    """Index of the first group to merge; None where nothing is due."""
    if not groups or policy.runs == 0:
        return 0 if groups and _is_worth_it(schema, groups, policy) else None
    first_run = len(groups)
    while first_run and groups[first_run - 1].level == 0:
        first_run -= 1
    scattered = next((n for n, g in enumerate(groups) if policy.is_scattered(g)), len(groups))
    exceeded = policy.is_exceeded(schema, groups)
    swollen = exceeded and sum(g.bytes for g in groups[1:]) >= policy.small_bytes
    if len(groups) - first_run < policy.runs and scattered == len(groups) and not swollen:
        return None
    return 0 if exceeded else _along(groups, min(first_run, scattered), policy.ratio)


def _along(groups: Sequence[Group], start: int, ratio: float) -> int:
    """Where the suffix begins once it has taken in older groups that are not much larger than itself."""
    while not _may_move(groups, start):
        start -= 1
    rows = sum(g.rows for g in groups[start:])
    while start and _may_move(groups, start - 1) and groups[start - 1].rows <= ratio * rows:
        start -= 1
        rows += groups[start].rows
    return start


def _is_worth_it(schema: OperatorSchema, groups: Sequence[Group], policy: LevelPolicy) -> bool:
    """Whether a rewrite of everything changes anything: not of one group that was made by one, if nothing expires."""
    (first, *newer) = groups
    stale = first.level == 0 or schema.layout(first.segment.path) is not None or policy.is_scattered(first)
    return bool(newer) or stale or any(f.ttl is not None and f.ttl.clean_up_in_background for f in schema.fields)


def _may_move(groups: Sequence[Group], at: int) -> bool:
    """Whether the suffix may begin at a group: not in the middle of files that share one checkpoint."""
    return at == 0 or groups[at - 1].checkpoint < groups[at].checkpoint
