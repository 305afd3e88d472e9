"""One proxy for parts whose library is imported, and whose address is looked up, at their first use."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar, cast

T = TypeVar("T")


class _Lazy:
    """Makes an object at the first access to one of its attributes, then forwards every access to it."""

    def __init__(self, make: Callable[[], object]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> object:
        return self._make()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._made, name)


def lazily(make: Callable[[], T]) -> T:
    """An object that `make` returns, made at its first use.

    A coordinator takes its log when it is constructed, and most verbs never ask Kafka: a cached property would import
    the client, and look for a broker, each time a command lists checkpoints.
    """
    return cast(T, _Lazy(make))
