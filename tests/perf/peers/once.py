"""One run of one peer in a process of its own, as a scheduler starts it: `python -m tests.perf.peers.once JSON`.

Prints one line when the run is durable; whoever started the process takes the time.
"""

import json
import sys

from tests.perf.peers.lineup import KINDS
from tests.perf.peers.places import Place


def main() -> int:
    """Takes what the topic holds."""
    asked = json.loads(sys.argv[1])
    kind, place = KINDS[asked["kind"]], Place(**asked["place"])
    if kind.has_driver:
        from tests.perf.peers.sparks import opened

        opened(place.classes, asked["scratch"])
    (kind.once or kind.make)(place, asked["spark"]).take()
    sys.stdout.write("taken\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
