"""A context for one answer that decides nothing, such as that of a page; over a bucket it lists the records once.

See `storage.listed_store`, `storage.shared_listing`, and adr/0033 and 0078.
"""

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from tidemark.context import Context

if TYPE_CHECKING:
    from tidemark.storage.listed_store import ListedStore, ReadBodies
    from tidemark.storage.shared_listing import SharedListing

_BODIES: "WeakKeyDictionary[Context, ReadBodies]" = WeakKeyDictionary()
_LISTINGS: "WeakKeyDictionary[Context, dict[str, SharedListing]]" = WeakKeyDictionary()


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
        return _Glance(base, ReadBodies(), None)
    return _Glance(base, _BODIES.setdefault(base, ReadBodies()), _LISTINGS.setdefault(base, {}))


def lasting(context: Context) -> Context:
    """The context that lives as long as the process, for a context of one answer."""
    return context.base if isinstance(context, _Glance) else context


def has_planned(context: Context, name: str) -> bool:
    """Whether a pipeline has planned a checkpoint: by the listing of this answer, if it makes one.

    Raises:
        NameRefusedError: no pipeline can have this name.
    """
    if not isinstance(context, _Glance):
        return context.warehouse.has_planned(name)
    return bool(context.store(name).newest("ids/")[0])


class _Glance(Context):
    """See `glance_at`."""

    def __init__(self, base: Context, bodies: "ReadBodies", listings: "dict[str, SharedListing] | None") -> None:
        vars(self).update(vars(base))
        self.base, self._bodies, self._listings = base, bodies, listings
        self._stores: dict[str, ListedStore] = {}

    def require_pipeline(self, name: str) -> str:
        """See `Context.require_pipeline`."""
        return name if has_planned(self, name) else super().require_pipeline(name)

    def store(self, name: str) -> "ListedStore":
        """See `Context.store`."""
        from tidemark.storage.listed_store import CROSSED, UNLISTED, ListedStore
        from tidemark.storage.read_ahead import ReadAheadStore
        from tidemark.storage.s3_store import S3Store
        from tidemark.storage.shared_listing import SharedListing

        if name not in self._stores:
            store = self.base.store(name)
            # For the type checker: the warehouse is in a bucket.
            assert isinstance(store, ReadAheadStore) and isinstance(store.store, S3Store)  # noqa: S101
            if self._listings is None:
                self._stores[name] = ListedStore(store.store, self._bodies, UNLISTED - {"plans"})
            else:
                shared = self._listings.setdefault(name, SharedListing(store.store, UNLISTED, CROSSED))
                self._stores[name] = made = ListedStore(store.store, self._bodies, UNLISTED, shared)
                made.prefetch(made.list_ends())
                if not made.newest("ids/")[0]:
                    self._listings.pop(name, None)  # names that no pipeline has would fill the memory
        return self._stores[name]
