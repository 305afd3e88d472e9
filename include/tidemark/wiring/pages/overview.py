"""The page of a pipeline: health, counts, the latest of each kind, history, percentiles, charts, timelines."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, takewhile
from threading import Lock

from tidemark.coordinator.records.branches import Branch, branch
from tidemark.coordinator.records.stops import Stops
from tidemark.errors import CorruptObjectError, NotFoundError
from tidemark.model.records import Genesis
from tidemark.wiring import Runtime
from tidemark.wiring.pages.history import CheckpointStatus, History, HistoryEntry
from tidemark.wiring.pages.lines import HistoryQuery, Json, counts, line, point, summary
from tidemark.wiring.recoveries import branch_facts

PORTION = 100
"""Ids that one answer reads at least: 0.1 s of it. A page that is not told of all asks again."""
POINTS = 1000
"""Points of a chart at most."""


def portion(total: int) -> int:
    """How many ids an answer reads of a history that has so many: each lists all of them, so that a hundred must do."""
    return max(PORTION, total // 100)


class _Line:
    """What is remembered of one pipeline."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.lock = Lock()
        self.summed: tuple[tuple[HistoryEntry, ...], Json] = ((), summary(()))

    def read(self) -> tuple[HistoryEntry, ...]:
        """The lines, after one more portion."""
        with self.lock:
            self.history.refresh(portion(self.history.total))
            return self.history.entries

    def summary(self, completed: tuple[HistoryEntry, ...]) -> Json:
        """Sums of the completed ones; computed again only where there are others."""
        if completed != self.summed[0]:
            self.summed = (completed, summary(completed))
        return self.summed[1]


class Overview:
    """Answers what a pipeline has done.

    Args:
        runtime: reads the warehouse.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._lines: dict[str, _Line] = {}
        self._lock = Lock()

    def pipelines(self) -> list[str]:
        """Those that have planned a checkpoint in this warehouse, in order of names."""
        return self.runtime.pipelines()

    def known(self, name: str) -> str:
        """`name`, where it is one of them; no declaration is imported to find out.

        Raises:
            NotFoundError: it is none.
            NameRefusedError: no pipeline is called so.
        """
        if not self.runtime.has_planned(name):
            raise NotFoundError(f"no pipeline {name!r} in this warehouse", next=f"tidemark run {name}")
        return name

    def overview(self, name: str, query: HistoryQuery) -> Json:
        """Flink's `/checkpoints` of a pipeline, with the lines that a query wants.

        Raises:
            NotFoundError: no such pipeline.
            StoreError: the store could not be read.
        """
        entries, remembered = self._read(name)
        discarded = remembered.history.discarded
        branches, pins, trouble = self._related(name)

        def told(entry: HistoryEntry | None) -> Json | None:
            return None if entry is None else line(entry, pins.get(entry.id, ()), discarded=entry.id in discarded)

        completed = tuple(e for e in entries if e.status is CheckpointStatus.COMPLETED)
        wanted = [e for e in entries if query.takes(e, pins.get(e.id, ()))]
        restores = [b.genesis for b in branches if b.genesis is not None and b.genesis.why == "restore"]
        latest = {
            "completed": told(next(iter(completed), None)),
            "savepoint": told(next((e for e in completed if e.id in pins), None)),
            "failed": told(next((e for e in entries if e.status is CheckpointStatus.FAILED), None)),
            "restored": _restored(restores),
        }
        return {
            "pipeline": name,
            "counts": _counts(entries) | {"restored": len(restores)},
            "summary": remembered.summary(completed),
            "latest": latest,
            "history": [told(e) for e in wanted[query.offset : query.offset + query.limit]],
            "matching": len(wanted),
            "health": self._health(name, next((b for b in branches if b.is_live), None), remembered.history),
            "trouble": trouble,
            "indexed": {"read": remembered.history.total - remembered.history.unread, "of": remembered.history.total},
        }

    def series(self, name: str, last: int) -> list[Json]:
        """The newest completed checkpoints of the live timeline and what it came from, oldest first, for charts.

        Raises:
            NotFoundError: no such pipeline.
        """
        _, remembered = self._read(name)
        timelines = self.runtime.coordinator(name).timelines
        live = branch(timelines, timelines.live(), timelines.live())
        found = list(islice(_ancestry(remembered.history, live), min(last, POINTS)))
        return [point(e) for e in reversed(found)]

    def timelines(self, name: str) -> list[Json]:
        """The tree: every timeline, in the order in which they began, with the savepoints on it.

        Raises:
            NotFoundError: no such pipeline.
        """
        on: dict[str, list[Json]] = {}
        for record in self.runtime.savepoints(self.known(name)).list():
            on.setdefault(record.timeline, []).append({"name": record.name, "checkpoint": record.checkpoint})
        found = self.runtime.timelines(name)
        return [{**branch_facts(b), "savepoints": on.get(b.timeline, [])} for b in found]

    def savepoints(self, name: str, *, disposed: bool = False) -> list[Json]:
        """Every savepoint, newest first.

        Raises:
            NotFoundError: no such pipeline.
        """
        found = self.runtime.savepoints(self.known(name)).list(disposed=disposed)
        return [self.runtime.savepoint_facts(name, record) for record in reversed(found)]

    def made_by(self, name: str, dag_id: str, run_id: str) -> Json:
        """What a DAG run has made: checkpoints that it planned, newest first, timelines that it began, savepoints.

        Only checkpoints that were read so far.

        Raises:
            NotFoundError: no such pipeline.
        """
        entries, _ = self._read(name)
        begun = [b.genesis for b in self.runtime.timelines(name) if b.genesis is not None]
        pinned = self.runtime.savepoints(name).list(disposed=True)
        return {
            "checkpoints": [e.id for e in entries if e.origin == run_id],
            "timelines": [g.timeline for g in begun if g.request == run_id],
            "savepoints": [r.name for r in pinned if r.origin == f"{dag_id} {run_id}"],
        }

    def entry(self, name: str, checkpoint: int) -> HistoryEntry | None:
        """The line of one checkpoint, whether its portion was read already or not.

        Raises:
            NotFoundError: no such pipeline.
        """
        _, remembered = self._read(name)
        with remembered.lock:
            return remembered.history.entry(checkpoint)

    def beside(self, name: str, checkpoint: int) -> tuple[int | None, int | None]:
        """Ids of the checkpoints before and after one.

        Raises:
            NotFoundError: no such pipeline.
        """
        _, remembered = self._read(name)
        with remembered.lock:
            return remembered.history.beside(checkpoint)

    def entries(self, name: str) -> tuple[HistoryEntry, ...]:
        """All lines that were read so far, newest first.

        Raises:
            NotFoundError: no such pipeline.
        """
        return self._read(name)[0]

    def _read(self, name: str) -> tuple[tuple[HistoryEntry, ...], _Line]:
        with self._lock:
            if name not in self._lines:
                store = self.runtime.coordinator(self.known(name)).objects.store
                self._lines[name] = _Line(History(store))
            remembered = self._lines[name]
        return remembered.read(), remembered

    def _related(self, name: str) -> tuple[list[Branch], Mapping[int, Sequence[str]], Json | None]:
        """Timelines and pins; none, and why, where an object of theirs is damaged: the lines are shown all the same."""
        try:
            return self.runtime.timelines(name), self.runtime.savepoints(name).pins(), None
        except CorruptObjectError as error:
            return [], {}, {"what": error.what, "safe": error.safe, "next": error.next}

    def _health(self, name: str, live: Branch | None, history: History) -> Json:
        newest = None if live is None else next(_ancestry(history, live), None)
        since = 0 if newest is None else newest.id
        later = takewhile(lambda e: e.id > since, history.entries)
        on_live = (e for e in later if live is not None and e.slot.timeline == live.timeline)
        failures = sum(e.status is CheckpointStatus.FAILED and counts(e) for e in on_live)
        at = None if live is None else self.runtime.punctuality(name, live)
        stop = Stops(self.runtime.coordinator(name).objects).standing()
        now = self.runtime.clock.now_ms()
        return {
            "live": None if live is None else live.timeline,
            "newest": None if newest is None else newest.id,
            "age": None if newest is None else max(0, now - (newest.ack_ms or newest.trigger_ms)),
            "deadline": self.runtime.settings.deadline_ms(name),
            "late": at is not None and at.is_late,
            "lag": None if newest is None else sum(newest.pending.values()),
            "failures_in_row": failures,
            "stopped": None if stop is None else {"why": stop.why, "savepoint": stop.savepoint, "at": stop.at_ms},
            "now": now,
        }


def _restored(restores: Sequence[Genesis]) -> Json | None:
    """The newest restore."""
    if not restores:
        return None
    newest = max(restores, key=lambda g: g.at_ms)
    return {
        "id": newest.parent,
        "restore_timestamp": newest.at_ms,
        "is_savepoint": bool(newest.savepoint),
        "external_path": newest.savepoint or None,
        "timeline": newest.timeline,
    }


def _counts(entries: Sequence[HistoryEntry]) -> Json:
    by = {status: sum(e.status is status for e in entries) for status in CheckpointStatus}
    return {
        "total": len(entries),
        "in_progress": by[CheckpointStatus.IN_PROGRESS],
        "completed": by[CheckpointStatus.COMPLETED],
        "failed": by[CheckpointStatus.FAILED],
        "damaged": by[CheckpointStatus.DAMAGED],
    }


def _ancestry(history: History, live: Branch) -> Iterator[HistoryEntry]:
    """Completed checkpoints of a timeline, newest first, on into those that it came from."""
    begun = None if live.genesis is None else live.genesis.parent
    number = begun if live.newest is None else live.newest.id
    while number is not None and (found := history.completed(number)) is not None:
        yield found
        number = found.parent
