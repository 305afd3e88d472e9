"""Chooses the levels to compact, from the files of a handle only (adr/0008).

The files of a handle form groups, one per compaction output or run, oldest first. A compaction merges a suffix of the
groups, including all runs, into one group, so that the result has the newest `_checkpoint` it contains. It includes an
older group in these cases:

- The group is at most `ratio` times as large as the groups that are merged anyway. So a row is rewritten a number of
  times that grows with the logarithm of the state.
- The group has many files that are much smaller than intended.
- All of its windows have closed, so it adds nothing to the result.
- The newer rows would otherwise take more space than `space` allows. Then all groups are merged. The size of the
  resolved state is unknown without reading it. The oldest group has each key once, so it serves as an estimate, minus
  the rows that newer ones may have deleted. The newer rows, a fixed share of the state, pay for this full rewrite.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from tidemark.model.checkpoint.segments import LiveFile, Segment, StateHandle
from tidemark.model.core.ttl import Now
from tidemark.model.schema.operator_schema import OperatorSchema

FilesOf = Callable[[Segment], Sequence[LiveFile]]
"""`StateTables.files_of`: the files of a segment with their levels and checkpoints."""
BROADCAST_ROWS = 2_000_000
"""Maximum rows above the oldest group whose keys a reader sends to every task."""
DEEPEST = 6
"""Greatest `_level`; levels are for people, no decision depends on them."""
FEW_FILES = 3
"""This many files of a group are never too many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Files of one run or one compaction output.

    Attributes:
        segment: the segment of the handle with these files.
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
    """Which groups are merged, and when.

    Attributes:
        runs: number of runs that make a compaction due; 0 merges everything for which there is a reason.
        ratio: an older group is included if it has at most this many times the rows of all newer ones.
        space: maximum rows and bytes after a compaction, as a multiple of those of the resolved state.
        file_bytes: target file size of a compaction (Flink's `file-merging.max-file-size`).
    """

    runs: int = 8
    ratio: float = 2.0
    space: float = 2.0
    file_bytes: int = 32 * 2**20

    @classmethod
    def everything(cls) -> "LevelPolicy":
        """Rewrites everything down to the oldest group, due or not."""
        return cls(runs=0, ratio=math.inf)

    @property
    def small_bytes(self) -> int:
        """Below this size a file is small, and newer rows are too few to compact for their space alone."""
        return self.file_bytes // 4

    def is_scattered(self, group: Group) -> bool:
        """Whether a group has many small files."""
        return len(group.files) > FEW_FILES and group.bytes < len(group.files) * self.small_bytes

    def is_exceeded(self, schema: OperatorSchema, groups: Sequence[Group]) -> bool:
        """Whether the newer groups, if not merged, take more space than allowed.

        If no row hides others, the state has at least the rows of the oldest group. A tombstone removes at most one of
        them, so o rows below n newer ones leave at least o - n: then n may be (space - 1) / (space + 1) of o.
        """
        newer, share = groups[1:], self.space - 1
        if (schema.shadows or schema.kind == "process") and math.isfinite(share):
            share /= self.space + 1
        rows, size = sum(g.rows for g in newer), sum(g.bytes for g in newer)
        large = size >= self.small_bytes and size > share * groups[0].bytes if newer else False
        return large or (bool(newer) and rows > share * groups[0].rows)

    def files_for(self, groups: Sequence[Group]) -> int:
        """Returns the number of files for a merge of groups.

        Without deletes, the result has at least the bytes of the largest group and at most those of all groups. The
        geometric mean is a good estimate in both cases.
        """
        sizes = [g.bytes for g in groups]
        return max(1, math.ceil(math.sqrt(max(sizes) * sum(sizes)) / self.file_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """The groups to merge and to keep.

    Attributes:
        input: the handle that was read, complete.
        kept: groups that stay, oldest first.
        merged: groups to merge, oldest first.
        level: `_level` of the result.
        dropped: groups before the others that the result does without, because all of their rows have expired.
    """

    input: StateHandle
    kept: tuple[Group, ...]
    merged: tuple[Group, ...]
    level: int
    dropped: tuple[Group, ...] = ()

    @classmethod
    def of(cls, handle: StateHandle, groups: Sequence[Group], start: int, dropped: int = 0) -> "Compaction":
        """Returns the compaction that merges the groups from index `start` on, and drops the first `dropped` ones."""
        merged = tuple(groups[start:])
        level = min(DEEPEST, max(g.level for g in merged) + 1)
        kept = tuple(groups[dropped:start])
        return cls(input=handle, kept=kept, merged=merged, level=level, dropped=tuple(groups[:dropped]))

    @property
    def cut(self) -> int:
        """Checkpoint id above which the merged rows begin."""
        return self.kept[-1].checkpoint if self.kept else self.input.after

    @property
    def through(self) -> int:
        """Newest checkpoint id of the result."""
        return self.input.through

    @property
    def is_deepest(self) -> bool:
        """Whether the merge includes the oldest rows: only then operands become values, and tombstones are dropped."""
        return not self.kept and self.input.after == 0

    def parent(self, base: str) -> Segment | None:
        """The segment of table `base` in the input, from which the commit starts."""
        return self.input.segment_of(base)

    def drop(self, base: str) -> tuple[str, ...]:
        """Files of the parent segment that the result replaces."""
        gone = (*self.dropped, *self.merged)
        return tuple(f.path for g in gone if g.segment.path == base for f in g.files)

    def after(self, base: str) -> int:
        """Lower bound of the committed segment: the parent's, unless the parent is now empty."""
        parent = self.parent(base)
        stays = any(g.segment.path == base for g in self.kept)
        return parent.after if parent is not None and stays else self.cut

    def output(self, segment: Segment) -> StateHandle:
        """Returns the handle with the same contents: the kept segments of other tables, then the committed segment."""
        kept = [s for s in self.input if self._begin < s.through and s.after < self.cut]
        others = (self._cut_off(s) for s in kept if s.path != segment.path)
        return self.input.with_segments((*others, segment))

    @property
    def _begin(self) -> int:
        """Checkpoint id above which the kept rows begin."""
        return self.dropped[-1].checkpoint if self.dropped else self.input.after

    def _cut_off(self, segment: Segment) -> Segment:
        groups = [g for g in self.kept if g.segment == segment]
        return replace(
            segment,
            after=max(segment.after, self._begin),
            through=min(segment.through, self.cut),
            rows=sum(g.rows for g in groups),
            bytes=sum(f.file.size for g in groups for f in g.files),
            files=sum(len(g.files) for g in groups),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelMerge:
    """The rows that a compaction writes, and where to.

    Attributes:
        schema: the stored schema.
        groups: the groups to merge, oldest first, without files that nothing reads.
        now: the clocks of the checkpoint that is compacted.
        deepest: whether there are no older rows.
        folder: the target, relative to the warehouse; no other process uses it.
        files: number of files; fewer if there are fewer key groups.
    """

    schema: OperatorSchema
    groups: tuple[Group, ...]
    now: Now
    deepest: bool
    folder: str
    files: int

    @property
    def rows(self) -> int:
        """Stored rows to merge."""
        return sum(group.rows for group in self.groups)

    @property
    def bytes(self) -> int:
        """Their bytes."""
        return sum(group.bytes for group in self.groups)


def groups_of(handle: StateHandle, files_of: FilesOf) -> list[Group]:
    """Returns the groups of a handle, oldest first; raises the errors of `files_of`."""
    groups = []
    for segment in handle:
        ordered = sorted(files_of(segment), key=lambda f: (f.checkpoint, -f.level, f.path))
        for (checkpoint, negative), found in groupby(ordered, key=lambda f: (f.checkpoint, -f.level)):
            groups.append(Group(segment=segment, level=-negative, checkpoint=checkpoint, files=tuple(found)))
    return groups


def is_top_light(schema: OperatorSchema, groups: Sequence[Group]) -> bool:
    """Whether it pays for a reader not to merge rows of the oldest group that have no newer rows.

    It does not if the newer groups exceed a fifth of it, if they have too many keys to send to every task, or if a key
    has several rows in one group (a process with maps, panes, sessions).
    """
    is_by_row = not schema.maps and (schema.window is None or schema.window.has_row_per_window)
    if len(groups) < 2 or groups[0].segment.after or not is_by_row or not _may_move(groups, 1):
        return False
    return sum(g.rows for g in groups[1:]) <= min(groups[0].rows // 5, BROADCAST_ROWS)


def amplification(groups: Sequence[Group]) -> float:
    """Returns the size of a handle, in rows or bytes, relative to that of its oldest group; 1 if that is all.

    What the state resolves to has at least the rows of the oldest group, unless keys were deleted or have expired.
    """
    if not groups or not groups[0].rows:
        return 1.0
    rows, size = sum(g.rows for g in groups), sum(g.bytes for g in groups)
    return max(rows / groups[0].rows, size / max(groups[0].bytes, 1))


def due(
    schema: OperatorSchema,
    handle: StateHandle,
    groups: Sequence[Group],
    policy: LevelPolicy | None = None,
    closed: Collection[Group] = (),
) -> Compaction | None:
    """Returns the compaction that is due for a handle, or None.

    Args:
        schema: the stored schema.
        handle: the handle in a completed manifest.
        groups: its groups, from `groups_of`.
        policy: the policy; by default the default one.
        closed: groups whose windows have all closed, so that no row of them is read.
    """
    start = _start(schema, groups, policy or LevelPolicy(), closed)
    if start is None:
        return None
    return Compaction.of(handle, groups, start)


def _start(
    schema: OperatorSchema, groups: Sequence[Group], policy: LevelPolicy, closed: Collection[Group]
) -> int | None:
    """Returns the index of the first group to merge; None if nothing is due."""
    if not groups or policy.runs == 0:
        return 0 if groups and _is_worth_it(schema, groups, policy) else None
    first_run = first_of_runs(groups)
    scattered = next((n for n, g in enumerate(groups) if policy.is_scattered(g)), len(groups))
    exceeded = policy.is_exceeded(schema, groups)
    swollen = exceeded and sum(g.bytes for g in groups[1:]) >= policy.small_bytes
    if len(groups) - first_run < policy.runs and scattered == len(groups) and not swollen:
        return None
    return 0 if exceeded else _along(groups, min(first_run, scattered), policy.ratio, closed)


def first_of_runs(groups: Sequence[Group]) -> int:
    """Returns the index of the first group behind which there are only runs."""
    first = len(groups)
    while first and groups[first - 1].level == 0:
        first -= 1
    return first


def _along(groups: Sequence[Group], start: int, ratio: float, closed: Collection[Group]) -> int:
    """Returns where the suffix begins after it has included older groups that are not much larger than itself."""
    while not _may_move(groups, start):
        start -= 1
    read = [0 if group in closed else group.rows for group in groups]
    rows = sum(read[start:])
    while start and _may_move(groups, start - 1) and read[start - 1] <= ratio * rows:
        start -= 1
        rows += read[start]
    return start


def _is_worth_it(schema: OperatorSchema, groups: Sequence[Group], policy: LevelPolicy) -> bool:
    """Whether rewriting everything changes anything: not for one compacted group in which nothing expires."""
    (first, *newer) = groups
    stale = first.level == 0 or schema.layout(first.segment.path) is not None or policy.is_scattered(first)
    return bool(newer) or stale or any(f.ttl is not None and f.ttl.clean_up_in_background for f in schema.fields)


def _may_move(groups: Sequence[Group], at: int) -> bool:
    """Whether the suffix may begin at a group: not between files with the same checkpoint."""
    return at == 0 or groups[at - 1].checkpoint < groups[at].checkpoint
