"""One operator's tables, filled row by row, and a plain dict of what they must say: for readers of state.

Amounts are added to accounts, accounts are closed (tombstones) and opened again; branches share what lies below them.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.disk import DiskPipeline, write_file
from tests.support.memory import Unfenced
from tidemark import Fold, KafkaSource, Pipeline, state
from tidemark.coordinator.plans.inputs import adopt
from tidemark.model.checkpoint.commits import CommitRequest
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.segments import StateHandle, WrittenFile
from tidemark.model.checkpoint.store_objects import CompactionRecord
from tidemark.model.schema.key_groups import key_group
from tidemark.model.schema.operator_schema import OperatorSchema, run_columns
from tidemark.model.state.compaction import LevelPolicy, due, groups_of
from tidemark.readers.state_reader import files_of
from tidemark.tables.delta_tables import arrow_schema
from tidemark.testing.twin.merge import compact_rows

UID = "accounts"
Amounts = Mapping[tuple[str, int], int | None]
"""What one checkpoint does: an amount to add to an account, or None to close it."""
Book = dict[tuple[str, int], tuple[int, int]]
"""Per account: the total, and the checkpoint that changed it last."""


@dataclass(frozen=True)
class Entry:
    """One record."""

    bank: str
    number: int
    amount: int
    at: datetime


class Account(state.Keyed):
    """What is remembered: a sum, and columns that make rows as wide as real ones."""

    total: int | None = state.sum("amount")
    least: int | None = state.min("amount")
    most: int | None = state.max("amount")
    mean: float | None = state.mean("amount")
    last: int | None = state.latest("amount")


PIPELINE = Pipeline(
    name="ledger",
    source=KafkaSource("entries", Entry, event_time="at"),
    operators=[Fold(UID, key_by=("bank", "number"), state=Account)],
)


@dataclass
class Ledger:
    """A branch of checkpoints over one warehouse."""

    root: Path
    template: Checkpoint
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    timeline: str = "t1"
    handle: StateHandle = field(default_factory=StateHandle)
    book: Book = field(default_factory=dict)
    made: dict[int, tuple[Checkpoint, Book]] = field(default_factory=dict)
    row_group: int = 16
    parent: int | None = None

    @classmethod
    def at(cls, root: Path, **options: Any) -> "Ledger":
        """An empty one."""
        return cls(root, DiskPipeline(root, PIPELINE, "entries").checkpoint(), **options)

    @property
    def schema(self) -> OperatorSchema:
        """With tombstones: the pipeline's own never closes an account."""
        return replace(PIPELINE.schemas()[UID], deletes=True)

    def branch(self, timeline: str) -> "Ledger":
        """A branch that starts from what is here now."""
        return replace(self, timeline=timeline, book=dict(self.book), made=dict(self.made))

    def checkpoint(self, amounts: Amounts) -> Checkpoint:
        """One checkpoint: a run with a row per account."""
        n = next(self.ids)
        rows = [self._row(n, key, amount) for key, amount in amounts.items()]
        if rows:
            self._commit("runs", n, 0, rows)
        for key, amount in amounts.items():
            if amount is None:
                self.book.pop(key, None)
            else:
                self.book[key] = (self.book.get(key, (0, 0))[0] + amount, n)
        done = self._completed(n)
        self.made[n] = (done, dict(self.book))
        self.parent = n
        return done

    def compact(self, ratio: int) -> None:
        """Compacts what is here, and adopts it: 0 merges the runs, a large ratio everything."""
        files: dict[Any, Any] = {segment: [] for segment in self.handle}
        for segment, live in files_of(str(self.root), self.handle):
            files[segment].append(live)
        policy = LevelPolicy(runs=1, ratio=ratio, space=math.inf)
        wanted = due(self.schema, self.handle, groups_of(self.handle, files.__getitem__), policy)
        if wanted is None:
            return
        paths = [self.root / g.segment.path / f.path for g in wanted.merged for f in g.files]
        stored = pa.concat_tables([pq.read_table(path, partitioning=None) for path in paths]).to_pylist()
        rows = compact_rows(self.schema, stored, self.template.now, deepest=wanted.is_deepest)
        base = f"ledger/state/{UID}/{self.timeline}-1/base"
        name = f"{base}/{next(self.ids)}"
        done = DiskPipeline(self.root, PIPELINE, "entries").tables.commit(
            self._request(base, wanted.through, wanted.level, self._file(name, rows))(
                parent=wanted.parent(base), after=wanted.after(base), drop=wanted.drop(base)
            ),
            Unfenced(),
        )
        record = CompactionRecord(
            uid=UID, job="j", checkpoint=wanted.through, timeline=self.timeline, input=wanted.input,
            output=wanted.output(done.segment), commits=(done.commit,), write_id="w",
        )  # fmt: skip
        adopted = adopt(self.handle, record)
        assert adopted is not None
        self.handle = adopted

    def _row(self, n: int, key: tuple[str, int], amount: int | None) -> dict[str, Any]:
        row: dict[str, Any] = {name: None for name, _ in run_columns(self.schema)}
        at = {"at": datetime(2024, 1, 1, tzinfo=UTC), "topic": "entries", "partition": 0, "offset": n, "value": amount}
        held = {"total": amount, "least": amount, "most": amount, "mean__sum": amount, "last": at}
        row |= {"mean__count": 0} if amount is None else {**held, "mean__count": 1}
        row |= {"bank": key[0], "number": key[1], "_kind": "tombstone" if amount is None else "operand"}
        return row | {"_changed": n, "_last_at": n, "_key_group": key_group(key, self.schema.key_groups)}

    def _file(self, folder: str, rows: list[dict[str, Any]]) -> WrittenFile:
        rows.sort(key=lambda r: (r["_key_group"], r["bank"], r["number"]))
        table = pa.Table.from_pylist(rows, schema=arrow_schema(run_columns(self.schema)))
        return write_file(str(self.root), folder, table, self.row_group)

    def _commit(self, kind: str, n: int, level: int, rows: list[dict[str, Any]]) -> None:
        table = f"ledger/state/{UID}/{self.timeline}-1/{kind}"
        parent = self.handle.segment_of(table)
        request = self._request(table, n, level, self._file(f"{table}/{n}.1", rows))
        after = parent.after if parent else self.handle.through
        done = DiskPipeline(self.root, PIPELINE, "entries").tables.commit(
            request(parent=parent, after=after, drop=()), Unfenced()
        )
        older = tuple(s for s in self.handle if s.path != table)
        self.handle = StateHandle((*older, done.segment))

    def _request(self, table: str, n: int, level: int, file: WrittenFile) -> Any:
        def made(**rest: Any) -> CommitRequest:
            return CommitRequest(
                table=table, files=(file,), rows=file.rows, level=level, checkpoint=n,
                schema=run_columns(self.schema), write_id=f"{table} {file.path}", metadata={}, app=(table, n), **rest,
            )  # fmt: skip

        return made

    def _completed(self, n: int) -> Checkpoint:
        t = self.template
        slot = replace(t.plan.slot, timeline=self.timeline, sequence=n)
        plan = replace(t.plan, id=n, parent=self.parent, slot=slot, schemas={UID: self.schema})
        acks = tuple(replace(a, handle=self.handle) for a in t.sealed.acks)
        return replace(t, plan=plan, sealed=replace(t.sealed, acks=acks))
