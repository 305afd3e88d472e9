"""Runs one peer once in this process, as a scheduler would start it: `python -m benchmarks.peers.once JSON`.

The process prints one line when the run is durable; its parent process measures the time.
"""

import json
import sys
from typing import Any

from benchmarks.peers.lineup import KINDS, Kind
from benchmarks.peers.places import Place


def main() -> int:
    """Processes the records in the topic."""
    asked = json.loads(sys.argv[1])
    kind, place = KINDS[asked["kind"]], Place(**asked["place"])
    if not kind.has_driver:
        _take(kind, asked)
        return 0
    from benchmarks.peers.fresh_drivers import begun, left

    spark = begun(asked["kind"], place, asked["scratch"])
    _take(kind, asked)
    left(asked["kind"], place, spark)
    return 0


def _take(kind: Kind, asked: dict[str, Any]) -> None:
    (kind.once or kind.make)(Place(**asked["place"]), asked["spark"]).take()
    sys.stdout.write("taken\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
