"""The expected results of a walk, as plain dicts per timeline and checkpoint, without any code of Tidemark."""

from copy import deepcopy
from dataclasses import dataclass, field


@dataclass
class Seen:
    """The contents of a timeline: end offset per partition, state per account, sink rows by position."""

    ends: dict[int, int]
    accounts: dict[str, tuple[int, int]] = field(default_factory=dict)
    rows: dict[tuple[int, int], tuple[str, int]] = field(default_factory=dict)

    def reaches(self, other: "Seen") -> bool:
        return all(self.ends[p] >= end for p, end in other.ends.items())


@dataclass
class TimelineState:
    """A timeline; `newest` is its newest checkpoint, which may be inherited, and `own` the number that it completed."""

    now: Seen
    newest: int | None = None
    own: int = 0
    pending: dict[int, int] | None = None
    closed: str | None = None


@dataclass
class TimelineOracle:
    """The expected state of all timelines, checkpoints and savepoints."""

    records: dict[int, list[tuple[str, int]]]
    lines: dict[str, TimelineState] = field(default_factory=dict)
    live: str = "t1"
    numbered: int = 1
    snapshots: dict[int, Seen] = field(default_factory=dict)
    parents: dict[int, int | None] = field(default_factory=dict)
    savepoints: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    claimed: dict[str, str] = field(default_factory=dict)
    sent_at: dict[int, list[int]] = field(default_factory=dict)

    def send(self, p: int, account: str, amount: int) -> int:
        """Adds a record to a partition; returns its timestamp, which no other record has."""
        at = sum(map(len, self.records.values()))
        self.records[p].append((account, amount))
        self.sent_at[p].append(at)
        return at

    def __post_init__(self) -> None:
        self.sent_at = {p: [] for p in self.records}
        self.lines["t1"] = TimelineState(Seen(dict.fromkeys(self.records, 0)))

    def planned(self, name: str, at_most: int | None) -> dict[int, int]:
        """The end offsets of the next checkpoint of a timeline."""
        line = self.lines[name]
        if line.pending is not None:
            return line.pending
        left = sorted((at, p) for p, found in self.sent_at.items() for at in found[line.now.ends[p] :])
        oldest = [p for _, p in left[:at_most]]
        return {p: line.now.ends[p] + oldest.count(p) for p in self.records}

    def complete(self, name: str, number: int, ends: dict[int, int]) -> None:
        """Completes a checkpoint that reads up to `ends`, in order of partition and offset. Existing sink rows stay."""
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
        """Starts a timeline at a checkpoint. `keep_rows` keeps the live sink's rows if they include its own."""
        now = deepcopy(self.snapshots[checkpoint])
        rows = self.lines[self.live].now.rows
        if keep_rows and now.rows.keys() <= rows.keys():
            now.rows = dict(rows)
        self.lines[name] = TimelineState(now, checkpoint)

    def close(self, successor: str) -> None:
        """Closes the live timeline; `successor` becomes the live one."""
        self.lines[self.live].closed, self.lines[self.live].pending = successor, None
        self.live = successor

    def end(self, name: str) -> None:
        """Closes a timeline that was never live. Savepoints that it claimed pin their checkpoints again."""
        self.lines[name].closed = ""
        for savepoint in [s for s, by in self.claimed.items() if by == name]:
            del self.claimed[savepoint]
            self.savepoints[savepoint] = self.ended.pop(savepoint)

    def lineage(self, number: int | None) -> list[int]:
        """A checkpoint and its ancestors, newest first."""
        found = []
        while number is not None:
            found.append(number)
            number = self.parents[number]
        return found

    def left(self, newest: int | None) -> list[int]:
        """Checkpoints of the live timeline that are not ancestors of `newest`, newest first."""
        own = set(self.lineage(newest))
        return [n for n in self.lineage(self.lines[self.live].newest) if n not in own]

    def lacking(self, name: str) -> list[int]:
        """Checkpoints in `left` that have read further than the timeline."""
        line = self.lines[name]
        return [n for n in self.left(line.newest) if not line.now.reaches(self.snapshots[n])]

    def needs(self, checkpoint: int) -> bool:
        """Whether an open timeline needs savepoints of a checkpoint: it starts there, or has a plan that does."""
        return any(
            line.newest == checkpoint and line.closed is None and (line.own == 0 or line.pending is not None)
            for line in self.lines.values()
        )

    def ready(self) -> list[str]:
        """The timelines that are neither live nor closed."""
        return [name for name, line in self.lines.items() if name != self.live and line.closed is None]
