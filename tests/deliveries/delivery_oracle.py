"""What deliveries must come to: sets of offsets and counts of ids. Standard library only, nothing of Tidemark.

A record has a serial number, which is never given twice: whatever topic, partition and offset it has, it is known by
that. What an operator emits for it depends on the number alone.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

At = tuple[str, int, int]
"""Topic id, partition, offset."""
Row = tuple[int, int]
"""Serial number of the record, and which of the rows that are emitted for it."""
Key = tuple[str, int, int]
"""Name of a sink, and a row of it."""
COPIES = (1, 2, 0)
"""How many rows are emitted for a record, by its serial number."""


@dataclass(frozen=True)
class Record:
    """One record of the source; without an account it is a dead letter."""

    serial: int
    account: str | None

    @property
    def rows(self) -> frozenset[Row]:
        """What is emitted for it."""
        return frozenset((self.serial, n) for n in range(COPIES[self.serial % len(COPIES)] if self.account else 0))


@dataclass(frozen=True)
class Table:
    """A Delta sink: its rows, and the offsets for which nothing is added any more.

    `named` are the rows with a column for the account, each with its operator: an erasure finds them.
    """

    rows: frozenset[Row] = frozenset()
    covered: frozenset[At] = frozenset()
    named: frozenset[tuple[str, Row]] = frozenset()

    def without(self, uid: str, serials: Collection[int]) -> "Table":
        """The table without the rows of some records that an operator has emitted, as far as they have an account."""
        gone = {(by, row) for by, row in self.named if by == uid and row[0] in serials}
        return replace(self, rows=self.rows - {row for _, row in gone}, named=self.named - gone)


@dataclass(frozen=True)
class Made:
    """A completed checkpoint.

    `sinks` is per uid the sink's name and kind; `tables` are the Delta sinks after it; `erasures` is how many erasures
    its plan knew of; `named` is whether what it emits has a column for the account.
    """

    id: int
    timeline: str
    parent: int | None
    ranges: Mapping[tuple[str, int], tuple[int, int]]
    sinks: Mapping[str, tuple[str, str]]
    erasures: int
    named: bool = False
    tables: Mapping[str, Table] = field(default_factory=dict)
    released: bool = False

    @property
    def read(self) -> Iterable[At]:
        """The offsets of its ranges."""
        return ((t, p, offset) for (t, p), (start, end) in self.ranges.items() for offset in range(start, end))


@dataclass(frozen=True)
class Erased:
    """A key of an operator: the checkpoints that it was erased from, and the offsets that no plan counts any more."""

    uid: str
    account: str
    made: frozenset[int]
    at: frozenset[At]


@dataclass
class DeliveryTimeline:
    """A timeline: what it begins with, its newest checkpoint, and how it ended.

    `lost` are checkpoints that it came from and that retention had let go before it began.
    """

    begins: int | None
    lost: frozenset[int] = frozenset()
    tables: Mapping[str, Table] = field(default_factory=dict)
    newest: int | None = None
    closed: bool = False


@dataclass
class DeliveryOracle:
    """Everything that was emitted, sent, kept back and announced."""

    log: dict[At, Record] = field(default_factory=dict)
    made: dict[int, Made] = field(default_factory=dict)
    lines: dict[str, DeliveryTimeline] = field(default_factory=lambda: {"t1": DeliveryTimeline(None)})
    live: str = "t1"
    erased: list[Erased] = field(default_factory=list)
    arrived: dict[Key, Counter[str]] = field(default_factory=dict)
    """Per row of a sink the ids under which Kafka got it, and how often each; of completed checkpoints only."""
    withheld: set[tuple[int, Key]] = field(default_factory=set)
    """Rows of checkpoints that a promote was not asked to send."""
    lost: set[tuple[int, str]] = field(default_factory=set)
    """Checkpoints whose rows retention had let go before a timeline began there, with the sink: it was announced."""
    again: Counter[Key] = field(default_factory=Counter)
    """How often a row may be sent again under another id: as announced, or because a sender died with its record."""
    unrecorded: dict[tuple[int, str], set[Key]] = field(default_factory=dict)
    due: dict[str, set[int]] | None = None
    """Per sink the checkpoints of other timelines that the last restore has announced to send; None = no restore."""

    # Lines

    def line(self, number: int | None) -> list[int]:
        """A checkpoint and those it came from, newest first."""
        found = []
        while number is not None:
            found.append(number)
            number = self.made[number].parent
        return found

    def head(self, timeline: str) -> int | None:
        """The checkpoint that a timeline stands at."""
        line = self.lines[timeline]
        return line.begins if line.newest is None else line.newest

    def tables(self, timeline: str) -> Mapping[str, Table]:
        """The Delta sinks of a timeline as of now."""
        line = self.lines[timeline]
        return line.tables if line.newest is None else self.made[line.newest].tables

    def rows(self, uid: str, at: At, erasures: int) -> frozenset[Row]:
        """What an operator emits for a record."""
        record = self.log[at]
        blocked = any(e.uid == uid and e.account == record.account and at in e.at for e in self.erased[:erasures])
        return frozenset() if blocked else record.rows

    def complete(self, made: Made) -> None:
        """A checkpoint: it follows its parent without a gap, and Delta sinks get what they have not."""
        line = self.lines[made.timeline]
        assert made.parent == self.head(made.timeline)
        self._is_contiguous(made)
        before, tables = self.tables(made.timeline), {}
        for uid, (name, kind) in made.sinks.items():
            if kind == "delta":
                old = before.get(name, Table())
                added = (self.rows(uid, at, made.erasures) for at in made.read if at not in old.covered)
                new = frozenset(row for rows in added for row in rows)
                named = {(uid, row) for row in new if made.named}
                tables[name] = Table(old.rows | new, old.covered | set(made.read), old.named | named)
        self.made[made.id] = replace(made, tables=tables)
        line.newest = made.id

    def erase(self, erased: Erased) -> None:
        """A key of an operator: rows that it emitted with the account leave every sink, and are not sent any more."""
        self.erased.append(erased)
        serials = {r.serial for r in self.log.values() if r.account == erased.account}
        for number, made in self.made.items():
            left = {name: table.without(erased.uid, serials) for name, table in made.tables.items()}
            self.made[number] = replace(made, tables=left)
            kind = made.sinks.get(erased.uid, ("", "delta"))
            if made.named and kind[1] != "delta":
                rows = {key for key in self.keys(number, kind[0]) if key[1] in serials}
                self.withheld |= {(number, key) for key in rows if key not in self.arrived}
        for line in self.lines.values():
            line.tables = {name: table.without(erased.uid, serials) for name, table in line.tables.items()}

    def _is_contiguous(self, made: Made) -> None:
        parent = {} if made.parent is None else self.made[made.parent].ranges
        for (topic, p), (start, end) in made.ranges.items():
            assert start <= end
            assert start == parent.get((topic, p), (0, 0))[1], f"chk-{made.id} does not follow chk-{made.parent}"

    def begin(self, name: str, checkpoint: int, tables: Mapping[str, Table] | None = None) -> None:
        """A timeline, with the sinks of its checkpoint unless others are given."""
        lost = frozenset(n for n in self.line(checkpoint) if self.made[n].released)
        self.lines[name] = DeliveryTimeline(
            checkpoint, lost, self.made[checkpoint].tables if tables is None else tables
        )

    def kept(self, checkpoint: int) -> dict[str, Table]:
        """The Delta sinks of a restore that keeps what the live timeline has."""
        live, old = self.tables(self.live), self.made[checkpoint].tables
        found = {**live, **old}
        return found | {n: live[n] for n in old if n in live and live[n].covered >= old[n].covered}

    def close(self, successor: str) -> None:
        """The live timeline ends in favour of another one; who died behind a send may have sent for nothing."""
        for keys in self.unrecorded.values():
            self.again.update(keys)
        self.unrecorded.clear()
        self.lines[self.live].closed = True
        self.live = successor

    # Kafka

    def keys(self, number: int, name: str) -> set[Key]:
        """The rows of one checkpoint for a sink of Kafka."""
        made = self.made[number]
        uids = [uid for uid, (n, kind) in made.sinks.items() if n == name and kind != "delta"]
        return {(name, *row) for uid in uids for at in made.read for row in self.rows(uid, at, made.erasures)}

    def sends(self, number: int) -> list[str]:
        """Names of the sinks of Kafka that a checkpoint has."""
        return [name for name, kind in self.made[number].sinks.values() if kind != "delta"]

    def beside(self, fork: str) -> list[int]:
        """Checkpoints of a fork's line that are not on the live one."""
        live = set(self.line(self.head(self.live)))
        return [n for n in self.line(self.head(fork)) if n not in live]

    def promoted(self, fork: str, *, send: bool) -> None:
        """A fork becomes live; what it had emitted is not sent unless that was asked for."""
        if not send:
            self.withheld |= {
                (n, key)
                for n in self.beside(fork)
                for name in self.sends(n)
                for key in self.keys(n, name)
                if key not in self.arrived
            }
        lost = self.lines[fork].lost.intersection(self.beside(fork))
        self.lost |= {(n, name) for n in lost for name in self.sends(n)}
        self.close(fork)
        self.due = None

    def arrive(self, key: Key, checkpoint: int, ident: str) -> None:
        """Kafka got a row of a completed checkpoint, which an outbox had: the checkpoint must be on the live line."""
        made, on_live = self.made[checkpoint], self.line(self.head(self.live))
        assert checkpoint in on_live, f"{ident} is sent, but chk-{checkpoint} is on no live line"
        assert key in self.keys(checkpoint, key[0]), f"{ident} was never emitted"
        assert (checkpoint, key) not in self.withheld, f"{ident} is sent, which a promote withheld"
        if self.due is not None and made.timeline != self.live:
            assert checkpoint in self.due.get(key[0], ()), f"{ident} is sent, which the dry run did not announce"
        self.count(key, ident)

    def count(self, key: Key, ident: str) -> None:
        """One more of a row; under another id than before only where that was announced."""
        ids = self.arrived.setdefault(key, Counter())
        ids[ident] += 1
        assert len(ids) <= 1 + self.again[key], f"{key} was sent under {sorted(ids)}"

    def announce(self, name: str, offsets: Iterable[At]) -> None:
        """A dry run says that what was sent of these offsets is sent again."""
        rows = {row for at in offsets if at in self.log for row in self.log[at].rows}
        self.again.update(key for key in self.arrived if key[0] == name and key[1:] in rows)

    def owed(self) -> list[tuple[int, Key]]:
        """Rows of the live line that never arrived, though nothing was said of them."""
        return [
            (n, key)
            for n in self.line(self.head(self.live))
            for name in self.sends(n)
            if (n, name) not in self.lost
            for key in self.keys(n, name)
            if key not in self.arrived and (n, key) not in self.withheld
        ]

    # State

    def counts(self, number: int, uid: str) -> dict[str, tuple[int, ...]]:
        """Serial numbers per account of all that an operator applied up to a checkpoint; erased ones do not count."""
        found: dict[str, list[int]] = {}
        for n in self.line(number):
            for at in self.made[n].read:
                account = self.log[at].account
                gone = any((e.uid, e.account) == (uid, account) and (n in e.made or at in e.at) for e in self.erased)
                if account is not None and not gone:
                    found.setdefault(account, []).append(self.log[at].serial)
        return {account: tuple(sorted(serials)) for account, serials in found.items()}

    def letters(self, number: int) -> list[int]:
        """Serial numbers of the records without an account, up to a checkpoint."""
        read = (self.log[at] for n in self.line(number) for at in self.made[n].read)
        return sorted(r.serial for r in read if r.account is None)
