"""A context for one answer that decides nothing, such as that of a page; over a bucket it lists the records once.

See `storage.listed_store` and adr/0033.
"""

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from tidemark.context import Context
from tidemark.ports import CheckpointStore

if TYPE_CHECKING:
    from tidemark.storage.listed_store import ReadBodies

_BODIES: "WeakKeyDictionary[Context, ReadBodies]" = WeakKeyDictionary()


def glance_at(context: Context, *, remember: bool = True) -> Context:
    """Returns the context for one answer, with all parts of `context` but the stores.

    For a warehouse on a disk it is `context` itself: there, a listing costs more than the reads that it saves.

    Args:
        context: of this process.
        remember: use the records that earlier answers of this process have read. Without it each is read once, and
            the listing has plans as well: a check reads all records.
    """
    if context.warehouse.bucket is None:
        return context
    from tidemark.storage.listed_store import ReadBodies

    base = lasting(context)
    if not remember:
        return _Glance(base, ReadBodies(), with_plans=True)
    return _Glance(base, _BODIES.setdefault(base, ReadBodies()))


def lasting(context: Context) -> Context:
    """The context that lives as long as the process, for a context of one answer."""
    return context.base if isinstance(context, _Glance) else context


class _Glance(Context):
    """See `glance_at`."""

    def __init__(self, base: Context, bodies: "ReadBodies", *, with_plans: bool = False) -> None:
        vars(self).update(vars(base))
        self.base, self._bodies, self._with_plans = base, bodies, with_plans
        self._stores: dict[str, CheckpointStore] = {}

    def require_pipeline(self, name: str) -> str:
        """See `Context.require_pipeline`."""
        return name if self.store(name).list("ids/") else super().require_pipeline(name)

    def store(self, name: str) -> CheckpointStore:
        """See `Context.store`."""
        from tidemark.storage.listed_store import UNLISTED, ListedStore
        from tidemark.storage.read_ahead import ReadAheadStore
        from tidemark.storage.s3_store import S3Store

        if name not in self._stores:
            store = self.base.store(name)
            # For the type checker: the warehouse is in a bucket.
            assert isinstance(store, ReadAheadStore) and isinstance(store.store, S3Store)  # noqa: S101
            unlisted = UNLISTED - {"plans"} if self._with_plans else UNLISTED
            self._stores[name] = ListedStore(store.store, self._bodies, unlisted)
        return self._stores[name]
