"""How a peer of each kind is made; the names are those of `titles`."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.perf.peers.batch import BatchPeer
from tests.perf.peers.flink import FlinkPeer
from tests.perf.peers.places import Peer, Place
from tests.perf.peers.served import ServedPeer
from tests.perf.peers.sparks import MASTER
from tests.perf.peers.streaming import StreamingPeer
from tests.perf.peers.tidemark_peer import TidemarkPeer


@dataclass(frozen=True)
class Kind:
    """One system with one setting.

    Attributes:
        make: of a place and of the address of a warm Connect server, which only Tidemark uses.
        has_driver: whether it needs a Spark driver in its process.
    """

    make: Callable[[Place, str], Peer]
    has_driver: bool = True


KINDS = {
    "tidemark": Kind(lambda place, _: TidemarkPeer(place, MASTER)),
    "tidemark-server": Kind(ServedPeer, has_driver=False),
    "append": Kind(lambda place, _: StreamingPeer(place, "append", changelog=False)),
    "append-log": Kind(lambda place, _: StreamingPeer(place, "append", changelog=True)),
    "merge": Kind(lambda place, _: StreamingPeer(place, "merge", changelog=False)),
    "merge-log": Kind(lambda place, _: StreamingPeer(place, "merge", changelog=True)),
    "delta-merge": Kind(lambda place, _: BatchPeer(place, "merge")),
    "delta-vectors": Kind(lambda place, _: BatchPeer(place, "merge with deletion vectors")),
    "overwrite": Kind(lambda place, _: BatchPeer(place, "overwrite")),
    "flink": Kind(lambda place, _: FlinkPeer(place), has_driver=False),
}
