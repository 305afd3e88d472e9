"""Makes many instances of a class from values, without its own `__init__` (adr/0072)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import make_dataclass
from typing import Any


class InstanceMaker:
    """Makes instances of a class with given attributes.

    The `__init__` that Python generates for a plain dataclass is the fastest way to set several attributes of a new
    object; then the object gets its class. The `__init__` of a frozen dataclass takes twice as long.

    >>> class Point:
    ...     pass
    >>> vars(InstanceMaker(Point, ["x", "y"]).make(1, 2))
    {'x': 1, 'y': 2}

    Args:
        cls: the class.
        names: the attributes.
    """

    def __init__(self, cls: type, names: Sequence[str]) -> None:
        self._cls = cls
        self._plain: Callable[..., Any] = make_dataclass("Plain", names, eq=False, repr=False)
        self._names = tuple(names)
        try:
            self._plain(*names).__class__ = cls
        except TypeError:  # a class with slots has another layout
            self._plain = self._made

    def make(self, *values: Any) -> Any:
        """Returns an instance with one value per attribute."""
        made = self._plain(*values)
        made.__class__ = self._cls
        return made

    def make_all(self, columns: Iterable[Iterable[Any]]) -> list[Any]:
        """Returns an instance for each row of columns, one per attribute."""
        made, cls = list(map(self._plain, *columns)), self._cls
        for one in made:
            one.__class__ = cls
        return made

    def _made(self, *values: Any) -> Any:
        made: Any = object.__new__(self._cls)
        for name, value in zip(self._names, values, strict=True):
            object.__setattr__(made, name, value)
        return made
