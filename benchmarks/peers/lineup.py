"""Creates a peer of each kind; the names are those of `titles`.

The modules of a kind are imported when a peer of that kind is created, so that a run in a fresh process does not pay
for the imports of the other kinds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.peers.places import Peer, Place

if TYPE_CHECKING:
    from benchmarks.peers.batch import Change
    from benchmarks.peers.streaming import Sink

Make = Callable[[Place, str], Peer]


@dataclass(frozen=True)
class Kind:
    """One system with one setting.

    Attributes:
        make: creates the peer from a place and the address of a warm Connect server, which only Tidemark uses.
        has_driver: whether the peer needs a Spark driver in its process.
        once: creates the peer in a process that makes a single run, if that differs from `make`.
    """

    make: Make
    has_driver: bool = True
    once: Make | None = None


def _driven(place: Place, _: str) -> Peer:
    from benchmarks.peers.sparks import MASTER
    from benchmarks.peers.tidemark_peer import TidemarkPeer

    return TidemarkPeer(place, MASTER)


def _client(place: Place, spark: str) -> Peer:
    from benchmarks.peers.tidemark_peer import TidemarkPeer

    return TidemarkPeer(place, spark)


def _served(place: Place, spark: str) -> Peer:
    from benchmarks.peers.served import ServedPeer

    return ServedPeer(place, spark)


def _streaming(sink: "Sink", *, changelog: bool) -> Make:
    def made(place: Place, _: str) -> Peer:
        from benchmarks.peers.streaming import StreamingPeer

        return StreamingPeer(place, sink, changelog)

    return made


def _python_state(place: Place, _: str) -> Peer:
    from benchmarks.peers.python_state import PythonStatePeer

    return PythonStatePeer(place, "append", changelog=False)


def _delta_rs(place: Place, _: str) -> Peer:
    from benchmarks.peers.delta_rs import DeltaRsPeer

    return DeltaRsPeer(place)


def _batch(change: "Change") -> Make:
    def made(place: Place, _: str) -> Peer:
        from benchmarks.peers.batch import BatchPeer

        return BatchPeer(place, change)

    return made


def _flink(place: Place, _: str) -> Peer:
    from benchmarks.peers.flink import FlinkPeer

    return FlinkPeer(place)


KINDS = {
    "tidemark": Kind(_driven),
    "tidemark-server": Kind(_served, has_driver=False, once=_client),
    "append": Kind(_streaming("append", changelog=False)),
    "append-tuned": Kind(_streaming("append", changelog=False)),
    "append-log": Kind(_streaming("append", changelog=True)),
    "merge": Kind(_streaming("merge", changelog=False)),
    "merge-log": Kind(_streaming("merge", changelog=True)),
    "python-state": Kind(_python_state),
    "delta-rs": Kind(_delta_rs, has_driver=False),
    "delta-merge": Kind(_batch("merge")),
    "delta-vectors": Kind(_batch("merge with deletion vectors")),
    "overwrite": Kind(_batch("overwrite")),
    "flink": Kind(_flink, has_driver=False),
}
