"""Compares Tidemark's read of a range with a bare count of the same range by the same Spark (scenario k)."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.pipelines.totals import EVERY
from benchmarks.peers.places import Place
from benchmarks.peers.sparks import session_with
from benchmarks.peers.tidemark_peer import TidemarkPeer
from tidemark.engine.read.batch_stats import count_batch
from tidemark.engine.read.frames import decode
from tidemark.engine.read.source import KafkaOptions, read_ranges


@dataclass(frozen=True)
class Reading:
    """A Tidemark peer with the driver of this process, which has processed all records in the topic."""

    peer: TidemarkPeer
    place: Place

    def measured(self, produce: Callable[[], int], rounds: int) -> Iterator[dict[str, Any]]:
        """Completes a checkpoint per round, then reads and counts its range; every other round begins with the count.

        Args:
            produce: sends a batch, and returns its number of records.
            rounds: the number of rounds.
        """
        pipeline = next(p for p in EVERY if p.name == self.place.topic)
        (name,), session, kafka = pipeline.inputs, session_with({}), KafkaOptions(bootstrap=self.place.bootstrap)
        for n in range(rounds):
            wanted = produce()
            self.peer.take()
            plan, seconds = self.peer.plan, {}
            assert plan is not None
            for turn in (n, n + 1):
                began = time.perf_counter()
                raw = read_ranges(session, plan, name, kafka)
                if turn % 2:
                    assert raw.count() == wanted
                else:
                    assert (
                        count_batch({name: decode(raw, pipeline, plan, name)}, pipeline, plan).records[name] == wanted
                    )
                seconds["count" if turn % 2 else "read"] = time.perf_counter() - began
            yield {"kind": "tidemark", "records": wanted, "counted": n} | seconds
