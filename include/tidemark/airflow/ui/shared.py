"""The context of this process. There is only one, because it caches the histories that it has read."""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemark.context import Context


@cache
def shared_context() -> "Context":
    """The context over the warehouse that the settings name."""
    from tidemark.context import open_context

    return open_context()
