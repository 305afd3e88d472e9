"""One run of one peer in a process of its own, as a scheduler starts it: `python -m tests.perf.peers.once JSON`.

Prints one line when the run is durable; whoever started the process takes the time.
"""

import json
import sys

from tests.perf.peers.lineup import KINDS
from tests.perf.peers.places import Place
from tests.perf.peers.sparks import opened
from tests.perf.peers.tidemark_peer import TidemarkPeer

SERVED = "tidemark-server"
"""Its process of its own is this one already."""


def main() -> int:
    """Takes what the topic holds."""
    asked = json.loads(sys.argv[1])
    kind, place = KINDS[asked["kind"]], Place(**asked["place"])
    if kind.has_driver:
        opened(place.classes, asked["scratch"])
    peer = TidemarkPeer(place, asked["spark"]) if asked["kind"] == SERVED else kind.make(place, asked["spark"])
    peer.take()
    sys.stdout.write("taken\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
