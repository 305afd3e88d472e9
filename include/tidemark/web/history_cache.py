"""The histories that a context has read: each object once, however often a page polls."""

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from tidemark.answers.checkpoint_overview import HistorySummary
from tidemark.errors import CorruptObjectError, NotFoundError
from tidemark.glance import glance_at, has_planned, lasting
from tidemark.ports import CheckpointStore
from tidemark.ports.caching import Prefetches
from tidemark.web.history import CheckpointStatus, History, HistoryEntry
from tidemark.web.history_lines import summarize

if TYPE_CHECKING:
    from tidemark.context import Context
    from tidemark.model.checkpoint.manifest import Checkpoint

PORTION, FIRST_PORTION, PART = 100, 32, 32
"""Old ids that an answer reads at least when it reads on, in about 0.1 s; those that every answer knows: a page of the
history; and those that are read at a time. A page whose answer is incomplete polls again, and then it reads on."""


def portion(total: int) -> int:
    """How many old ids of `total` one answer reads: a hundredth, because each answer lists all of them."""
    return max(PORTION, total // 100)


class RememberedHistory:
    """The history of one pipeline, as far as this process has read it.

    Args:
        history: reads the store.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        self.lock = Lock()
        self._door, self._arrived, self._served = Lock(), 0, 0
        self._reads_old = Lock()
        self.summed: tuple[tuple[HistoryEntry, ...], HistorySummary] = ((), summarize(()))

    def read(self, store: CheckpointStore, *, least: int, more: bool) -> tuple[HistoryEntry, ...]:
        """The entries, after reading those that are new; answers that wait for each other share what one reads.

        Args:
            store: of this answer.
            least: how many of the newest entries it needs; at most a portion of them is read now.
            more: read one more portion of old ones as well, if the newest are known.
        """
        with self._door:
            self._arrived += 1
            mine = self._arrived
        with self.lock:
            is_first, is_served = not self.history.entries, self._served >= mine
            if not is_served:
                with self._door:
                    serves = self._arrived
                if serves > mine and isinstance(store, Prefetches):
                    store.renew()  # others have come since this answer listed the records
                self.history.store = store
                self.history.refresh(FIRST_PORTION if is_first else 0)
                self._served = serves
        if not is_first or least > FIRST_PORTION:
            self._read_old(store, least=least, more=more and not is_served and not is_first)
        return self.history.entries

    def _read_old(self, store: CheckpointStore, *, least: int, more: bool) -> None:
        """Reads old ids in parts. Answers that need none of them do not wait; one answer at a time reads them."""
        left = portion(self.history.total) if more else PORTION
        if not self._reads_old.acquire(blocking=len(self.history.entries) < least):
            return
        try:
            while left > 0 and self.history.unread and (more or len(self.history.entries) < least):
                with self.lock:
                    self.history.store = store
                    old = self.history.look(min(left, PART))
                found = list(self.history.over(store).read(old))
                with self.lock:
                    self.history.keep(old, found)
                left -= PART
        finally:
            self._reads_old.release()

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


def read_history(
    context: "Context", name: str, *, least: int = 0, more: bool = False
) -> tuple[tuple[HistoryEntry, ...], RememberedHistory]:
    """The entries read so far, newest first, with all new ones; and the cache that holds them.

    Args:
        context: of this answer.
        name: the pipeline.
        least: how many of the newest entries it needs, if there are so many; a page of the history at least, a portion
            at most.
        more: read one more portion of old ones, if the newest are known already.

    Raises:
        NotFoundError: no such pipeline.
    """
    remembered = _histories(context).get(name, lambda: _open_store(context, name))
    return remembered.read(context.store(name), least=min(max(least, FIRST_PORTION), PORTION), more=more), remembered


def read_newest(context: "Context", name: str) -> None:
    """Reads as many of the newest checkpoints as any view shows at first, for the answers that follow.

    Raises:
        NotFoundError: no such pipeline.
        StoreError: the store could not be read.
    """
    read_history(glance_at(context), name, least=PORTION)


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


def find_checkpoint(context: "Context", name: str, entry: HistoryEntry | None, checkpoint: int) -> "Checkpoint | None":
    """A completed checkpoint; None if it is not completed, or if its manifest is damaged and its entry is of its plan.

    Raises:
        NotFoundError: no such pipeline.
        CorruptObjectError: its manifest is damaged since its entry was read, or its plan is damaged or gone, too.
        ReleasedError: its manifest is damaged, and it was given up.
    """
    try:
        return context.coordinator(name).timelines.find(checkpoint)
    except CorruptObjectError:
        if entry is not None and entry.status is CheckpointStatus.DAMAGED and entry.trigger_ms:
            return None
        raise


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
    """All entries read so far, newest first, with all new ones.

    Raises:
        NotFoundError: no such pipeline.
    """
    return read_history(context, name)[0]
