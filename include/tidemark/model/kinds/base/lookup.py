"""Finds a kind by its name in declarations and manifests."""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tidemark.errors import UsageError

if TYPE_CHECKING:
    from tidemark.model.kinds.base.fold_kind import FoldKind
    from tidemark.model.kinds.base.kind import StateKind
    from tidemark.model.kinds.base.process_kind import ProcessKind

KNOWN: "dict[str, type[StateKind]]" = {}
"""The class of every kind by name; filled as their files are loaded, completely by `kinds.registry`."""


@cache
def state_kind(name: str) -> "StateKind":
    """Returns the kind with a name.

    Raises:
        UsageError: this release has no such kind.
    """
    # The file of a kind has its name. It is imported on first use, because it needs the schema module that calls this
    # function, and because most commands need no kind.
    if name.isidentifier() and find_spec(f"tidemark.model.kinds.{name}") is not None:
        import_module(f"tidemark.model.kinds.{name}")
    if name not in KNOWN:
        import_module("tidemark.model.kinds.registry")
        raise UsageError(
            f"this release has no kind of state called {name}; there are {', '.join(sorted(KNOWN))}",
            next="use the release of Tidemark that wrote this state.",
        )
    return KNOWN[name]()


def fold_kind(name: str) -> "FoldKind":
    """Returns the kind of a field of a fold."""
    from tidemark.model.kinds.base.fold_kind import FoldKind

    found = state_kind(name)
    assert isinstance(found, FoldKind)  # noqa: S101  (for the type checker: an operator has fields of its own kinds only)
    return found


def process_kind(name: str) -> "ProcessKind":
    """Returns the kind of a field of a process."""
    from tidemark.model.kinds.base.process_kind import ProcessKind

    found = state_kind(name)
    assert isinstance(found, ProcessKind)  # noqa: S101  (for the type checker: see `fold_kind`)
    return found
