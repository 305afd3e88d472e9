"""Medians of interleaved repetitions, so that ratios of them are meaningful."""

import statistics
import sys
import time
from collections.abc import Callable


def medians(measured: dict[str, Callable[[], None]], rounds: int = 5) -> dict[str, float]:
    """The median seconds of each call, interleaved, after one round that does not count."""
    times: dict[str, list[float]] = {name: [] for name in measured}
    for turn in range(rounds + 1):
        for name, act in measured.items():
            started = time.perf_counter()
            act()
            if turn:
                times[name].append(time.perf_counter() - started)
                sys.stderr.write(f"{name} {times[name][-1]:.2f}\n")
    return {name: round(statistics.median(found), 3) for name, found in times.items()}
