"""Keeps points of every peer, drops most of them, and measures the bytes that are left (scenarios f and g)."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.places import Listing, Place, RetainingPeer, WrongStateError, check
from benchmarks.workload import State


@dataclass(frozen=True)
class Retaining:
    """The peers of one topic whose points are kept.

    Attributes:
        peers: the peers, by kind.
        places: the places of the peers, by kind.
        marks: the points of the peers by kind, oldest first.
    """

    peers: Mapping[str, RetainingPeer]
    places: Mapping[str, Place]
    marks: Mapping[str, Sequence[Any]]

    def measured(self, kept: Sequence[int]) -> Iterator[dict[str, Any]]:
        """Has every peer drop its older points in its own way, once for each number of points to keep.

        Args:
            kept: the numbers of points to keep, the largest first.

        Raises:
            WrongStateError: a file that a kept point needs is missing.
        """
        # This must precede the first drop, which may delete the logs that it reads.
        needed = {kind: [peer.needed(self.marks[kind][-n:]) for n in kept] for kind, peer in self.peers.items()}
        for at, n in enumerate(kept):
            for kind, peer in self.peers.items():
                if n >= peer.least:
                    yield {"kind": kind, "kept": n} | self._dropped(kind, n, needed[kind][at])

    def gone_back(self, points: int, wanted: State) -> Iterator[dict[str, Any]]:
        """Restores every peer to its oldest remaining point and lets it catch up.

        Args:
            points: the number of remaining points.
            wanted: the expected state at the topic's end.

        Raises:
            WrongStateError: a peer reaches a different state.
        """
        for kind, peer in self.peers.items():
            peer.back_to(self.marks[kind][-points])
            peer.take()
            yield {"kind": kind, "checked": {"keys": check(f"{kind}, {points} points back", peer.rows(), wanted)}}

    def _dropped(self, kind: str, n: int, needed: Mapping[Path, str]) -> dict[str, Any]:
        folder, marks = self.places[kind].folder, self.marks[kind][-n:]
        self.peers[kind].keep(marks)
        before = Listing.of(folder).bytes
        started = time.perf_counter()
        self.peers[kind].drop(marks)
        seconds = time.perf_counter() - started
        left = Listing.of(folder)
        if gone := [path for path in needed if str(path) not in left.files]:
            raise WrongStateError(f"{kind}: {n} points need {gone[0]}, which has gone: this run is void")
        sizes = {path: left.files[str(path)][0] for path in needed}
        return {
            "seconds": round(seconds, 4),
            "before": before,
            "left": left.bytes,
            "needed": sum(sizes.values()),
            "results": sum(size for path, size in sizes.items() if needed[path] == "results"),
        }
