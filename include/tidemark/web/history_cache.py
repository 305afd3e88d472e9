"""The histories that a context has read: each object once, however often a page polls."""

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from tidemark.answers.checkpoint_overview import HistorySummary
from tidemark.errors import NotFoundError
from tidemark.glance import lasting
from tidemark.ports import CheckpointStore
from tidemark.web.history import History, HistoryEntry
from tidemark.web.history_lines import summarize

if TYPE_CHECKING:
    from tidemark.context import Context

PORTION = 100
"""Ids that one answer reads at least, in about 0.1 s. A page whose answer is incomplete polls again."""


def portion(total: int) -> int:
    """How many of `total` ids one answer reads: a hundredth, because each answer lists all of them."""
    return max(PORTION, total // 100)


class RememberedHistory:
    """The history of one pipeline, as far as this process has read it.

    Args:
        history: reads the store.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        self.lock = Lock()
        self.summed: tuple[tuple[HistoryEntry, ...], HistorySummary] = ((), summarize(()))

    def read(self, store: CheckpointStore) -> tuple[HistoryEntry, ...]:
        """The entries, after reading one more portion from the store of this answer."""
        with self.lock:
            self.history.store = store
            self.history.refresh(portion(self.history.total))
            return self.history.entries

    def summary(self, completed: tuple[HistoryEntry, ...]) -> HistorySummary:
        """The summary of completed checkpoints, computed again only if they have changed."""
        if completed != self.summed[0]:
            self.summed = (completed, summarize(completed))
        return self.summed[1]


class HistoryCache:
    """The histories of all pipelines. Thread-safe."""

    def __init__(self) -> None:
        self._histories: dict[str, RememberedHistory] = {}
        self._lock = Lock()

    def has_read(self, name: str) -> bool:
        """Whether an answer of this process has found checkpoints of a pipeline."""
        found = self._histories.get(name)
        return found is not None and found.history.total > 0

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
    # What this process has read of it was planned.
    if not _histories(context).has_read(name) and not context.warehouse.has_planned(name):
        raise NotFoundError(f"no pipeline {name!r} in this warehouse", next=f"tidemark run {name}")
    return name


def read_history(context: "Context", name: str) -> tuple[tuple[HistoryEntry, ...], RememberedHistory]:
    """The entries read so far, newest first, after one more portion; and the cache that holds them.

    Raises:
        NotFoundError: no such pipeline.
    """
    remembered = _histories(context).get(name, lambda: _open_store(context, name))
    return remembered.read(context.store(name)), remembered


def _open_store(context: "Context", name: str) -> CheckpointStore:
    return context.coordinator(require_planned(context, name)).objects.store


def is_discarded(context: "Context", name: str, checkpoint: int) -> bool:
    """Whether a checkpoint is known to be released, as far as its history was read.

    Raises:
        NotFoundError: no such pipeline.
    """
    return checkpoint in _histories(context).get(name, lambda: _open_store(context, name)).history.discarded


def get_entry(context: "Context", name: str, checkpoint: int) -> HistoryEntry | None:
    """The entry of one checkpoint, read now if necessary; None if the id was never planned.

    Raises:
        NotFoundError: no such pipeline.
    """
    _, remembered = read_history(context, name)
    with remembered.lock:
        return remembered.history.entry(checkpoint)


def get_neighbours(context: "Context", name: str, checkpoint: int) -> tuple[int | None, int | None]:
    """Ids of the checkpoints before and after one.

    Raises:
        NotFoundError: no such pipeline.
    """
    _, remembered = read_history(context, name)
    with remembered.lock:
        return remembered.history.beside(checkpoint)


def list_entries(context: "Context", name: str) -> tuple[HistoryEntry, ...]:
    """All entries read so far, newest first.

    Raises:
        NotFoundError: no such pipeline.
    """
    return read_history(context, name)[0]
