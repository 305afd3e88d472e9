"""Times savepoint, restore and fork of every peer, and checks the state that a run produces after each restore."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.peers.places import Place, RestorablePeer, check
from benchmarks.workload import State

POINT = "point"


@dataclass(frozen=True)
class Restoring:
    """The peers of one topic that are restored.

    Attributes:
        peers: the peers by kind, which have processed all records in the topic.
        places: the places of the peers, by kind.
    """

    peers: Mapping[str, RestorablePeer]
    places: Mapping[str, Place]

    def measured(self, produce: Callable[[], State]) -> Iterator[dict[str, Any]]:
        """Makes a savepoint, processes a batch, restores, and forks; a run after each must produce the oracle's state.

        Args:
            produce: sends one more batch, and returns the expected state after it.

        Raises:
            WrongStateError: a restored or a forked peer produces a different state.
        """
        for kind, peer in self.peers.items():
            started = time.perf_counter()
            peer.savepoint(POINT)
            yield _row(kind, "savepoint", started)
        wanted = produce()
        for kind, peer in self.peers.items():
            peer.take()
            started = time.perf_counter()
            peer.restore(POINT)
            yield _row(kind, "restore", started)
            peer.take()
            yield {"kind": kind, "checked": {"keys": check(f"{kind}, restored", peer.rows(), wanted)}}
        for kind, peer in self.peers.items():
            place = replace(self.places[kind], folder=f"{self.places[kind].folder}-fork")
            Path(place.folder).mkdir()
            started = time.perf_counter()
            made = peer.forked(POINT, place)
            yield _row(kind, "fork", started)
            with closing(made) as fork:
                fork.take()
                yield {"kind": kind, "checked": {"keys": check(f"{kind}, forked", fork.rows(), wanted)}}


def _row(kind: str, verb: str, started: float) -> dict[str, Any]:
    return {"kind": kind, "verb": verb, "seconds": round(time.perf_counter() - started, 4)}
