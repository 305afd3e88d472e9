"""Points of every peer that can be gone back to, and what is left when most of them go (scenarios f and g)."""

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
        peers: by kind.
        places: theirs.
        marks: their points, oldest first.
    """

    peers: Mapping[str, RetainingPeer]
    places: Mapping[str, Place]
    marks: Mapping[str, Sequence[Any]]

    def measured(self, kept: Sequence[int]) -> Iterator[dict[str, Any]]:
        """Has every peer drop all but so many points, then fewer, each by its own means.

        Args:
            kept: numbers of points, the largest first.

        Raises:
            WrongStateError: a file has gone that a kept point needs.
        """
        # Before anything goes: logs may go too.
        needed = {kind: [peer.needed(self.marks[kind][-n:]) for n in kept] for kind, peer in self.peers.items()}
        for at, n in enumerate(kept):
            for kind, peer in self.peers.items():
                if n >= peer.least:
                    yield {"kind": kind, "kept": n} | self._dropped(kind, n, needed[kind][at])

    def gone_back(self, points: int, wanted: State) -> Iterator[dict[str, Any]]:
        """Every peer goes back to the oldest point of those that are left, and catches up.

        Args:
            points: how many are left.
            wanted: the state at the topic's end.

        Raises:
            WrongStateError: a peer comes to another state.
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
