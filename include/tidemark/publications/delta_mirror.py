"""A mirror: the current state of an operator as a plain Delta table, one version for each publication (adr/0038).

Replaced and deleted rows are marked in deletion vectors. Each version is one entry of the log, put if absent, so a
publisher that was overtaken loses: its version is taken, and the newest publication is no longer the one it starts
from.
"""

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import QueryBuilder
from deltalake.exceptions import DeltaError
from pyroaring import BitMap64

from tidemark.errors import StoreError, TargetChangedError
from tidemark.model.kinds.base.sql import quote
from tidemark.model.retention.publication_records import Replaceable
from tidemark.ports import PutOutcome
from tidemark.ports.publishing import Difference, Published, StatePart, Step
from tidemark.publications.deletion_vectors import VectorPlace, numbered_name, read_vector, write_vectors
from tidemark.publications.delta_log import LINEAGE, DeltaLog, MirrorFile, TableState, misfit, path_of, unreadable
from tidemark.publications.mirror_files import FilePlan, NewFile, clean_up, marking, part_path, removal
from tidemark.publications.target_folder import TargetFolder
from tidemark.readers.duckdb_session import open_query_runner
from tidemark.tables.delta_tables import arrow_schema, plain_schema, shape

ROWS_PER_FILE = 2_000_000
"""Rows of a file that a rebuild writes: 32 to 128 MiB for rows of ordinary width."""
_TRIES = 20
_LIVE = 0.3
"""A file with a smaller share of live rows is written again without the deleted ones."""
_SMALL_FILES, _SMALL = 64, 16 * 2**20
"""Of so many files below this size, the half with the fewest live bytes is merged: each row is rarely written again."""
_ROW_GROUP = 100_000
_LOG_CHECKPOINTS = 10
"""A Delta log checkpoint is written after as many versions, so that readers open few files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaMirrorTable:
    """See `ports.publishing.PublicationTarget`.

    Attributes:
        folder: the table.
        application: id of the publication, `tidemark/<pipeline>/<name>`.
        keys: names of the key columns.
        columns: (column, SQL type) of the resolved state, key columns included.
        deletion_vectors: whether deleted rows are marked; otherwise files that hold one are rewritten.
        appends: whether new rows replace none; only erased keys are deleted then, and files are not merged.
        now_ms: the clock.
        make_id: returns a random UUID.
    """

    folder: TargetFolder
    application: str
    keys: Sequence[str]
    columns: Sequence[tuple[str, str]]
    now_ms: Callable[[], int]
    make_id: Callable[[], UUID]
    deletion_vectors: bool = True
    appends: bool = False

    @property
    def log(self) -> DeltaLog:
        """The log of the table."""
        return DeltaLog(self.folder)

    def newest_step(self) -> int:
        """See `ports.publishing.PublicationTarget`."""
        return self.log.newest().publications.get(self.application, 0)

    def apply(self, step: Step, difference: Callable[[], Difference]) -> Published:
        """See `ports.publishing.PublicationTarget`."""
        read = cache(difference)
        return self._commit(step, lambda state: self._difference(state, step, read))

    def replace(
        self, step: Step, parts: Sequence[StatePart], replaces: Replaceable = Replaceable.UNTOUCHED
    ) -> Published:
        """See `ports.publishing.PublicationTarget`; each part becomes one file.

        Raises:
            TargetChangedError: also if the table has features that a mirror cannot have.
        """
        written: list[NewFile] = []

        def entry(state: TableState) -> "_Entry":
            if state.version >= 0:
                self._refuse_rows(state, step, replaces)
            if not written:
                written.extend(self._write_parts(step, parts))
            return self._replacement(state, step, written)

        return self._commit(step, entry)

    def drop(self, step: Step) -> Published:
        """See `ports.publishing.PublicationTarget`: an entry without files fences earlier ones."""
        if self.log.newest().version < 0:
            return Published(version="")

        def entry(state: TableState) -> "_Entry":
            now = self.now_ms()
            return _Entry(actions=[self._info(step, "WRITE", state.live_rows, now), self._transaction(step, now)])

        return self._commit(step, entry)

    def rows(self) -> tuple[int, pa.Table]:
        """See `ports.publishing.PublicationTarget`."""
        step, opened, columns = self.newest_step(), self.folder.table(), arrow_schema(self.columns)
        found = pa.table(QueryBuilder().register("mirror", opened).execute("SELECT * FROM mirror").read_all())
        return step, found.select(columns.names).cast(columns)

    def _commit(self, step: Step, entry: Callable[[TableState], "_Entry"]) -> Published:
        for _ in range(_TRIES):
            state = self.log.newest()
            if state.publications.get(self.application, 0) >= step.number:
                found = self.log.find_publication(state, self.application)
                return Published(version=str(state.version if found is None else found.version))
            made = entry(state)
            version = state.version + 1
            body = "".join(f"{json.dumps(action)}\n" for action in made.actions).encode()
            won = self.folder.put(path_of(version), body) is PutOutcome.WON
            # A log that was cleaned up meanwhile frees the name, and no reader finds an entry below its checkpoint.
            if won and self.log.newest().publications.get(self.application, 0) >= step.number:
                self._checkpoint_log(version)
                return Published(
                    version=str(version), inserted=made.inserted, deleted=made.deleted, bytes=made.bytes + len(body)
                )
        raise StoreError(
            f"{_TRIES} other commits came first to {self.folder}",
            safe="the table is as these commits left it.",
            next="the next publication continues; run maintenance of the table less often.",
        )

    def _checkpoint_log(self, version: int) -> None:
        if version and version % _LOG_CHECKPOINTS == 0:
            # It only saves readers work, and the version is there: the next one is written ten versions later.
            with suppress(DeltaError, OSError, StoreError):
                table = self.folder.table()
                table.create_checkpoint()
                table.cleanup_metadata()
                clean_up(self.folder, self.application)

    def _refuse_rows(self, state: TableState, step: Step, replaces: Replaceable) -> None:
        """Refuses a rebuild of a table whose rows it may not replace."""
        if not state.publications.get(self.application) and replaces is not Replaceable.ANY:
            raise TargetChangedError(
                f"there is a table at {self.folder} that this publication has not made",
                safe="the table was left alone.",
                next=f"name another path in the pipeline file, remove that table, or: {self._rebuild} --replace",
            )
        if replaces is Replaceable.UNTOUCHED:
            self._refuse_changed(state, step)

    def _refuse_changed(self, state: TableState, step: Step) -> None:
        number = state.publications.get(self.application, 0)
        if (number, state.lineage) != (step.previous, step.previous_lineage):
            raise self._changed(f"it has publication {number} of another rebuild or another number")
        found = self.log.find_publication(state, self.application)
        if found is None:
            raise self._changed("the entry of its newest publication is no longer in the log")
        why = self.log.change_of_others(state, found)
        # A rebuild may bring other columns.
        if why is None and step.lineage == step.previous_lineage and shape(state.schema) != self._shape:
            why = "its columns are others"
        if why is not None:
            raise self._changed(why)

    @property
    def _shape(self) -> object:
        return shape(plain_schema(self.columns))

    @property
    def _rebuild(self) -> str:
        _, pipeline, name = self.application.split("/")
        return f"tidemark publication rebuild {pipeline} {name}"

    def _changed(self, why: str) -> TargetChangedError:
        return TargetChangedError(
            f"MIRROR_CHANGED: the table {self.folder} was changed by others: {why}",
            safe="the table was left alone; every checkpoint is intact.",
            next=f"{self._rebuild}    (replaces all rows of the table).",
        )

    def _replacement(self, state: TableState, step: Step, written: Sequence[NewFile]) -> "_Entry":
        now = self.now_ms()
        entry = _Entry(inserted=sum(w.rows for w in written), bytes=sum(w.size for w in written))
        if state.version >= 0 and (why := misfit(state)) is not None:
            raise TargetChangedError(
                f"the table {self.folder} {why}, which a mirror cannot have",
                safe="the table was left alone; every checkpoint is intact.",
                next="name another path in the pipeline file, or remove that table.",
            )
        entry.actions += [self._info(step, "WRITE", entry.inserted, now), self._transaction(step, now)]
        entry.actions.append({"protocol": self._protocol(state)})
        entry.actions.append({"metaData": self._metadata(state, step, now)})
        for file in state.files.values():
            entry.deleted += (file.rows or 0) - file.deleted
            entry.actions.append(removal(file, now))
        entry.actions += [w.action(now) for w in written]
        return entry

    def _protocol(self, state: TableState) -> dict[str, Any]:
        if state.protocol and (state.has_vectors or not self.deletion_vectors):
            return {name: value for name, value in state.protocol.items() if value is not None}
        if not self.deletion_vectors:
            return {"minReaderVersion": 1, "minWriterVersion": 2}
        features = ["deletionVectors"]
        return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}

    def _metadata(self, state: TableState, step: Step, now: int) -> dict[str, Any]:
        settings = {**(state.metadata.get("configuration") or {}), LINEAGE: step.lineage}
        if self.deletion_vectors:
            settings["delta.enableDeletionVectors"] = "true"
        return {
            "id": state.metadata.get("id") or str(self.make_id()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": plain_schema(self.columns).to_json(),
            "partitionColumns": [],
            "configuration": settings,
            "createdTime": state.metadata.get("createdTime") or now,
        }

    def _difference(self, state: TableState, step: Step, read: Callable[[], Difference]) -> "_Entry":
        self._refuse_changed(state, step)
        of = read()
        upserts = of.upserts
        changed = (of.erased,) if self.appends else (upserts, of.deletes, of.erased)
        touched = pa.concat_tables([found.select(list(self.keys)) for found in changed])
        old = {path: self._deleted(file) for path, file in state.files.items()}
        hits = self._positions(state, touched)
        gone = {path: left for path, found in hits.items() if (left := found - old[path])}
        entry, now = _Entry(inserted=upserts.num_rows), self.now_ms()
        entry.deleted = sum(map(len, gone.values()))
        if entry.deleted > touched.num_rows and not self.appends:
            raise self._changed("a key has more than one row")
        plan = self._plan(state, {path: old[path] | gone.get(path, BitMap64()) for path in old}, set(gone), upserts)
        plan.rewrite(self._positions(state, of.erased))
        written = self._write(step, _merged([upserts], self.keys)) + self._write(step, self._rewritten(state, plan))
        places: Mapping[str, VectorPlace] = {}
        if plan.marked:
            path, body, places = write_vectors(
                {p: plan.deleted[p] for p in plan.marked}, numbered_name(step.number, self.make_id())
            )
            self.folder.put(path, body)
            entry.bytes += len(body)
        entry.bytes += sum(w.size for w in written)
        rows = state.live_rows - entry.deleted + entry.inserted
        entry.actions += [self._info(step, "MERGE", rows, now), self._transaction(step, now)]
        for path in (*plan.emptied, *plan.rewritten, *plan.marked):
            entry.actions.append(removal(state.files[path], now))
        entry.actions += [marking(state.files[path], places[path], now) for path in plan.marked]
        entry.actions += [w.action(now) for w in written]
        return entry

    def _plan(self, state: TableState, deleted: dict[str, BitMap64], touched: set[str], upserts: pa.Table) -> FilePlan:
        plan = FilePlan(deleted=deleted)
        for path in sorted(touched):
            rows = self._rows(state.files[path])
            left = rows - len(deleted[path])
            if left == 0:
                plan.emptied.append(path)
            elif left < _LIVE * rows or not self.deletion_vectors:
                plan.rewritten.append(path)
            else:
                plan.marked.append(path)
        # A stream that reads an append-only table would see merged rows as new ones.
        if not self.appends:
            plan.rewrite(self._merging(state, plan, upserts.num_rows > 0))
        return plan

    def _merging(self, state: TableState, plan: FilePlan, more: bool) -> list[str]:
        """Returns the small files that are merged, if there are too many of them with the new one."""

        def live_bytes(path: str) -> float:
            rows = max(1, self._rows(state.files[path]))
            return state.files[path].size * (1 - len(plan.deleted[path]) / rows)

        done = {*plan.emptied, *plan.rewritten}
        small = [path for path, file in state.files.items() if file.size < _SMALL and path not in done]
        return sorted(small, key=live_bytes)[: len(small) // 2] if len(small) + more >= _SMALL_FILES else []

    def _rewritten(self, state: TableState, plan: FilePlan) -> Iterator[pa.Table]:
        """Yields the live rows of the files that are written again, of several files together if they fit into one."""
        group, rows = list[pa.Table](), 0
        for path in plan.rewritten:
            group.append(self._live(state.files[path], plan.deleted[path]))
            rows += group[-1].num_rows
            if rows >= ROWS_PER_FILE:
                yield from _merged(group, self.keys)
                group, rows = [], 0
        if group:
            yield from _merged(group, self.keys)

    def _positions(self, state: TableState, touched: pa.Table) -> dict[str, BitMap64]:
        """The positions of all rows of some keys, deleted ones included, by file."""
        paths, keys = list(state.files), list(self.keys)
        if not touched.num_rows:
            return {}
        declared = arrow_schema([c for c in self.columns if c[0] in set(keys)])
        schema = pa.schema([*(declared.field(k) for k in keys), ("_file", pa.int32()), ("_row", pa.int64())])
        rows = pa.RecordBatchReader.from_batches(schema, self._key_rows(paths, schema, keys))
        by = ", ".join(map(quote, keys))
        with open_query_runner() as ask:
            sql = f"SELECT _file, list(_row) AS _rows FROM rows SEMI JOIN touched USING ({by}) GROUP BY _file"
            found = ask(sql, rows=rows, touched=touched).to_pylist()
        return {paths[row["_file"]]: BitMap64(row["_rows"]) for row in found}

    def _key_rows(self, paths: Sequence[str], schema: pa.Schema, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for number, path in enumerate(paths):
            with self.folder.open(path) as raw, pq.ParquetFile(raw) as file:
                first = 0
                for batch in file.iter_batches(_ROW_GROUP, columns=list(keys)):
                    places = pa.array(range(first, first + batch.num_rows), pa.int64())
                    files = pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows)
                    columns = [batch.column(k).cast(schema.field(k).type) for k in keys]
                    yield pa.RecordBatch.from_arrays([*columns, files, places], schema=schema)
                    first += batch.num_rows

    def _rows(self, file: MirrorFile) -> int:
        if file.rows is not None:
            return file.rows
        with self.folder.open(file.path) as raw, pq.ParquetFile(raw) as opened:
            return int(opened.metadata.num_rows)

    def _deleted(self, file: MirrorFile) -> BitMap64:
        return BitMap64() if file.vector is None else read_vector(file.vector, self.folder.read)

    def _live(self, file: MirrorFile, deleted: BitMap64) -> pa.Table:
        with self.folder.open(file.path) as raw, pq.ParquetFile(raw) as opened:
            rows = opened.read(columns=[name for name, _ in self.columns])
        if file.rows is not None and rows.num_rows != file.rows:
            raise unreadable(self.folder, f"{file.path} has {rows.num_rows} rows, the log says {file.rows}")
        kept = BitMap64(range(rows.num_rows)) - deleted
        return rows.take(pa.array(kept.to_array(), pa.uint64())).cast(arrow_schema(self.columns))

    def _write(self, step: Step, tables: Iterable[pa.Table]) -> list[NewFile]:
        return [self._put(part_path(step.number, str(self.make_id())), table) for table in tables if table.num_rows]

    def _write_parts(self, step: Step, parts: Sequence[StatePart]) -> list[NewFile]:
        """Writes one file for each part, unless an earlier try of the same rebuild has written it: files are whole."""
        made, columns = list[NewFile](), arrow_schema(self.columns)
        for part in parts:
            path = part_path(step.number, f"{step.lineage}-{part.name}")
            body = self.folder.get(path)
            if body is not None:
                rows = pq.ParquetFile(io.BytesIO(body)).metadata.num_rows
                made.append(NewFile(path=path, size=len(body), rows=rows))
                continue
            keys = [(key, "ascending") for key in self.keys]
            rows = pa.concat_tables([columns.empty_table(), *(t.cast(columns) for t in part.read())]).sort_by(keys)
            if rows.num_rows:
                made.append(self._put(path, rows))
        return made

    def _put(self, path: str, table: pa.Table) -> NewFile:
        raw = io.BytesIO()
        pq.write_table(table.cast(arrow_schema(self.columns)), raw, compression="zstd", row_group_size=_ROW_GROUP)
        body = raw.getvalue()
        self.folder.put(path, body)
        return NewFile(path=path, size=len(body), rows=table.num_rows)

    def _info(self, step: Step, operation: str, rows: int, now: int) -> dict[str, Any]:
        return {
            "commitInfo": {
                "timestamp": now,
                "operation": operation,
                "operationParameters": {},
                "engineInfo": "tidemark",
                "txnId": str(self.make_id()),
                "tidemark": {
                    "publication": self.application,
                    "number": step.number,
                    "checkpoint": step.checkpoint,
                    "timeline": step.timeline,
                    "rows": rows,
                },
            }
        }

    def _transaction(self, step: Step, now: int) -> dict[str, Any]:
        return {"txn": {"appId": self.application, "version": step.number, "lastUpdated": now}}


@dataclass(slots=True, kw_only=True)
class _Entry:
    """An entry of the log, with counts of its changes."""

    actions: list[dict[str, Any]] = field(default_factory=list)
    inserted: int = 0
    deleted: int = 0
    bytes: int = 0


def _merged(tables: Sequence[pa.Table], keys: Sequence[str]) -> Iterator[pa.Table]:
    """Yields the rows of some tables in order of keys, in tables of at most the rows of one file."""
    whole = pa.concat_tables(tables).sort_by([(key, "ascending") for key in keys])
    for start in range(0, whole.num_rows, ROWS_PER_FILE):
        yield whole.slice(start, ROWS_PER_FILE)
