"""What a test adds to the flights' own file, to hold tasks of its process in their middle. `$folder` is replaced."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import tidemark

FOLDER = Path("$folder")
PATIENCE = 240.0


def held(function: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """The same function; its process says that it has begun, and goes on when it may."""

    @wraps(function)
    def waits(key: Any, flights: Iterable[Any], remembered: Any, broadcast: Any) -> Iterator[Any]:
        if not (FOLDER / "go").exists():
            (FOLDER / f"began-{os.getpid()}").write_text(str(tidemark.__file__))
            until = time.monotonic() + PATIENCE
            while not (FOLDER / "go").exists() and time.monotonic() < until:
                time.sleep(0.05)
        yield from function(key, flights, remembered, broadcast)

    return waits
