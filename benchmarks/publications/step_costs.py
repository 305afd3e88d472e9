"""Seconds, processor time and bytes of one step of any party."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from benchmarks.peers.places import Listing


@dataclass(frozen=True)
class StepCost:
    """What a step took.

    Attributes:
        seconds: of time.
        cpu_seconds: processor time of this process and its children: Spark's JVM and the broker.
        files: the files that it has added or changed, by path, with their bytes.
    """

    seconds: float
    cpu_seconds: float
    files: Mapping[str, int]

    @classmethod
    def of(cls, act: Callable[[], Any], folder: str) -> "StepCost":
        """Calls a function, which writes below a folder."""
        before, cpu, started = Listing.of(folder), _cpu_seconds(), time.perf_counter()
        act()
        seconds, used = time.perf_counter() - started, _cpu_seconds() - cpu
        after = Listing.of(folder)
        files = {path: found[0] for path, found in after.files.items() if before.files.get(path) != found}
        return cls(seconds, used, files)

    @property
    def row(self) -> dict[str, Any]:
        """Its figures, with the sum of the bytes."""
        return {
            "seconds": round(self.seconds, 4),
            "cpu_seconds": round(self.cpu_seconds, 2),
            "bytes": sum(self.files.values()),
        }


def _cpu_seconds() -> float:
    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
    return float(sum(time.user + time.system for time in times))
