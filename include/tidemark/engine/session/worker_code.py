"""An author's code for Spark's workers, by value: a worker has no pipeline files, or those of another day."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle as _untyped

cloudpickle: Any = _untyped
_OURS = "tidemark"


def shipped(value: Any, authors: Iterable[object]) -> bytes:
    """A value as bytes that any worker reads, if it has this release of Tidemark.

    Args:
        value: what to send.
        authors: functions and classes of an author's: they, and what they use of the files beside their own, travel
            whole. Libraries are imported where they are used.
    """
    with _by_value(_modules(authors)):
        made: bytes = cloudpickle.dumps(value)
        return made


def _modules(authors: Iterable[object]) -> list[ModuleType]:
    named = {getattr(a, "__module__", None) or type(a).__module__ for a in authors}
    own = [sys.modules[name] for name in named if name in sys.modules and name.split(".")[0] != _OURS]
    folders = {found.parent for m in own if (found := _file(m)) is not None}
    beside = [m for m in list(sys.modules.values()) if (found := _file(m)) is not None and found.parent in folders]
    return list({id(m): m for m in (*own, *beside) if m.__name__ != "__main__"}.values())


def _file(module: ModuleType) -> Path | None:
    name = getattr(module, "__file__", None)
    return None if name is None else Path(name)


@contextmanager
def _by_value(modules: Iterable[ModuleType]) -> Iterator[None]:
    known = cloudpickle.list_registry_pickle_by_value()
    new = [m for m in modules if m.__name__ not in known and sys.modules.get(m.__name__) is m]
    for module in new:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in new:
            cloudpickle.unregister_pickle_by_value(module)
