"""Chooses the files of a sink or of dead letters to merge, from its handle only (adr/0041).

Rows are only added, so a merge writes every row again, except expired ones. A file that is large enough is never
written again. Of the other groups a merge takes a suffix, including all runs. It includes an older group that has at
most `ratio` times the rows of the newer ones, so a row is rewritten a number of times that grows with the logarithm of
the rows, and so does the number of groups that are left.

Where rows expire, a group covers at most a share of the checkpoints that are kept. Groups that have expired as a whole
are dropped unread.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.state.compaction import Compaction, Group, first_of_runs


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPolicy:
    """Which groups are merged, and when.

    Attributes:
        runs: number of runs that make a compaction due; 0 merges everything for which there is a reason.
        ratio: an older group is included if it has at most this many times the rows of all newer ones.
        file_bytes: target size of a file; a group whose files have half of it on average stays as it is.
        share: where rows expire, a merge covers at most the kept checkpoints divided by this.
    """

    runs: int = 8
    ratio: float = 2.0
    file_bytes: int = 128 * 2**20
    share: int = 4

    @classmethod
    def everything(cls) -> "RowPolicy":
        """Merges all files that are small, due or not."""
        return cls(runs=0, ratio=float("inf"))

    def is_large(self, group: Group) -> bool:
        """Whether the files of a group are large enough to stay."""
        return group.level > 0 and 2 * group.bytes >= len(group.files) * self.file_bytes

    def rows_per_file(self, groups: Sequence[Group]) -> int:
        """Returns how many rows of some groups make a file of the target size."""
        rows, size = sum(g.rows for g in groups), sum(g.bytes for g in groups)
        return max(1, rows * self.file_bytes // max(size, 1))


def due_rows(handle: StateHandle, groups: Sequence[Group], policy: RowPolicy | None = None) -> Compaction | None:
    """Returns the compaction that is due for a sink or for dead letters, or None.

    Args:
        handle: the handle in a completed manifest.
        groups: its groups, from `groups_of`.
        policy: the policy; by default the default one.
    """
    policy = policy or RowPolicy()
    first_run = first_of_runs(groups)
    runs, expired = len(groups) - first_run, sum(g.checkpoint <= handle.expired for g in groups)
    # Runs are merged even if they have expired: a result has no segment of the table that checkpoints append to.
    start = _along(handle, groups, first_run, policy)
    is_due = runs >= policy.runs if policy.runs else runs or len(groups) - start > 1 or expired
    if not groups or not is_due:
        return None
    start = min(start, len(groups) - 1)
    return Compaction.of(handle, groups, start, dropped=min(expired, start))


def _along(handle: StateHandle, groups: Sequence[Group], start: int, policy: RowPolicy) -> int:
    """Returns where the suffix begins after it has included older groups."""
    newest = groups[-1].checkpoint if groups else 0
    longest = (newest - handle.expired) // policy.share if handle.expired else newest
    rows = sum(g.rows for g in groups[start:])
    while start and groups[start - 1].checkpoint > handle.expired:
        older = groups[start - 1]
        after = groups[start - 2].checkpoint if start > 1 else older.segment.after
        if policy.is_large(older) or older.rows > policy.ratio * rows or newest - after > longest:
            break
        start, rows = start - 1, rows + older.rows
    return start
