"""A mirror under random publications, maintenance by deltalake, and overtaken publishers; the oracle is a dict."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from uuid import UUID

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from tidemark.errors import TargetChangedError
from tidemark.model.retention.publication_records import Replaceable
from tidemark.ports.publishing import Difference, Published, StatePart, Step
from tidemark.publications.delta_mirror import DeltaMirrorTable
from tidemark.publications.target_folder import TargetFolder
from tidemark.tables.delta_tables import arrow_schema

COLUMNS = (("bank", "STRING"), ("n", "BIGINT"), ("balance", "DECIMAL(18,2)"), ("tags", "ARRAY<STRING>"))
KEYS = ("bank", "n")
Key = tuple[str, int]
State = dict[Key, int]


@dataclass
class MirrorWalk:
    """One table, and the state at each of its versions.

    Attributes:
        path: the table.
        chance: decides everything.
        deletion_vectors: as of `DeltaMirrorTable`.
        states: the expected state by version.
    """

    path: Path
    chance: random.Random
    deletion_vectors: bool = True
    state: State = field(default_factory=dict)
    states: dict[int, State] = field(default_factory=dict)
    number: int = 0
    lineage: str = ""
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def mirror(self) -> DeltaMirrorTable:
        """A publisher of its own."""
        return DeltaMirrorTable(
            folder=TargetFolder(str(self.path)),
            application="tidemark/bank/balances",
            keys=KEYS,
            columns=COLUMNS,
            now_ms=lambda: 1_700_000_000_000 + next(self._numbers),
            make_id=lambda: UUID(int=self.chance.getrandbits(128), version=4),
            deletion_vectors=self.deletion_vectors,
        )

    def rebuild(self, replaces: Replaceable = Replaceable.UNTOUCHED) -> None:
        """Publishes the whole state."""
        before, self.lineage = self.lineage, f"lineage-{next(self._numbers)}"
        step, rows = self._step(self.number + 1, self.number, before), to_rows(self.state)
        parts = [StatePart(name="0", read=lambda: [rows.slice(0, 3), rows.slice(3)])]
        applied = self.mirror.replace(step, parts, replaces)
        self.done(applied)

    def publish(self) -> None:
        """Publishes a random change."""
        step, difference, state = self.change()
        self.state = state
        self.done(self.mirror.apply(step, lambda: difference))

    def change(self) -> tuple[Step, Difference, State]:
        """Returns a random change of the state, unpublished."""
        state, keys = dict(self.state), [(b, n) for b in "abc" for n in range(12)]
        touched = self.chance.sample(keys, self.chance.randrange(0, 9))
        written = {key for key in touched if self.chance.random() < 0.7}
        gone = [key for key in touched if key not in written and key in state]
        erased = self.chance.sample(keys, self.chance.choice((0, 0, 0, 2)))
        state |= {key: self.chance.randrange(1000) for key in written}
        for key in (*gone, *(k for k in erased if k not in written)):
            state.pop(key, None)
        upserts = {key: state[key] for key in (*written, *(k for k in erased if k in state))}
        difference = Difference(upserts=to_rows(upserts), deletes=to_keys(gone), erased=to_keys(erased))
        return self._step(self.number + 1, self.number), difference, state

    def lose(self) -> None:
        """A publisher computes a change, and is overtaken by another publication of the same number."""
        step, difference, _ = self.change()
        self.publish()
        before = self.version
        self.mirror.apply(step, lambda: difference)
        assert self.version == before, "its publication had been done"

    def wake(self) -> None:
        """A publisher computes a change, and two publications come first."""
        step, difference, _ = self.change()
        self.publish()
        self.publish()
        before = self.version
        self.mirror.apply(step, lambda: difference)
        assert self.version == before

    def maintain(self) -> None:
        """Others compact, clean up or checkpoint the table."""
        table, before = DeltaTable(str(self.path)), self.version
        what = self.chance.choice(("compact", "vacuum", "checkpoint", "z-order"))
        if what == "compact":
            table.optimize.compact()
        elif what == "z-order":
            table.optimize.z_order(["n"])
        elif what == "vacuum":
            # It deletes all files that the newest version does not name, as after a week.
            full = self.chance.random() < 0.5
            table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=full)
            self.states.clear()
        else:
            table.create_checkpoint()
        self.states |= {version: self.state for version in range(before, self.version + 1)}

    @property
    def version(self) -> int:
        """The newest version."""
        return DeltaTable(str(self.path)).version()

    def check(self) -> None:
        """Every version has the state of its publication."""
        for version, state in self.states.items():
            assert read(self.path, version) == state, f"version {version}"

    def _step(self, number: int, previous: int, lineage: str | None = None) -> Step:
        return Step(
            number=number,
            previous=previous,
            lineage=self.lineage,
            previous_lineage=self.lineage if lineage is None else lineage,
            checkpoint=100 + number,
            timeline="t1",
        )

    def done(self, applied: Published) -> None:
        """Records a publication of the current state."""
        self.number += 1
        assert int(applied.version) == self.version
        self.states[self.version] = self.state


def read(path: Path, version: int) -> State:
    """The state at a version, as deltalake's query engine reads it."""
    table = DeltaTable(str(path), version=version)
    rows = pa.table(QueryBuilder().register("t", table).execute("SELECT bank, n, balance, tags FROM t").read_all())
    found = rows.to_pylist()
    assert len({(row["bank"], row["n"]) for row in found}) == len(found), "one row for each key"
    assert all(row["tags"] == [str(row["n"])] for row in found)
    return {(row["bank"], row["n"]): int(row["balance"]) for row in found}


def to_rows(state: State) -> pa.Table:
    """Rows of a state."""
    rows = [{"bank": b, "n": n, "balance": value, "tags": [str(n)]} for (b, n), value in state.items()]
    return pa.Table.from_pylist(rows, schema=arrow_schema(COLUMNS))


def to_keys(keys: list[Key]) -> pa.Table:
    """Key columns."""
    return pa.Table.from_pylist([{"bank": b, "n": n} for b, n in keys], schema=arrow_schema(COLUMNS[:2]))


__all__ = ["MirrorWalk", "TargetChangedError", "read", "to_keys", "to_rows"]
