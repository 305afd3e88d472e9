"""Rewrites tables without a key: each file that holds it is written again once, and new versions omit it (ADR 0015)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.retention.erasure_search import Entry, HeldFile, KeyOccurrences, Searcher, all_handles_of
from tidemark.errors import StoreError
from tidemark.model.checkpoint.commits import Commit, CommitRequest
from tidemark.model.checkpoint.manifest import Ack
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.segments import LiveFile, Segment, StateHandle
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.model.retention.table_rewrite import Rewriting, WantedVersion
from tidemark.ports import StateTables, TableFiles

Holding = TypeVar("Holding", CheckpointPlan, Genesis)


@dataclass(kw_only=True)
class Rewritten:
    """The replacements of files and segments.

    Attributes:
        searcher: knows the files of segments.
        versions: per table, the versions that were committed, with their numbers.
        replaced: per table and path, the replacement of a file; None = the file has no rows left.
        commits: commits of the erasure.
    """

    searcher: Searcher
    versions: dict[str, list[tuple[WantedVersion, int]]] = field(default_factory=dict)
    replaced: dict[str, Mapping[str, LiveFile | None]] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    _known: dict[Segment, Segment] = field(default_factory=dict)

    def without(self, handle: StateHandle) -> StateHandle:
        """A handle without the key; unchanged if none of its tables was rewritten."""
        return handle.with_segments(self.segment(s) for s in handle)

    def segment(self, segment: Segment) -> Segment:
        """The replacement of a segment; the segment itself if it needs none."""
        if segment.path not in self.versions:
            return segment
        if segment not in self._known:
            self._known[segment] = self._replacement_of(segment)
        return self._known[segment]

    def changes(self, entry: Entry) -> bool:
        """Whether a restore point names anything that was rewritten."""
        return any(self.without(handle) != handle for handle in all_handles_of(entry))

    def revise(self, entry: Entry, erasure: int) -> Entry:
        """A restore point without the key. Its plan changes too, so that it can be replayed from its current parent."""
        if isinstance(entry, Genesis):
            return self._revised(entry)
        plan, sealed = entry.plan, entry.sealed
        erasures = max(erasure, plan.erasures) if self.changes(entry) else plan.erasures
        return replace(
            entry,
            plan=replace(self._revised(plan), erasures=erasures),
            sealed=replace(sealed, acks=tuple(map(self._ack, sealed.acks))),
        )

    def _revised(self, entry: Holding) -> Holding:
        return replace(
            entry,
            handles=self.of(entry.handles),
            left_behind=self.of(entry.left_behind),
            dead_letters=self.of(entry.dead_letters),
            sinks=self._sinks(entry.sinks),
        )

    def _ack(self, ack: Ack) -> Ack:
        return replace(
            ack,
            handle=self.without(ack.handle),
            dead_letters=self.without(ack.dead_letters),
            sink=self.without(ack.sink),
            outputs={uid: replace(output, sink=self.without(output.sink)) for uid, output in ack.outputs.items()},
        )

    def _sinks(self, tables: Mapping[str, SinkTable]) -> dict[str, SinkTable]:
        return {name: replace(table, handle=self.without(table.handle)) for name, table in tables.items()}

    def of(self, handles: Mapping[str, StateHandle]) -> dict[str, StateHandle]:
        """Several handles without the key, by uid."""
        return {uid: self.without(handle) for uid, handle in handles.items()}

    def _replacement_of(self, segment: Segment) -> Segment:
        try:
            files = self.searcher.files_of(segment)
        except StoreError:
            return segment  # the input of a plan whose parent was released: nothing keeps it
        replaced = self.replaced[segment.path]
        left = {f.path for f in (replaced.get(f.path, f) for f in files) if f is not None}
        for wanted, version in self.versions[segment.path]:
            if {f.path for f in wanted.live if segment.after < f.checkpoint <= segment.through} == left:
                return wanted.at(segment, version)
        return segment


@dataclass(frozen=True, kw_only=True)
class Rewriter:
    """Rewrites tables.

    Attributes:
        coordinator: of the pipeline; its listener is called at steps `erase.files` and `erase.commit`.
        tables: commits to tables.
        logs: logs of the tables.
        searcher: searches for the key.
        job: names the folders of the written files.
    """

    coordinator: CheckpointCoordinator
    tables: StateTables
    logs: TableFiles
    searcher: Searcher
    job: str

    def rewrite(self, found: KeyOccurrences) -> Rewritten:
        """Writes and commits; no object names the new versions until a manifest is revised.

        Raises:
            ConflictError: another process commits to a table at the same time.
            StoreError: a file or a table cannot be read or written.
        """
        done = Rewritten(searcher=self.searcher)
        for table, held in sorted(found.files.items()):
            self._table(done, found, table, held)
        return done

    def _table(self, done: Rewritten, found: KeyOccurrences, table: str, held: Mapping[str, HeldFile]) -> None:
        c, folder = self.coordinator, f"{table}/{self.job}"
        replaced = self._rewrite_files(found, table, held)
        segments = {s for e in found.entries for h in all_handles_of(e) for s in h if s.path == table}
        wanted = Rewriting.of({s: self.searcher.files_of(s) for s in segments}, replaced).wanted
        made: list[tuple[WantedVersion, int]] = []
        for n, version in enumerate(wanted):
            c.listener("erase.commit", "before")
            committed = self.tables.commit(self._request(version, n), _Unfenced())
            self.tables.make_durable([committed.commit], [folder] if version.replacing else [])
            c.listener("erase.commit", "after")
            made.append((version, committed.commit.version))
            done.commits.append(committed.commit)
        # Statistics in older commits may hold the key as a bound; after this, a sweep trims the log up to here.
        self.logs.ensure_log_checkpoint(table, made[0][1])
        done.versions[table], done.replaced[table] = made, replaced

    def _rewrite_files(
        self, found: KeyOccurrences, table: str, held: Mapping[str, HeldFile]
    ) -> dict[str, LiveFile | None]:
        """Files of a table without the key, by path of the file that they replace."""
        c, folder, schema = self.coordinator, f"{table}/{self.job}", found.schema
        if schema is None:
            return {}
        files = [h.file for _, h in sorted(held.items())]
        c.listener("erase.files", "before")
        written = self.searcher.files.without(table, files, self.searcher.erased_key(schema, found.uids), folder)
        c.listener("erase.files", "after")
        made: dict[str, LiveFile | None] = {}
        for f in files:
            again = written[f.path]
            made[f.path] = None if again is None else LiveFile(file=again, level=f.level, checkpoint=f.checkpoint)
        return made

    def _request(self, wanted: WantedVersion, n: int) -> CommitRequest:
        parent, write_id = wanted.parent, self.coordinator.write_ids()
        return CommitRequest(
            table=parent.path,
            parent=parent,
            files=(),
            rows=0,
            level=0,
            checkpoint=parent.through,
            after=parent.after,
            schema=(),
            write_id=write_id,
            metadata={"tidemark_pipeline": self.coordinator.name, "tidemark_job": self.job},
            app=(f"{self.coordinator.name}/{self.job}", n),
            drop=wanted.drop,
            replacing=wanted.replacing,
        )


class _Unfenced:
    """The fence of a job that has no attempt: no object names its version until a manifest is revised."""

    def check(self) -> None:
        """Never raises."""
