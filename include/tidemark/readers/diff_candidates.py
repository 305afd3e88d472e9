"""Candidates of a diff, and which of them live on either side; decided by stored rows, values are read on request.

A side decides by its newer rows whether a key lives that it has changed itself. Of all other candidates it has to find
the rows: on the earlier side these are nearly all, on the later one those that only the earlier side has changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.readers.checkpoint_reader import resolve_rows
from tidemark.readers.stored_rows import StoredRows
from tidemark.tables.row_groups import NumberedFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two checkpoints.

    Attributes:
        checkpoint: the checkpoint.
        uid: the operator.
        files: files of its handle.
        changed: keys that it, or a checkpoint between it and the ancestor, changed, and whether they live.
        rewritten: whether all its files are newer than the ancestor, so that keys may have vanished without a trace.
    """

    checkpoint: Checkpoint
    uid: str
    files: Sequence[NumberedFile]
    changed: pa.Table
    rewritten: bool

    @classmethod
    def of(cls, stored: StoredRows, checkpoint: Checkpoint, uid: str, ancestor: int) -> "Side":
        """Returns the side of a checkpoint; reads the changes since the ancestor."""
        files = stored.files(checkpoint.handles[uid])
        return cls(
            checkpoint=checkpoint,
            uid=uid,
            files=files,
            changed=stored.changed_since(ancestor, files),
            # Without an ancestor, every row of both sides is a candidate.
            rewritten=ancestor > 0 and all(f.live.checkpoint > ancestor for f in files),
        )

    @property
    def numbers(self) -> str:
        """The numbers of its files as an SQL list."""
        return f"({', '.join(['-1', *(str(f.number) for f in self.files)])})"


class Search:
    """The search over both sides."""

    def __init__(self, stored: StoredRows, before: Side, after: Side) -> None:
        self._stored = stored
        self._before = before
        self._after = after
        self._hits: pa.Table | None = None
        self._pool: pa.Table | None = None

    def changes(self, *, all_hits: bool, inserts: bool) -> pa.Table:
        """Returns key columns and `_change` of every key that changed.

        Args:
            all_hits: find the rows of all candidates on both sides at once; needed before `values`.
            inserts: distinguish `inserted` from `updated` keys, and leave out those that live on neither side, which
                reads the keys of the earlier state; otherwise keys are `upserted` or `deleted`.
        """
        # Keys without a row on the other side, if a compaction that dropped tombstones may be the reason.
        lost = self._only(self._before, self._after)
        new = self._only(self._after, self._before)
        pool = self._pool = self._union(self._before.changed, self._after.changed, lost, new)
        if all_hits:
            files = {f.number: f for f in (*self._before.files, *self._after.files)}
            self._hits = self._stored.hits(pool, files.values())
        now = self._living(self._after, pool, lost)
        if not inserts:
            told = "SELECT {keys}, if(n._here, 'upserted', 'deleted') AS _change FROM pool LEFT JOIN n USING ({keys})"
            return self._stored.ask(told, pool=pool, n=now)
        change = "CASE WHEN t._here IS NULL THEN 'inserted' WHEN n._here THEN 'updated' ELSE 'deleted' END AS _change"
        joined = "pool LEFT JOIN n USING ({keys}) LEFT JOIN t USING ({keys})"
        told = f"SELECT {{keys}}, {change} FROM {joined} WHERE n._here OR t._here"
        return self._stored.ask(told, pool=pool, n=now, t=self._living(self._before, pool, new))

    def values(self, shown: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Returns resolved rows of some candidates, before and after."""
        assert self._hits is not None  # noqa: S101  (asked for beforehand)
        hits = self._stored.ask("FROM hits SEMI JOIN shown USING ({keys})", hits=self._hits, shown=shown)
        rows = self._stored.rows(shown, hits)
        return self._resolved(self._before, rows), self._resolved(self._after, rows)

    def sort_as_stored(self, changes: pa.Table) -> pa.Table:
        """Returns some of the keys that `changes` has returned, in the order in which files hold them."""
        assert self._pool is not None  # noqa: S101  (asked for beforehand)
        placed = "FROM changes JOIN pool USING ({keys}) ORDER BY _key_group, {keys}"
        return self._stored.ask(f"SELECT {{keys}}, _change {placed}", changes=changes, pool=self._pool)

    def values_after(self, wanted: pa.Table) -> pa.Table:
        """Returns resolved rows of some of the keys that `changes` has returned, on the later side."""
        assert self._pool is not None  # noqa: S101  (asked for beforehand)
        found = self._stored.ask("FROM pool SEMI JOIN wanted USING ({keys})", pool=self._pool, wanted=wanted)
        return self._resolved(self._after, self._stored.rows(found, self._find_rows(found, self._after)))

    def _only(self, here: Side, there: Side) -> pa.Table:
        if not there.rewritten:
            return self._stored.all_keys(())
        mine, others = self._stored.all_keys(here.files), self._stored.all_keys(there.files)
        return self._stored.ask("FROM mine ANTI JOIN others USING ({keys})", mine=mine, others=others)

    def _union(self, *found: pa.Table) -> pa.Table:
        parts = {f"part{n}": table for n, table in enumerate(found)}
        every = " UNION ALL ".join(f"SELECT {{keys}}, _key_group FROM {part}" for part in parts)
        return self._stored.ask(
            f"SELECT {{keys}}, min(_key_group) AS _key_group FROM ({every}) GROUP BY {{keys}}", **parts
        )

    def _living(self, side: Side, pool: pa.Table, gone: pa.Table) -> pa.Table:
        """Returns the candidates that live on a side: key columns and `_here`, which is true.

        Args:
            side: the side.
            pool: candidates.
            gone: candidates that have no row there.
        """
        ask = self._stored.ask
        sure = ask("SELECT {keys} FROM changed WHERE _here", changed=side.changed)
        rest = ask(
            "FROM pool ANTI JOIN (SELECT {keys} FROM changed UNION ALL SELECT {keys} FROM gone) USING ({keys})",
            pool=pool,
            changed=side.changed,
            gone=gone,
        )
        hits = self._find_rows(rest, side)
        seen = ask("SELECT {keys}, bool_or(_doubtful) AS _doubtful FROM hits GROUP BY {keys}", hits=hits)
        doubtful = ask("SELECT {keys} FROM seen WHERE _doubtful", seen=seen)
        resolved = sure.slice(0, 0)
        if doubtful.num_rows:
            places = ask("FROM hits SEMI JOIN doubtful USING ({keys})", hits=hits, doubtful=doubtful)
            resolved = self._resolved(side, self._stored.rows(doubtful, places))
        return ask(
            "SELECT {keys}, true AS _here FROM (SELECT {keys} FROM sure UNION ALL SELECT {keys} FROM resolved"
            " UNION ALL SELECT {keys} FROM seen WHERE NOT _doubtful)",
            sure=sure,
            resolved=resolved,
            seen=seen,
        )

    def _find_rows(self, wanted: pa.Table, side: Side) -> pa.Table:
        if self._hits is None:
            return self._stored.hits(wanted, side.files if wanted.num_rows else ())
        sql = f"FROM hits SEMI JOIN wanted USING ({{keys}}) WHERE _file IN {side.numbers}"
        return self._stored.ask(sql, hits=self._hits, wanted=wanted)

    def _resolved(self, side: Side, rows: pa.Table) -> pa.Table:
        mine = self._stored.ask(f"FROM rows WHERE _file IN {side.numbers}", rows=rows)
        return resolve_rows(side.checkpoint, side.uid, mine)
