"""The pages' answers in this process: one `Pages`, because it remembers what it has read."""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemark.wiring.pages import Pages


@cache
def pages() -> "Pages":
    """That of this process, over the warehouse that the settings name."""
    from tidemark.wiring import open_runtime
    from tidemark.wiring.pages import Pages

    return Pages(open_runtime())
