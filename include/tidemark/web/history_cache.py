"""The histories that a context has read: each object once, however often a page polls."""

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from tidemark.answers.checkpoint_overview import HistorySummary
from tidemark.errors import NotFoundError
from tidemark.glance import has_planned, lasting
from tidemark.ports import CheckpointStore
from tidemark.ports.caching import Prefetches
from tidemark.web.history import History, HistoryEntry
from tidemark.web.history_lines import summarize

if TYPE_CHECKING:
    from tidemark.context import Context

PORTION, FIRST_PORTION = 100, 32
"""Ids that one answer reads at least, in about 0.1 s, and the first one: a page of the history. A page whose answer is
incomplete polls again."""


def portion(total: int) -> int:
    """How many of `total` ids one answer reads: a hundredth, because each answer lists all of them; 0 = not known."""
    return max(PORTION, total // 100) if total else FIRST_PORTION


class RememberedHistory:
    """The history of one pipeline, as far as this process has read it.

    Args:
        history: reads the store.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        self.lock = Lock()
        self._door, self._arrived, self._served = Lock(), 0, 0
        self.summed: tuple[tuple[HistoryEntry, ...], HistorySummary] = ((), summarize(()))

    def read(self, store: CheckpointStore) -> tuple[HistoryEntry, ...]:
        """The entries, after reading one more portion; answers that wait for each other share one.

        Args:
            store: of this answer.
        """
        with self._door:
            self._arrived += 1
            mine = self._arrived
        with self.lock:
            if self._served < mine:
                with self._door:
                    serves = self._arrived
                if serves > mine and isinstance(store, Prefetches):
                    store.renew()  # others have come since this answer listed the records
                self.history.store = store
                self.history.refresh(portion(self.history.total))
                self._served = serves
            return self.history.entries

    def summary(self, completed: tuple[HistoryEntry, ...]) -> HistorySummary:
        """The summary of completed checkpoints, computed again only if they have changed."""
        if completed != self.summed[0]:
            self.summed = (completed, summarize(completed))
        return self.summed[1]


class HistoryCache:
    """The histories of all pipelines. Thread-safe.

    Attributes:
        planned: pipelines that are known to have planned a checkpoint.
    """

    def __init__(self) -> None:
        self._histories: dict[str, RememberedHistory] = {}
        self._lock = Lock()
        self.planned: set[str] = set()

    def get(self, name: str, open_store: Callable[[], CheckpointStore]) -> RememberedHistory:
        """The history of a pipeline; the first call opens its store."""
        with self._lock:
            if name not in self._histories:
                self._histories[name] = RememberedHistory(History(open_store()))
            return self._histories[name]


_CACHES: "WeakKeyDictionary[Context, HistoryCache]" = WeakKeyDictionary()


def _histories(context: "Context") -> HistoryCache:
    return _CACHES.setdefault(lasting(context), HistoryCache())


def require_planned(context: "Context", name: str) -> str:
    """Returns `name` if that pipeline has planned a checkpoint, without importing its declaration.

    Raises:
        NotFoundError: it has planned none.
        NameRefusedError: no pipeline can have this name.
    """
    planned = _histories(context).planned
    if name not in planned:
        if not has_planned(context, name):
            raise NotFoundError(f"no pipeline {name!r} in this warehouse", next=f"tidemark run {name}")
        planned.add(name)
    return name


def list_pipelines(context: "Context") -> list[str]:
    """The pipelines of the warehouse, as `Warehouse.list_pipelines`; no answer asks for them again."""
    found = context.warehouse.list_pipelines()
    _histories(context).planned.update(found)
    return found


def read_history(context: "Context", name: str) -> tuple[tuple[HistoryEntry, ...], RememberedHistory]:
    """The entries read so far, newest first, after one more portion; and the cache that holds them.

    Raises:
        NotFoundError: no such pipeline.
    """
    remembered = _histories(context).get(name, lambda: _open_store(context, name))
    return remembered.read(context.store(name)), remembered


def _open_store(context: "Context", name: str) -> CheckpointStore:
    return context.coordinator(require_planned(context, name)).objects.store


def open_history(context: "Context", name: str) -> History:
    """The history of a pipeline, to read single entries with the store of this answer; it reads no portion.

    Raises:
        NotFoundError: no such pipeline.
    """
    remembered = _histories(context).get(name, lambda: _open_store(context, name))
    return remembered.history.over(context.store(name))


def is_discarded(context: "Context", name: str, checkpoint: int) -> bool:
    """Whether a checkpoint is released.

    Raises:
        NotFoundError: no such pipeline.
    """
    return open_history(context, name).is_discarded(checkpoint)


def get_entry(context: "Context", name: str, checkpoint: int) -> HistoryEntry | None:
    """The entry of one checkpoint, read now if necessary; None if the id was never planned.

    Raises:
        NotFoundError: no such pipeline.
    """
    return open_history(context, name).entry(checkpoint)


def get_neighbours(context: "Context", name: str, checkpoint: int) -> tuple[int | None, int | None]:
    """Ids of the checkpoints before and after one.

    Raises:
        NotFoundError: no such pipeline.
    """
    return open_history(context, name).beside(checkpoint)


def list_known(context: "Context", name: str) -> tuple[HistoryEntry, ...]:
    """The entries that this process has read so far, newest first, without reading any.

    Raises:
        NotFoundError: no such pipeline.
    """
    return _histories(context).get(name, lambda: _open_store(context, name)).history.entries


def list_entries(context: "Context", name: str) -> tuple[HistoryEntry, ...]:
    """All entries read so far, newest first.

    Raises:
        NotFoundError: no such pipeline.
    """
    return read_history(context, name)[0]
