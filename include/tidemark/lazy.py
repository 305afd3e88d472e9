"""A proxy for parts whose library is imported, and whose address is looked up, on first use."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar, cast

T = TypeVar("T")


class _Lazy:
    """Creates an object on first access to one of its attributes, then forwards every access to it."""

    def __init__(self, make: Callable[[], object]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> object:
        return self._make()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._made, name)


def lazily(make: Callable[[], T]) -> T:
    """Returns a proxy for the object that `make` returns; `make` is called on first use.

    The coordinator takes its log in the constructor, but most commands never contact Kafka. A cached property would
    import the client and look for a broker each time a command lists checkpoints.
    """
    return cast(T, _Lazy(make))
