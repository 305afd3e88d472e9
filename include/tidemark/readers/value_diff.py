"""Compares an operator's state at two checkpoints by value, in bounded memory: for a process that serves others, too.

A diff (`state_diff`) counts a key as updated if a checkpoint has written it. Here both values of each such key are read
and compared field by field, in portions, in the order of the files.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tidemark.errors import UsageError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.readers.checkpoint_reader import read_checkpoint
from tidemark.readers.diff_candidates import Search, Side
from tidemark.readers.duckdb_session import QueryRunner, literal, open_query_runner, translate_duckdb_errors
from tidemark.readers.field_changes import FieldChange, difference_condition, measure_field
from tidemark.readers.state_diff import Comparison, compare_states, counts, first, to_rows
from tidemark.readers.state_reader import files_of
from tidemark.readers.stored_rows import StoredRows
from tidemark.storage.local_store import Root

SHARED: Mapping[str, str] = {"threads": "2", "memory_limit": "512MB"}
"""DuckDB's settings in a process that serves others."""
Values = Callable[[pa.Table], tuple[pa.Table, pa.Table]]
"""The resolved rows of some keys before and after; it may return those of other keys, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffBounds:
    """Limits of a comparison.

    Attributes:
        shown: the most keys to return with their values.
        stored: the most stored rows that may have to be held in memory; a comparison of more is refused.
        portion: keys whose values are in memory at a time.
        is_over: whether the time is over; asked before each portion.
    """

    shown: int = 100
    stored: int = 1_000_000
    portion: int = 20_000
    is_over: Callable[[], bool] = lambda: False

    def refuse_many(self, uid: str, rows: int, hint: str) -> None:
        """Refuses to compare too many rows.

        Args:
            uid: the operator or output.
            rows: the rows that would have to be held.
            hint: the next step.

        Raises:
            UsageError: they are too many.
        """
        if rows > self.stored:
            raise UsageError(
                f"{uid}: {rows:,} rows may differ; at most {self.stored:,} are compared here",
                safe="nothing was changed.",
                next=hint,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownKey:
    """A key that differs, with its fields on both sides.

    Attributes:
        key: values of the key columns.
        change: `inserted`, `changed` or `deleted`.
        before: values of the fields on the earlier side; None if the key does not live there.
        after: values of the fields on the later side; None if the key does not live there.
        differing: names of the fields that differ, of a changed key.
    """

    key: dict[str, Any]
    change: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    differing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueDiff:
    """The difference in one operator's state, by value.

    Attributes:
        inserted: keys only on the later side.
        deleted: keys only on the earlier side.
        changed: keys in which a field of both sides differs.
        equal: keys that were written since the common ancestor and have the same values.
        unread: keys that were written and whose values were not compared, because the time was over.
        fields: the fields that differ, in order of their declaration.
        shown: the first keys that differ, in order of keys, of those that were compared.
    """

    inserted: int = 0
    deleted: int = 0
    changed: int = 0
    equal: int = 0
    unread: int = 0
    fields: tuple[FieldChange, ...] = ()
    shown: tuple[ShownKey, ...] = ()


def diff_by_value(compared: Comparison, bounds: DiffBounds) -> ValueDiff:
    """Compares an operator's state at two checkpoints, which have the same key columns.

    Raises:
        UsageError: too many rows would have to be held; or only Spark can read the state.
        StoreError: a version or a file of a handle is missing.
        StateOverflowError: a key's merged state does not fit; the message names the key.
    """
    sides = f"--from {compared.before.plan.name} --to {compared.after.plan.name}"
    hint = f"tidemark state diff {compared.before.plan.pipeline} {compared.uid} {sides} --values"
    bounds.refuse_many(compared.uid, _rows_to_hold(compared), hint)
    with open_query_runner(SHARED) as ask, translate_duckdb_errors(f"{compared.uid} cannot be compared"):
        if compared.resolves_both:
            return _diff_resolved(compared, ask, bounds)
        return _diff_candidates(compared, ask, bounds)


def list_one_side(warehouse: Root, at: Checkpoint, uid: str, bounds: DiffBounds) -> ValueDiff:
    """Returns all keys of an operator as inserted ones: the earlier checkpoint has no such operator.

    Raises:
        UsageError, StoreError, StateOverflowError: as `diff_by_value`.
    """
    export = f"tidemark state export {at.plan.pipeline} {uid} --checkpoint {at.plan.name} --to state.parquet"
    bounds.refuse_many(uid, at.handles[uid].rows, export)
    with open_query_runner(SHARED) as ask, translate_duckdb_errors(f"{uid} cannot be read"):
        found = ask("SELECT *, 'inserted' AS _change FROM rows", rows=read_checkpoint(warehouse, at, uid))
        shown = first(ask, found, at.plan.schemas[uid], bounds.shown)
        rows = shown.drop_columns(["_change"])
        keys = to_rows(ask, at.plan.schemas[uid], shown, (rows.slice(0, 0), rows))
        return ValueDiff(inserted=found.num_rows, shown=_shown(ask, keys, {}))


def as_deleted(found: ValueDiff) -> ValueDiff:
    """Returns the keys of `list_one_side` as deleted ones: the later checkpoint has no such operator."""
    shown = (replace(key, change="deleted", before=key.after, after=None) for key in found.shown)
    return replace(found, inserted=0, deleted=found.inserted, shown=tuple(shown))


def _rows_to_hold(compared: Comparison) -> int:
    """Returns an upper bound of the stored rows that a comparison holds, which the lists of files are enough for."""
    handles = [at.handles[compared.uid] for at in (compared.before, compared.after)]
    whole, newer = sum(handle.rows for handle in handles), 0
    if compared.resolves_both:
        return whole
    for handle in handles:
        files = [live for _, live in files_of(compared.warehouse, handle)]
        later = [live for live in files if live.checkpoint > compared.ancestor]
        if compared.ancestor and len(later) == len(files) > 0:
            # A compaction may have dropped tombstones, so the keys of both sides are compared.
            return whole
        newer += sum(live.file.rows for live in later)
    return newer


def _diff_candidates(compared: Comparison, ask: QueryRunner, bounds: DiffBounds) -> ValueDiff:
    stored = StoredRows(compared.warehouse, compared.schema, ask)
    sides = [Side.of(stored, at, compared.uid, compared.ancestor) for at in (compared.before, compared.after)]
    search = Search(stored, *sides)
    tally = _Tally(compared, ask, search.changes(all_hits=True, inserts=True), search.values, bounds)
    updated = search.sort_as_stored(tally.updated)
    for start in range(0, updated.num_rows, bounds.portion):
        if bounds.is_over():
            return replace(tally.result(), unread=updated.num_rows - start)
        tally.compare(updated.slice(start, bounds.portion))
    return tally.result()


def _diff_resolved(compared: Comparison, ask: QueryRunner, bounds: DiffBounds) -> ValueDiff:
    before, after = (read_checkpoint(compared.warehouse, at, compared.uid) for at in (compared.before, compared.after))
    changes = compare_states(ask, compared.schema, before, after)
    tally = _Tally(compared, ask, changes, lambda _: (before, after), bounds)
    tally.compare(tally.updated)
    return tally.result()


class _Tally:
    """Counts what differs, portion by portion, and keeps the first keys.

    Args:
        compared: the two checkpoints.
        ask: runs queries over Arrow tables.
        changes: key columns and `_change` of all keys that may differ.
        values: reads both sides of some of them.
        bounds: limits.
    """

    def __init__(
        self, compared: Comparison, ask: QueryRunner, changes: pa.Table, values: Values, bounds: DiffBounds
    ) -> None:
        self._ask, self._schema, self._values, self._bounds = ask, compared.schema, values, bounds
        older = {f.name for f in compared.before.plan.schemas[compared.uid].fields}
        self._is_inexact = {f.name: not f.exact for f in self._schema.fields if f.name in older}
        self._counts = counts(ask, changes)
        self._fields: dict[str, FieldChange] = {}
        self._changed = self._equal = 0
        self.updated = ask("FROM changes WHERE _change = 'updated'", changes=changes)
        others = ask("FROM changes WHERE _change <> 'updated'", changes=changes)
        self._kept = self._rows(first(ask, others, self._schema, bounds.shown))

    def compare(self, keys: pa.Table) -> None:
        """Compares the values of updated keys."""
        rows = self._rows(keys)
        conditions = self._conditions(rows)
        for name, is_inexact in self._is_inexact.items():
            found = measure_field(self._ask, rows, name, is_inexact)
            if found.keys:
                self._fields[name] = _added(self._fields.get(name), found)
        differs = " OR ".join(conditions.values()) or "false"
        changed = self._ask(f"SELECT * REPLACE ('changed' AS change) FROM rows WHERE {differs}", rows=rows)
        self._changed += changed.num_rows
        self._equal += rows.num_rows - changed.num_rows
        both = f"FROM (FROM kept UNION ALL FROM changed) ORDER BY key LIMIT {self._bounds.shown}"
        self._kept = self._ask(both, kept=self._kept, changed=changed)

    def result(self) -> ValueDiff:
        """Returns the counts so far, and the first keys."""
        return ValueDiff(
            inserted=self._counts.get("inserted", 0),
            deleted=self._counts.get("deleted", 0),
            changed=self._changed,
            equal=self._equal,
            fields=tuple(self._fields[name] for name in self._is_inexact if name in self._fields),
            shown=_shown(self._ask, self._kept, self._conditions(self._kept)),
        )

    def _rows(self, keys: pa.Table) -> pa.Table:
        return to_rows(self._ask, self._schema, keys, self._values(keys))

    def _conditions(self, rows: pa.Table) -> dict[str, str]:
        return {name: difference_condition(rows, name, inexact) for name, inexact in self._is_inexact.items()}


def _added(one: FieldChange | None, other: FieldChange) -> FieldChange:
    """Returns the change of a field in two portions."""
    if one is None:
        return other
    sums: list[Any] = [one.sum, other.sum]
    largest: list[Any] = [one.largest, other.largest]
    return replace(
        one,
        keys=one.keys + other.keys,
        sum=None if None in sums else sum(sums),
        largest=None if None in largest else max(largest),
    )


def _shown(ask: QueryRunner, rows: pa.Table, conditions: Mapping[str, str]) -> tuple[ShownKey, ...]:
    flags = ", ".join(f"{literal(name)}: {condition}" for name, condition in conditions.items())
    differing = f"CASE WHEN change = 'changed' THEN {{{flags}}} END" if flags else "NULL"
    found = ask(f"SELECT *, {differing} AS differing FROM rows ORDER BY key", rows=rows)
    return tuple(
        ShownKey(
            key=row["key"],
            change=row["change"],
            before=row["before"],
            after=row["after"],
            differing=tuple(name for name, differs in (row["differing"] or {}).items() if differs),
        )
        for row in found.to_pylist(maps_as_pydicts="strict")
    )
