"""Tidemark's read of a range against a bare count of the same range by the same Spark (scenario k)."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.perf.peers.batch import ends_of, records_between
from tests.perf.peers.places import Place
from tests.perf.peers.sparks import session_with
from tests.perf.peers.tidemark_peer import TidemarkPeer


@dataclass(frozen=True)
class Reading:
    """One Tidemark peer of this process's driver, which has taken all that the topic holds."""

    peer: TidemarkPeer
    place: Place

    def measured(self, produce: Callable[[], int], rounds: int) -> Iterator[dict[str, Any]]:
        """Rounds of a checkpoint and a count of its range; every other round begins with the count.

        Args:
            produce: sends a batch, and says how many records it has.
            rounds: how many.
        """
        session = session_with({})
        for n in range(rounds):
            starts = ends_of(self.place)
            wanted = produce()
            ends = ends_of(self.place)
            seconds = {}
            for turn in (n, n + 1):
                if turn % 2:
                    began = time.perf_counter()
                    assert records_between(session, self.place, starts, ends).count() == wanted
                    seconds["count"] = time.perf_counter() - began
                else:
                    self.peer.take()
                    seconds["read"] = self.peer.phases["read"]
            yield {"kind": "tidemark", "records": wanted, "counted": n} | seconds
