"""What a walk must come to: a plain dict per timeline and checkpoint. Standard library only, nothing of Tidemark."""

from copy import deepcopy
from dataclasses import dataclass, field


@dataclass
class Seen:
    """What one timeline knows: ends per partition, accounts, rows of the sink by position."""

    ends: dict[int, int]
    accounts: dict[str, tuple[int, int]] = field(default_factory=dict)
    rows: dict[tuple[int, int], tuple[str, int]] = field(default_factory=dict)

    def reaches(self, other: "Seen") -> bool:
        return all(self.ends[p] >= end for p, end in other.ends.items())


@dataclass
class TimelineState:
    """One timeline; `newest` is the checkpoint that it stands at, `own` how many it has made."""

    now: Seen
    newest: int | None = None
    own: int = 0
    pending: dict[int, int] | None = None
    closed: str | None = None


@dataclass
class TimelineOracle:
    """All of them."""

    records: dict[int, list[tuple[str, int]]]
    lines: dict[str, TimelineState] = field(default_factory=dict)
    live: str = "t1"
    numbered: int = 1
    snapshots: dict[int, Seen] = field(default_factory=dict)
    parents: dict[int, int | None] = field(default_factory=dict)
    savepoints: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    claimed: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lines["t1"] = TimelineState(Seen(dict.fromkeys(self.records, 0)))

    def planned(self, name: str, at_most: int | None) -> dict[int, int]:
        """Where the next checkpoint of a timeline ends."""
        line = self.lines[name]
        if line.pending is not None:
            return line.pending
        sizes = {p: len(found) for p, found in self.records.items()}
        return {p: n if at_most is None else min(n, line.now.ends[p] + at_most) for p, n in sizes.items()}

    def complete(self, name: str, number: int, ends: dict[int, int]) -> None:
        """A checkpoint: the records up to `ends`, by partition and offset; a row that is there stays."""
        line = self.lines[name]
        now = line.now
        for p in sorted(ends):
            for offset in range(now.ends[p], ends[p]):
                account, amount = self.records[p][offset]
                count, total = now.accounts.get(account, (0, 0))
                now.accounts[account] = (count + 1, total + amount)
                now.rows.setdefault((p, offset), (account, count + 1))
        now.ends = dict(ends)
        self.snapshots[number], self.parents[number] = deepcopy(now), line.newest
        line.newest, line.pending, line.own = number, None, line.own + 1

    def begin(self, name: str, checkpoint: int, *, keep_rows: bool) -> None:
        """A timeline from a checkpoint; `keep_rows` = the sink keeps what the live one has, if that is all it had."""
        now = deepcopy(self.snapshots[checkpoint])
        rows = self.lines[self.live].now.rows
        if keep_rows and now.rows.keys() <= rows.keys():
            now.rows = dict(rows)
        self.lines[name] = TimelineState(now, checkpoint)

    def close(self, successor: str) -> None:
        """The live timeline ends."""
        self.lines[self.live].closed, self.lines[self.live].pending = successor, None
        self.live = successor

    def end(self, name: str) -> None:
        """A timeline that never was live ends; a savepoint that it claimed pins again."""
        self.lines[name].closed = ""
        for savepoint in [s for s, by in self.claimed.items() if by == name]:
            del self.claimed[savepoint]
            self.savepoints[savepoint] = self.ended.pop(savepoint)

    def lineage(self, number: int | None) -> list[int]:
        """A checkpoint and those it came from, newest first."""
        found = []
        while number is not None:
            found.append(number)
            number = self.parents[number]
        return found

    def left(self, newest: int | None) -> list[int]:
        """Checkpoints of the live timeline that a timeline at `newest` does not come from, newest first."""
        own = set(self.lineage(newest))
        return [n for n in self.lineage(self.lines[self.live].newest) if n not in own]

    def lacking(self, name: str) -> list[int]:
        """Those that reach beyond a fork."""
        line = self.lines[name]
        return [n for n in self.left(line.newest) if not line.now.reaches(self.snapshots[n])]

    def needs(self, checkpoint: int) -> bool:
        """Whether a savepoint of a checkpoint is needed: by a timeline without checkpoints, or by an open plan."""
        return any(
            line.newest == checkpoint and line.closed is None and (line.own == 0 or line.pending is not None)
            for line in self.lines.values()
        )

    def ready(self) -> list[str]:
        """Timelines that are neither live nor closed."""
        return [name for name, line in self.lines.items() if name != self.live and line.closed is None]
